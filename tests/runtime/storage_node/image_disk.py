"""A disk in memory for a storage node: what was begun, what is durable, and faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tidelog.core.replica.output import Store, Write
from tidelog.core.replica.state import Stored
from tidelog.errors import LogError
from tidelog.formats.manifest import TopicManifest
from tidelog.storage.node_store import NodeStore
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.testing.disk import SimDisk
from tidelog.testing.stream_image import StreamImage
from tidelog.types import Llsn, StreamId, TopicId


class ImageDisk:
    """Satisfies ``ports.Disk``; its node store is there, but empty."""

    def __init__(self) -> None:
        self.node: NodeStore = open_node_store(
            SimDisk().vfs(), "/node", StoreOptions(wal_file_bytes=1 << 16)
        )
        self.is_backlogged = False
        self.damaged: dict[StreamId, str] = {}
        self.topics: Sequence[TopicManifest] = ()
        self.boundaries: dict[StreamId, int] = {}
        self.error: LogError | None = None
        """What the next syncs fail with."""
        self.gate = threading.Event()
        """Syncs wait until it is set."""
        self.gate.set()
        self.is_held = False
        """Whether a sync waits at the gate."""
        self.groups: list[int] = []
        """How many writes each sync made durable."""
        self._seen: dict[StreamId, StreamImage] = {}
        self._durable: dict[StreamId, StreamImage] = {}
        self._queue: list[tuple[int, StreamId, Write]] = []
        self._number = 0
        self._synced = 0
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Lose what was not synced."""
        self._queue.clear()
        self._seen = {stream: image.copy() for stream, image in self._durable.items()}

    def wipe(self) -> None:
        """Lose everything."""
        self._queue.clear()
        self._seen, self._durable = {}, {}

    def durable(self, stream: StreamId) -> StreamImage:
        return self._durable.setdefault(stream, StreamImage())

    # --- ports.Disk ---

    @property
    def has_begun(self) -> bool:
        return bool(self._queue)

    @property
    def is_urgent(self) -> bool:
        return any(not write.can_wait for _, _, write in self._queue)

    @property
    def last_begun(self) -> int:
        return self._number

    def set_topics(self, topics: Sequence[TopicManifest]) -> None:
        self.topics = topics

    def set_fetching(
        self, run: Callable[[Callable[[], None]], None], fetched: Callable[[StreamId], None]
    ) -> None:
        """All is in memory."""

    def streams(self) -> tuple[StreamId, ...]:
        return tuple(
            sorted(stream for stream, one in self._seen.items() if one.hard_state is not None)
        )

    def stored(self, stream: StreamId) -> Stored:
        return self._image(stream).stored()

    def reader(self, stream: StreamId) -> Store:
        return self._image(stream)

    def begin(self, stream: StreamId, topic: TopicId, write: Write) -> int:
        self._image(stream).apply(write)
        with self._lock:
            self._number += 1
            self._queue.append((self._number, stream, write))
        return self._number

    def set_boundary(self, stream: StreamId, version: int) -> int:
        self.boundaries[stream] = version
        return self._number

    def settled_index(self, stream: StreamId) -> Llsn:
        return Llsn(0)

    def damage(self, stream: StreamId) -> str:
        return ""

    def give_up(self, stream: StreamId) -> int:
        raise NotImplementedError

    def batch_begin(self, stream: StreamId, llsn: Llsn) -> Llsn:
        return llsn

    def roll(self) -> None:
        self.node.wal.roll()

    def sync_quickly(self) -> int | None:
        return None  # A gate may hold it up.

    def sync(self) -> int:
        with self._lock:
            group = list(self._queue)
        self.is_held = True
        self.gate.wait()
        self.is_held = False
        if self.error is not None:
            raise self.error
        with self._lock:
            del self._queue[: len(group)]
        for number, stream, write in group:
            self.durable(stream).apply(write)
            self._synced = number
        if group:
            self.groups.append(len(group))
        return self._synced

    def _image(self, stream: StreamId) -> StreamImage:
        return self._seen.setdefault(stream, StreamImage())
