"""What can be queued for a group commit: appends, trims, GC boundaries, changes of topics."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.embedded.commit_queue import Request
from tidelog.formats.batch import HEADER_BYTES
from tidelog.interface.appends import Append
from tidelog.interface.records import Receipt


class AppendRequest(Request):
    """Batches that become durable together, in one frame."""

    __slots__ = ("append", "listener", "receipts")

    def __init__(self, append: Append) -> None:
        size = 0
        for part in append.parts:
            size += HEADER_BYTES + len(part.body.data)
        super().__init__(size)
        self.append = append
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
