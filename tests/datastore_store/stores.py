"""A datastore on a simulated disk, and beside it a model that only knows what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelog.core.compaction.plan import Strategy
from tidelog.datastore.epoch_store import EpochStore, StoredEntry
from tidelog.embedded.maintenance import Maintenance
from tidelog.embedded.options import Options
from tidelog.formats.channel_batch import encode_channel_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.storage.node_store import NodeStore
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import Vfs
from tidelog.testing.disk import Choice, SimDisk

PATH = "/data"
OPTIONS = Options(
    wal_file_bytes=64 << 10,
    background=False,
    compaction=Strategy(minors=None, dead_ratio=None),
)
Shown = dict[tuple[int, bytes], tuple[bytes, int, tuple[int, ...]]]
"""(storage, key) → (value, write version, BLOBs)."""


def put(
    key: str, text: str, version: int, *, storage: int = 1, blobs: tuple[int, ...] = ()
) -> Entry:
    return Entry(Kind.PUT, text.encode(), key.encode(), storage, version, blobs=blobs)


def delete(key: str, version: int, *, storage: int = 1) -> Entry:
    return Entry(Kind.DELETE, b"", key.encode(), storage, version)


def delete_storage(version: int, *, storage: int = 1) -> Entry:
    return Entry(Kind.DELETE_STORAGE, b"", b"", storage, version)


def open_store(vfs: Vfs, options: Options = OPTIONS, *, create: bool = True) -> EpochStore:
    return EpochStore(vfs, PATH, options, create=create)


def node_of(store: EpochStore) -> NodeStore:
    return store._node


def maintenance_of(store: EpochStore) -> Maintenance:
    return store._backlog.maintenance


def streams_of(store: EpochStore) -> list[StreamStore]:
    return [node_of(store).streams[channel + 1] for channel in range(store.channels)]


def append(store: EpochStore, channel: int, epoch: int, *entries: Entry) -> None:
    """Append one batch."""
    store.append(
        channel, epoch, [encode_channel_batch(channel, epoch, store.end_llsn(channel), entries)]
    )


def shown(store: EpochStore) -> Shown:
    """What the store shows; no key may be there twice."""
    found: Shown = {}
    for entry in store.entries():
        place = (entry.storage_id, entry.key)
        assert place not in found, f"{place} is shown twice"
        found[place] = _content(entry)
    return found


def _content(entry: StoredEntry) -> tuple[bytes, int, tuple[int, ...]]:
    return entry.value, entry.write_version, entry.blobs


def roll_and_flush(store: EpochStore) -> None:
    node_of(store).wal.roll()
    maintenance_of(store).flush_rolled()


def present(store: EpochStore) -> Iterator[tuple[int, int, int, Entry]]:
    """Channel, number of the source, LLSN and entry of all that is physically there; memory is 0"""
    for channel, stream in enumerate(streams_of(store)):
        with stream.pins.pinned():
            for piece in stream.read_view(stream.view, 1, stream.end_llsn):
                entries = piece.batch.entries(piece.begin, piece.end)
                for llsn, entry in zip(piece.llsns(), entries, strict=True):
                    numbers = [
                        segment.number
                        for segment in stream.view.segments
                        if segment.first_llsn <= llsn < segment.end_llsn
                    ]
                    yield channel, numbers[0] if numbers else 0, llsn, entry


@dataclass
class Write:
    """One entry that was appended."""

    channel: int
    epoch: int
    llsn: int
    entry: Entry

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.entry.write_version or 0, self.llsn, self.channel


@dataclass
class Model:
    """Everything that was appended; what is recorded decides what is shown."""

    recorded: list[Write] = field(default_factory=list)
    waiting: list[Write] = field(default_factory=list)
    epoch: int = 0

    def append(self, channel: int, epoch: int, llsn: int, *entries: Entry) -> None:
        self.waiting += [
            Write(channel, epoch, llsn + place, entry) for place, entry in enumerate(entries)
        ]

    def record(self, epoch: int) -> None:
        self.recorded += [write for write in self.waiting if write.epoch <= epoch]
        self.waiting = [write for write in self.waiting if write.epoch > epoch]
        self.epoch = epoch

    def cut(self, channel: int, llsn_end: int) -> None:
        self.waiting = [
            write for write in self.waiting if write.channel != channel or write.llsn < llsn_end
        ]

    def newest(self) -> dict[tuple[int, bytes], Write]:
        """The current write of each key, deletes among them."""
        best: dict[tuple[int, bytes], Write] = {}
        for write in self.recorded:
            if write.entry.kind is not Kind.DELETE_STORAGE:
                place = (write.entry.storage_id, write.entry.key)
                if place not in best or write.rank > best[place].rank:
                    best[place] = write
        return best

    def shown(self) -> Shown:
        killers: dict[int, tuple[int, int, int]] = {}
        for write in self.recorded:
            if write.entry.kind is Kind.DELETE_STORAGE:
                storage = write.entry.storage_id
                killers[storage] = max(killers.get(storage, (-1, 0, 0)), write.rank)
        return {
            place: (write.entry.value, write.entry.write_version or 0, write.entry.blobs)
            for place, write in self.newest().items()
            if write.entry.kind is Kind.PUT and write.rank > killers.get(place[0], (-1, 0, 0))
        }


@dataclass
class Tried:
    """A store and its model, changed together."""

    disk: SimDisk = field(default_factory=SimDisk)
    options: Options = OPTIONS
    channels: int = 3
    model: Model = field(default_factory=Model)
    store: EpochStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(self.disk.vfs(), self.options)
        self.store.make_channels(self.channels)

    def write(self, channel: int, epoch: int, *entries: Entry) -> None:
        llsn = self.store.end_llsn(channel)
        append(self.store, channel, epoch, *entries)
        self.model.append(channel, epoch, llsn, *entries)

    def record(self, epoch: int) -> None:
        self.store.record(epoch)
        self.model.record(epoch)

    def commit(self, channel: int, *entries: Entry) -> None:
        """Write and record in an epoch of its own."""
        epoch = self.model.epoch + 1
        self.write(channel, epoch, *entries)
        self.record(epoch)

    def segment(self, channel: int, *entries: Entry) -> None:
        """Entries in a segment of their own."""
        self.commit(channel, *entries)
        roll_and_flush(self.store)

    def snapshot(self) -> None:
        maintenance_of(self.store).snapshot(streams_of(self.store)[0])

    def cut(self, channel: int, llsn_end: int) -> None:
        self.store.cut(channel, llsn_end)
        self.model.cut(channel, llsn_end)

    def reopen(self) -> None:
        self.store.close()
        self._open(self.disk)

    def crash(self, kept: Choice = Choice.LOST) -> None:
        self._open(self.disk.after_crash(kept))

    def _open(self, disk: SimDisk) -> None:
        self.disk = disk
        self.model.waiting = []
        self.store = open_store(disk.vfs(), self.options, create=False)

    def check(self) -> None:
        """The store shows what the model says, one by one and all together."""
        expected = self.model.shown()
        assert shown(self.store) == expected
        assert self.store.epoch == self.model.epoch
        for storage, key in self.model.newest():
            found = self.store.get(storage, key)
            assert (None if found is None else _content(found)) == expected.get((storage, key))
