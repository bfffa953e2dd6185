"""What can be queued for a group commit: appends, trims, GC boundaries, changes of topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tidelog.embedded.commit_queue import Request
from tidelog.embedded.records import Receipt
from tidelog.formats.batch import HEADER_BYTES, BatchBody


class Part(msgspec.Struct, frozen=True, gc=False):
    """The part of an append that goes to one stream."""

    stream: int
    body: BatchBody
    version_min: int | None = None
    """The smallest explicit write version in it; None when versions are GLSNs."""
    copied_llsn: int = 0
    """For copies that compaction makes: the first original."""


class AppendRequest(Request):
    """Batches that become durable together, in one frame."""

    __slots__ = ("listener", "parts", "producer", "receipts", "sequence", "topic")

    def __init__(
        self, topic: str, parts: Sequence[Part], *, producer: int = 0, sequence: int = 0
    ) -> None:
        super().__init__(sum([HEADER_BYTES + len(part.body.data) for part in parts]))
        self.topic = topic
        self.parts = parts
        self.producer = producer
        self.sequence = sequence
        self.receipts: tuple[Receipt, ...] = ()
        self.listener: Callable[[], None] | None = None
        """Told instead of a waiting thread that the append is done or leads."""

    def wake(self) -> None:
        if self.listener is not None:
            self.listener()
        else:
            super().wake()


class AdminRequest(Request):
    """A change of topics: it runs between two frames, when nobody else looks at the order."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__(0)
        self.action = action


class TrimRequest(Request):
    """Forget the entries of a topic below ``glsn_end``."""

    __slots__ = ("glsn_end", "topic")

    def __init__(self, topic: int, glsn_end: int) -> None:
        super().__init__(0)
        self.topic = topic
        self.glsn_end = glsn_end


class BoundaryRequest(Request):
    """Older versions than the newest at or below ``version`` are no longer needed."""

    __slots__ = ("topic", "version")

    def __init__(self, topic: int, version: int) -> None:
        super().__init__(0)
        self.topic = topic
        self.version = version
