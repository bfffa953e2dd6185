"""The one disk of a simulated storage node, shared by its replicas.

Invariants:
  Y1  writes of all replicas become durable in the order in which they came
  Y2  while one group waits for its sync, what comes in waits for the next group
  Y3  a crash keeps all that was synced, and of the rest a prefix of whole writes
  Y4  a write that can wait begins no group by itself; ``flush`` lets it
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tidelog.core.replica.output import Write
from tidelog.testing.faults import Plan
from tidelog.testing.journal import Happened
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.stream_image import StreamImage
from tidelog.testing.world import Process
from tidelog.types import Llsn, StreamId

SEGMENT_ENTRIES: Final = (1, 10, 100)
"""About so many entries of a stream are in one segment, on this disk or on another."""


class StorageDisk:
    """What is durable, what readers see, and the writes in between."""

    __slots__ = (
        "_begun",
        "_chance",
        "_delays",
        "_durable",
        "_is_wanted",
        "_plan",
        "_process",
        "_queue",
        "_seen",
        "_segment_entries",
        "_sometimes",
        "_written",
    )

    def __init__(
        self,
        process: Process,
        plan: Plan,
        delays: Random,
        chance: Random,
        sometimes: Sometimes,
        written: Callable[[StreamId, int], None],
    ) -> None:
        self._process = process
        self._plan = plan
        self._delays = delays
        self._chance = chance
        self._segment_entries = chance.choice(SEGMENT_ENTRIES)
        self._sometimes = sometimes
        self._written = written
        self._durable: dict[StreamId, StreamImage] = {}
        self._seen: dict[StreamId, StreamImage] = {}
        self._queue: list[tuple[StreamId, Write]] = []
        self._begun = 0
        """How many writes of the queue wait for their sync."""
        self._is_wanted = False
        """Whether the rest of the queue is to be synced after them."""

    def streams(self) -> list[StreamId]:
        """Return the streams that something is known of, in order."""
        return sorted(stream for stream, one in self._seen.items() if one.hard_state is not None)

    def seen(self, stream: StreamId) -> StreamImage:
        """Return a replica as readers see it."""
        return _image_of(self._seen, stream)

    def durable(self, stream: StreamId) -> StreamImage:
        """Return a replica as a crash would leave it at least."""
        return _image_of(self._durable, stream)

    def is_clean(self, stream: StreamId) -> bool:
        """Whether all of a replica is durable."""
        return all(other != stream for other, _ in self._queue)

    def add(self, stream: StreamId, write: Write) -> None:
        """Take a write; ``written`` is called when it is durable."""
        self.seen(stream).apply(write)
        self._queue.append((stream, write))
        if not write.can_wait:
            self.flush()

    def flush(self) -> None:
        """Sync what waits (Y4)."""
        self._is_wanted = True
        self._begin_group()

    def compact(self, stream: StreamId, snapshot_index: Llsn) -> None:
        """Let dead entries go; the replica must be clean."""
        self.seen(stream).compact(snapshot_index, self._segment_entries)
        self.durable(stream).compact(snapshot_index, self._segment_entries)

    # Groups.

    def _begin_group(self) -> None:
        if self._begun or not (self._queue and self._is_wanted):
            return
        self._is_wanted = False
        self._begun = len(self._queue)
        process = self._process
        process.world.journal.note(Happened.WRITE, process.node, self._begun)
        delay = self._plan.sync_min + int(self._delays.expovariate(1.0) * self._plan.sync_mean)
        process.world.plan(delay, self._end_group, process)

    def _end_group(self) -> None:
        group, self._queue = self._queue[: self._begun], self._queue[self._begun :]
        self._begun = 0
        last = self._keep(group)
        self._process.world.journal.note(Happened.SYNC, self._process.node, len(group))
        self._begin_group()
        for stream, sequence in last.items():
            self._written(stream, sequence)

    def _keep(self, writes: list[tuple[StreamId, Write]]) -> dict[StreamId, int]:
        last: dict[StreamId, int] = {}
        for stream, write in writes:
            self.durable(stream).apply(write)
            last[stream] = write.sequence
        return last

    # Ends.

    def lose(self, *, power_lost: bool) -> None:
        """End a life: what the process had not given to the machine may be lost in any case."""
        safe = 0 if power_lost else self._begun
        kept = self._chance.randint(safe, len(self._queue))
        if self._queue:
            self._sometimes.count(Rare.UNSYNCED_WRITE_KEPT, kept)
            self._sometimes.count(Rare.UNSYNCED_WRITE_LOST, len(self._queue) - kept)
        # What recovery finds it syncs before it is used.
        self._keep(self._queue[:kept])
        self._queue, self._begun, self._is_wanted = [], 0, False
        self._seen = {stream: image.copy() for stream, image in self._durable.items()}


def _image_of(images: dict[StreamId, StreamImage], stream: StreamId) -> StreamImage:
    image = images.get(stream)
    if image is None:
        image = images[stream] = StreamImage()
    return image
