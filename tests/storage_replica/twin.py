"""A real disk of a storage node and its model, changed by the same writes and held together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from tests.crash.repeatable import CHANCE
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.output import Filled, HardState, Store, Write
from tidelog.core.replica.state import Stored, flaw_in_stored
from tidelog.formats.batch import decode_batch, encode_entries, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.manifest import TopicManifest
from tidelog.limits import KIB, MIB
from tidelog.storage.compaction import compact_major, compact_minor
from tidelog.storage.replica_disk import ReplicaDisk
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import Vfs
from tidelog.testing.crash import Journal
from tidelog.testing.disk import Choice, SimDisk
from tidelog.testing.stream_image import StreamImage
from tidelog.types import Llsn, ProducerId, StreamId, Term, TopicId

PATH = "/node"
CLUSTER = bytes(range(16))
TOPIC = TopicId(1)
STREAM = StreamId(1)
FILE_BYTES = 64 * KIB

Numbered = dict[int, tuple[int, int, Entry]]
"""LLSN → (term, GLSN, entry); a GLSN of 0 stands for an entry that is not ordered yet."""


def topic(streams: Sequence[int] = (1, 2, 3), versions: str = "log") -> TopicManifest:
    return TopicManifest(TOPIC, "orders", tuple(streams), len(streams), versions)


def open_disk(vfs: Vfs, *, versions: str = "log", phase: str = "open") -> ReplicaDisk:
    CHANCE.begin(phase)
    disk = ReplicaDisk.open(vfs, PATH, cluster_id=CLUSTER, wal_file_bytes=FILE_BYTES)
    disk.set_topics([topic(versions=versions)])
    return disk


def data_of(entries: Sequence[Entry]) -> bytes:
    """A sealed batch with a place that is not its own."""
    body = encode_entries(entries)
    return seal_batch(body, stream=99, term=77, first_llsn=12_345) + bytes(body.data)


def batch(term: int, llsn: int, *entries: Entry, producer: int = 0, sequence: int = 0) -> Batch:
    count = len(entries)
    place = (Term(term), Llsn(llsn), count, data_of(entries), ProducerId(producer), sequence)
    return Batch(*place)


def values(term: int, llsn: int, *texts: str, producer: int = 0, sequence: int = 0) -> Batch:
    entries = [Entry(Kind.APPEND, text.encode()) for text in texts]
    return batch(term, llsn, *entries, producer=producer, sequence=sequence)


def control(term: int, llsn: int) -> Batch:
    return Batch(Term(term), Llsn(llsn), 1, b"", is_control=True)


def entries_of(found: Sequence[Batch]) -> list[tuple[int, int, Entry]]:
    """(LLSN, term, entry) of batches as replicas exchange them."""
    rows: list[tuple[int, int, Entry]] = []
    for each in found:
        if each.is_control:
            rows.append((each.llsn_begin, each.term, Entry(Kind.CONTROL)))
            continue
        view = decode_batch(each.data)
        assert view.count == each.count, "a batch brings another number of entries"
        rows += [
            (each.llsn_begin + place, each.term, entry)
            for place, entry in enumerate(view.entries())
        ]
    return rows


def all_batches(store: Store, begin: int, bytes_max: int = MIB) -> list[Batch]:
    """What a replica reads from ``begin`` on, answer by answer."""
    found: list[Batch] = []
    place = Llsn(begin)
    while True:
        answer = store.batches(place, bytes_max)
        assert answer is not None, "nothing is fetched by another thread here"
        if not answer:
            return found
        assert answer[0].llsn_begin >= place
        found.extend(answer)
        place = answer[-1].llsn_end


@dataclass(slots=True)
class Twin:
    """The disk under test, and the model of each of its streams."""

    sim: SimDisk = field(default_factory=SimDisk)
    versions: str = "log"
    disk: ReplicaDisk = field(init=False)
    seen: dict[StreamId, StreamImage] = field(default_factory=dict)
    """The model as readers see it, and below as a crash leaves it."""
    durable: dict[StreamId, StreamImage] = field(default_factory=dict)
    history: list[tuple[StreamId, Write]] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)
    vfs: Vfs | None = None
    """If given, what the disk is opened on."""
    lives: int = 0
    _begun: list[tuple[StreamId, Write]] = field(default_factory=list)
    _sequence: int = 0

    def __post_init__(self) -> None:
        for stream, write in self.history:
            self.image(stream).apply(write)
            self.durable.setdefault(stream, StreamImage()).apply(write)
        self._open()

    # --- writing ---

    def image(self, stream: StreamId = STREAM) -> StreamImage:
        return self.seen.setdefault(stream, StreamImage())

    def write(
        self,
        stream: StreamId = STREAM,
        *,
        drop: bool = False,
        wipe: bool = False,
        hard_state: HardState | None = None,
        truncate_to: int | None = None,
        batches: Sequence[Batch] = (),
        sparse: bool = False,
        runs: Sequence[GlsnRun] = (),
        context: CommitContext | None = None,
        state: bytes | None = None,
        filled: Filled | None = None,
        trim_to: int | None = None,
    ) -> Write:
        self._sequence += 1
        write = Write(
            self._sequence,
            drop,
            wipe,
            hard_state,
            None if truncate_to is None else Llsn(truncate_to),
            tuple(batches),
            sparse,
            tuple(runs),
            context,
            state,
            filled,
            None if trim_to is None else Llsn(trim_to),
        )
        self.begin(stream, write)
        return write

    def begin(self, stream: StreamId, write: Write) -> None:
        self.image(stream).apply(write)
        self.journal.attempted.append((stream, write))
        self.history.append((stream, write))
        self.disk.begin(stream, TOPIC, write)
        self._begun.append((stream, write))

    def sync(self) -> None:
        while self.disk.has_begun:
            self.disk.sync()
        for stream, write in self._begun:
            self.durable.setdefault(stream, StreamImage()).apply(write)
        self._begun.clear()
        self.journal.acknowledged.append(len(self.journal.attempted))

    def become_member(self, stream: StreamId = STREAM, term: int = 1) -> None:
        """The first hard state of an empty, complete replica."""
        self.write(stream, hard_state=HardState(Term(term), is_complete=True))

    def append(self, *texts: str, stream: StreamId = STREAM, term: int = 1, **more: int) -> None:
        """A batch at the end."""
        self.write(stream, batches=[values(term, self.image(stream).end, *texts, **more)])

    def order(self, end: int | None = None, *, stream: StreamId = STREAM, gap: int = 0) -> None:
        """Order what is there, up to ``end``; ``gap`` GLSNs go to other streams before."""
        image = self.image(stream)
        context = image.context
        length = (image.end if end is None else end) - context.llsn_end
        glsn = context.high_watermark + 1 + gap
        version = context.version + 1
        following = CommitContext(version, glsn + length - 1, glsn, context.llsn_end, length)
        runs = [GlsnRun(context.llsn_end, glsn, length)] if length else []
        if not length:
            following = replace(
                context,
                version=version,
                length=0,
                llsn_begin=context.llsn_end,
                glsn_begin=context.glsn_end,
            )
        self.write(stream, runs=runs, context=following)

    # --- files ---

    def store(self, stream: StreamId = STREAM) -> StreamStore:
        return self.disk.node.streams[stream]

    def flush(self) -> None:
        """Move all that is durable and ordered into segments."""
        self.sync()
        self.disk.roll()
        while self.disk.node.flush_oldest():
            pass

    def snapshot(self, stream: StreamId = STREAM) -> None:
        self.store(stream).take_snapshot()
        compact_minor(self.store(stream))
        self.store(stream).sweep()

    def compact(self, stream: StreamId = STREAM) -> None:
        self.snapshot(stream)
        compact_major(self.store(stream), full=True)
        self.store(stream).sweep()

    # --- start and stop ---

    def restart(self) -> None:
        """A clean end: all that was begun is durable."""
        self.sync()
        self.disk.close()
        self._open()

    def crash(self, kept: Choice = Choice.LOST) -> None:
        """The machine goes down; what was begun and not synced is gone."""
        self.disk.node.close()
        self.sim = self.sim.after_crash(kept)
        self._open()
        self._begun.clear()
        self.seen = {stream: image.copy() for stream, image in self.durable.items()}

    def _open(self) -> None:
        self.lives += 1
        self.disk = open_disk(
            self.vfs or self.sim.vfs(), versions=self.versions, phase=f"life {self.lives}"
        )

    # --- what must hold ---

    def read(self, stream: StreamId = STREAM) -> Numbered:
        """All that the stream gives to readers of entries, with their GLSNs."""
        store = self.store(stream)
        terms = self.image(stream)
        found: Numbered = {}
        for piece in store.read(store.trim_llsn_end, 1 << 62):
            entries = piece.batch.entries(piece.begin, piece.end)
            for llsn, entry in zip(piece.llsns(), entries, strict=True):
                assert llsn not in found, f"LLSN {llsn} was read twice"
                assert piece.batch.term == terms.term_at(llsn), f"LLSN {llsn} has a wrong term"
                found[llsn] = (piece.batch.term, piece.runs.glsn_of(llsn), entry)
        return found

    def check_seen(self) -> None:
        """Whoever reads finds exactly what was begun."""
        check_seen(self.disk, self.seen)

    def check_stored(self) -> None:
        """A start finds exactly what the model has, apart from what compaction did."""
        check_stored(self.disk, self.seen)

    def check(self) -> None:
        self.check_stored()
        self.check_seen()


def check_seen(disk: ReplicaDisk, images: Mapping[StreamId, StreamImage]) -> None:
    for stream, image in images.items():
        reader = disk.reader(stream)
        first, end = image.first, image.end
        expected = entries_of(all_batches(image, first))
        assert entries_of(all_batches(reader, first)) == expected, f"stream {stream}"
        if first < end:
            assert flat(reader.runs(first, end)) == flat(image.runs(first, end))


def check_stored(disk: ReplicaDisk, images: Mapping[StreamId, StreamImage]) -> None:
    assert disk.streams() == tuple(
        sorted(s for s, image in images.items() if image.hard_state is not None)
    )
    for stream, image in images.items():
        found, expected = disk.stored(stream), image.stored()
        assert without_index(found) == without_index(expected), f"stream {stream}"
        if found.hard_state is not None and found.hard_state.is_complete:
            assert flaw_in_stored(found) is None


def without_index(stored: Stored) -> Stored:
    return replace(stored, snapshot_index=Llsn(0))


def flat(runs: Sequence[GlsnRun] | None) -> dict[int, int]:
    """LLSN → GLSN."""
    assert runs is not None
    return {
        run.llsn_begin + place: run.glsn_begin + place
        for run in runs
        for place in range(run.length)
    }
