"""A small language for storage stories: one node on a simulated disk, and a model of its entries.

Every call that changes the store changes the model too, so that a story can end with
``assert_whole`` (everything is there) or ``assert_live`` (everything live is there, nothing is
different, and each key reads as the model says).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.storage.watched import WatchedVfs, Watcher
from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.formats.batch import encode_entries, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.key_rows import hash_key
from tidelog.formats.wal_payloads import Trim, Truncate
from tidelog.interface.figures import CompactionResult
from tidelog.limits import KIB, SEGMENT_BYTES_MAX
from tidelog.storage.compaction import compact_major, compact_minor
from tidelog.storage.frame_write import BatchWrite, FrameWrite
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.node_store import NodeStore
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.segments import Segment
from tidelog.storage.snapshot_store import SnapshotState
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import Vfs
from tidelog.testing.disk import Choice, SimDisk
from tidelog.types import Glsn, Llsn, StreamId, TopicId, Version

PATH = "/log"
Numbered = dict[int, tuple[int, Entry]]
"""LLSN → (GLSN, entry); a GLSN of 0 stands for an entry that is not ordered yet."""


def value(text: str) -> Entry:
    return Entry(Kind.APPEND, text.encode())


def values(count: int, size: int = 10) -> list[Entry]:
    return [Entry(Kind.APPEND, f"{i:>{size}}".encode()) for i in range(count)]


def put(key: str, text: str = "v", *, storage: int = 0, version: int | None = None) -> Entry:
    return Entry(Kind.PUT, text.encode(), key.encode(), storage, version)


def puts(keys: Iterable[int], text: str = "v") -> list[Entry]:
    return [put(f"k{key}", f"{text}{key}") for key in keys]


def delete(key: str, *, storage: int = 0, version: int | None = None) -> Entry:
    return Entry(Kind.DELETE, b"", key.encode(), storage, version)


def delete_storage(storage: int, version: int | None = None) -> Entry:
    return Entry(Kind.DELETE_STORAGE, b"", b"", storage, version)


@dataclass(slots=True)
class Streams:
    """The store under test; streams are named by their numbers, 1 is the first."""

    disk: SimDisk = field(default_factory=SimDisk)
    file_bytes: int = 64 * KIB
    watcher: Watcher | None = None
    node: NodeStore = field(init=False)
    model: dict[int, Numbered] = field(default_factory=dict)

    @classmethod
    def new(
        cls,
        *,
        streams: int = 1,
        versions: str = "log",
        file_bytes: int = 64 * KIB,
        disk: SimDisk | None = None,
        watcher: Watcher | None = None,
    ) -> Streams:
        story = cls(disk or SimDisk(), file_bytes, watcher)
        story.open()
        story.add_topic("first", streams=streams, versions=versions)
        return story

    def add_topic(self, name: str, *, streams: int = 1, versions: str = "log") -> tuple[int, ...]:
        topic = self.node.add_topic(name, streams=streams, versions=versions)
        self.model.update({stream: {} for stream in topic.streams})
        return topic.streams

    # -- start and stop ------------------------------------------------------------------

    def vfs(self) -> Vfs:
        return WatchedVfs(self.disk.vfs(), self.watcher) if self.watcher else self.disk.vfs()

    def open(self) -> None:
        self.node = open_node_store(self.vfs(), PATH, StoreOptions(self.file_bytes))

    def close(self) -> None:
        """A clean end: the manifest notes how far the WAL is durable."""
        self.node.save_manifest()
        self.node.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def kill(self) -> None:
        """The process dies and starts again; the machine stays up."""
        self.node.close()
        self.disk = self.disk.copy()
        self.open()

    def power_loss(self, kept: Choice | Sequence[Choice] = Choice.LOST) -> None:
        """The machine goes down and starts again; what was not synced may be gone."""
        self.lose(kept)
        self.open()

    def lose(self, kept: Choice | Sequence[Choice] = Choice.LOST) -> None:
        self.node.close()
        self.disk = self.disk.after_crash(kept)

    # -- writing ---------------------------------------------------------------------------

    def store(self, stream: int = 1) -> StreamStore:
        return self.node.streams[stream]

    def batch(
        self,
        entries: Sequence[Entry],
        *,
        stream: int = 1,
        llsns: Sequence[int] | None = None,
        term: int = 0,
        producer: int = 0,
        sequence: int = 0,
    ) -> BatchWrite:
        """A batch at the end of its stream, or at these LLSNs."""
        store = self.store(stream)
        places = llsns or range(store.end_llsn, store.end_llsn + len(entries))
        body = encode_entries(entries, llsns=llsns)
        header = seal_batch(
            body,
            stream=stream,
            term=term or store.term,
            first_llsn=places[0],
            producer=producer,
            sequence=sequence,
        )
        stored = StoredBatch(places[0], places[-1] + 1, header + body.data)
        return BatchWrite(stream, stored, len(entries), producer, sequence)

    def write(
        self,
        entries: Sequence[Entry],
        *,
        stream: int = 1,
        cut: bool = True,
        llsns: Sequence[int] | None = None,
        term: int = 0,
        producer: int = 0,
        sequence: int = 0,
    ) -> None:
        """One frame with one batch and, unless told otherwise, the cut that orders it."""
        batch = self.batch(
            entries, stream=stream, llsns=llsns, term=term, producer=producer, sequence=sequence
        )
        self.frame(batch, cut=(stream,) if cut else ())

    def frame(self, *batches: BatchWrite, cut: Sequence[int] = ()) -> None:
        """Several batches and a cut of some streams, durable together."""
        self.node.reserve(batches)
        ends = {stream: store.end_llsn for stream, store in self.node.streams.items()}
        for batch in batches:
            ends[batch.stream] = batch.stored.end_llsn
        decided = self._decide(cut, ends) if cut else None
        self.node.write(FrameWrite(batches=batches, cut=decided))
        for batch in batches:
            view = batch.stored.view()
            placed = zip(view.llsns(), view.entries(), strict=True)
            self.model[batch.stream].update({llsn: (0, entry) for llsn, entry in placed})
        if decided is not None:
            self._note_cut(decided)

    def cut(self, *streams: int) -> None:
        """Order all that is stored in these streams; a cut of nothing is an empty commit."""
        self.frame(cut=streams)

    def _decide(self, streams: Sequence[int], ends: dict[int, int]) -> CutDecided:
        stores = self.node.streams
        version = max(store.context.version for store in stores.values()) + 1
        high: dict[int, int] = {}
        for store in stores.values():
            known = high.get(store.topic, 0)
            high[store.topic] = max(known, store.context.high_watermark)
        begins: dict[int, int] = {}
        for stream in streams:
            store = stores[stream]
            length = ends[stream] - store.ordered_end
            begins[stream] = high[store.topic] + 1 if length else store.context.glsn_end
            high[store.topic] += length
        return CutDecided(
            Version(version),
            tuple(
                StreamCommit(
                    TopicId(stores[stream].topic),
                    StreamId(stream),
                    Glsn(high[stores[stream].topic]),
                    Glsn(begins[stream]),
                    Llsn(stores[stream].ordered_end),
                    ends[stream] - stores[stream].ordered_end,
                )
                for stream in streams
            ),
        )

    def _note_cut(self, cut: CutDecided) -> None:
        for commit in cut.commits:
            model = self.model[commit.stream]
            for offset in range(commit.length):
                llsn = commit.llsn_begin + offset
                if llsn in model:
                    model[llsn] = (commit.glsn_begin + offset, model[llsn][1])

    def trim(self, llsn_end: int, *, stream: int = 1) -> None:
        store = self.store(stream)
        glsn_end = store.glsn_of(llsn_end) or store.context.glsn_end
        self.node.write(FrameWrite(trims=[(stream, Trim(store.topic, glsn_end, llsn_end))]))

    def truncate(self, llsn_end: int, *, stream: int = 1, term: int = 2) -> None:
        self.node.write(FrameWrite(truncates=[(stream, Truncate(llsn_end, term))]))
        model = self.model[stream]
        for llsn in [llsn for llsn in model if llsn >= llsn_end]:
            del model[llsn]

    def boundary(self, version: int, *, stream: int = 1) -> None:
        self.node.write(FrameWrite(boundaries=[(stream, version)]))

    # -- files -------------------------------------------------------------------------------

    def roll(self) -> None:
        self.node.wal.roll()

    def flush(self) -> None:
        """Roll the WAL and move everything that is ordered into segments."""
        self.roll()
        while self.node.flush_oldest():
            pass

    def segment(self, entries: Sequence[Entry], *, stream: int = 1) -> int:
        """Write entries into a segment of their own; returns its number."""
        self.write(entries, stream=stream)
        self.flush()
        return self.store(stream).view.newest_segment

    def snapshot(self, stream: int = 1) -> SnapshotState:
        return self.store(stream).take_snapshot()

    def minor(self, stream: int = 1) -> CompactionResult:
        result = compact_minor(self.store(stream))
        self.store(stream).sweep()
        return result

    def major(
        self, stream: int = 1, *, full: bool = False, bytes_max: int = SEGMENT_BYTES_MAX
    ) -> CompactionResult:
        result = compact_major(self.store(stream), full=full, bytes_max=bytes_max)
        self.store(stream).sweep()
        return result

    def segments(self, stream: int = 1) -> tuple[Segment, ...]:
        return self.store(stream).view.segments

    def numbers(self, stream: int = 1) -> list[int]:
        return [segment.number for segment in self.segments(stream)]

    def directory(self, stream: int = 1) -> str:
        return self.store(stream).place.directory

    def names(self, stream: int = 1, suffix: str = "") -> list[str]:
        """Names in a stream's directory, as they are on the disk."""
        found = self.disk.vfs().list_dir(self.directory(stream))
        return [name for name in found if name.endswith(suffix)]

    # -- what must hold ------------------------------------------------------------------------

    def read(self, stream: int = 1) -> Numbered:
        """All that the store gives, from the trim on."""
        store = self.store(stream)
        found: Numbered = {}
        for piece in store.read(store.trim_llsn_end, 1 << 62):
            entries = piece.batch.entries(piece.begin, piece.end)
            for llsn, entry in zip(piece.llsns(), entries, strict=True):
                assert llsn not in found, f"LLSN {llsn} was read twice"
                found[llsn] = (piece.runs.glsn_of(llsn), entry)
        assert list(found) == sorted(found)
        return found

    def get(self, key: str, *, stream: int = 1, storage: int = 0) -> bytes | None:
        """The value of a key as the store finds it."""
        store = self.store(stream)
        hashed = hash_key(storage, key.encode(), store.place.hash_seed)
        found = store.find_key(storage, key.encode(), hashed)
        if found is None or found.kind is not Kind.PUT:
            return None
        return self.read(stream)[found.llsn][1].value

    def untrimmed(self, stream: int = 1) -> Numbered:
        begin = self.store(stream).trim_llsn_end
        return {llsn: item for llsn, item in self.model[stream].items() if llsn >= begin}

    def assert_whole(self) -> None:
        """Every entry that was written and not trimmed is there and equal."""
        for stream in self.model:
            assert self.read(stream) == self.untrimmed(stream)

    def assert_live(self) -> None:
        """What is there equals what was written; all that is live is there; keys read right."""
        for stream in self.model:
            found, model = self.read(stream), self.untrimmed(stream)
            assert {llsn: model[llsn] for llsn in found} == found
            assert self._needed(stream) <= found.keys()
            for storage, key in self._keys(stream):
                expected = self.expected(key, stream=stream, storage=storage)
                assert self.get(key, stream=stream, storage=storage) == expected, key

    def expected(self, key: str, *, stream: int = 1, storage: int = 0) -> bytes | None:
        """The value of a key as the model says: the greatest write that nothing deleted."""
        wanted = (storage, key.encode())
        best = (0, 0)
        found: bytes | None = None
        for llsn, (glsn, entry) in self.untrimmed(stream).items():
            place = (entry.write_version or glsn, llsn)
            is_write = entry.kind in (Kind.PUT, Kind.DELETE)
            kills = entry.kind is Kind.DELETE_STORAGE and entry.storage_id == storage
            concerns = kills or (is_write and (entry.storage_id, entry.key) == wanted)
            if concerns and glsn and place > best:
                best, found = place, entry.value if entry.kind is Kind.PUT else None
        return found

    def _keys(self, stream: int) -> set[tuple[int, str]]:
        entries = (entry for _, entry in self.model[stream].values())
        return {(entry.storage_id, entry.key.decode()) for entry in entries if entry.key}

    def _needed(self, stream: int) -> set[int]:
        """LLSNs that nothing may take: all after the snapshot, plain values, what keys show."""
        model = self.untrimmed(stream)
        index = self.store(stream).snapshot.index
        needed = {llsn for llsn in model if llsn > index}
        needed |= {llsn for llsn, (_, entry) in model.items() if entry.kind is Kind.APPEND}
        for storage, key in self._keys(stream):
            if self.expected(key, stream=stream, storage=storage) is not None:
                same = (storage, key.encode())
                needed.add(
                    max(
                        (entry.write_version or glsn, llsn)
                        for llsn, (glsn, entry) in model.items()
                        if entry.kind is Kind.PUT and (entry.storage_id, entry.key) == same and glsn
                    )[1]
                )
        return needed
