"""What a replica may read of its disk: nothing that lost its producers without its knowledge.

A flush joins small batches, and then nobody can tell who appended them.  A replica that was told so
(``Replica.joined``) brings such entries to others only together with its table of producers.

Invariants:
  B1  batches that lie in segments are handed out only after the replica was told that they do
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.output import Store
from tidelog.runtime.storage_node.ports import Disk
from tidelog.types import Llsn, StreamId


class GuardedReader(Store):
    """The reader of one replica."""

    __slots__ = ("_disk", "_reader", "_stream", "told")

    def __init__(self, disk: Disk, stream: StreamId) -> None:
        self._disk = disk
        self._stream = stream
        self._reader = disk.reader(stream)
        self.told: Callable[[], Llsn] = _nothing
        """How far the replica knows that entries are joined."""

    def batches(
        self, begin: Llsn, bytes_max: int, end: Llsn | None = None
    ) -> tuple[Batch, ...] | None:
        """B1; the flush may end while this reads, so it is looked at after that."""
        batches = self._reader.batches(begin, bytes_max, end)
        if batches and self.told() < begin <= self._disk.settled_index(self._stream):
            return None
        return batches

    def runs(self, begin: Llsn, end: Llsn) -> tuple[GlsnRun, ...] | None:
        return self._reader.runs(begin, end)

    def state(self) -> bytes:
        return self._reader.state()


def _nothing() -> Llsn:
    return Llsn(0)
