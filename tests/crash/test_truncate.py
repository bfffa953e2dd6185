"""Cutting off unordered entries, and writing others in their place, survives every crash.

Only replication does this, so the steps are those of one node's store.  After a crash the state is
that after the last acknowledged step, or that after the step which was under way: entries,
their GLSNs and the term, all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.crash.repeatable import CHANCE
from tests.crash.scribe import OPTIONS, PATH, Scribe, open_log
from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.formats.batch import encode_values, seal_batch
from tidelog.formats.wal_payloads import Truncate
from tidelog.storage.frame_write import BatchWrite, FrameWrite
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.node_store import NodeStore
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import Vfs
from tidelog.testing.crash import Journal, enumerate_crashes
from tidelog.testing.disk import SimDisk, SimVfs
from tidelog.types import Glsn, Llsn, StreamId, TopicId, Version

OUTCOMES_MAX = 64
STREAM = 1


@dataclass(frozen=True, slots=True)
class State:
    """What a store must hold: values from LLSN 1 on, how many are ordered, and the term.

    One stream alone gives every entry a GLSN that equals its LLSN.
    """

    values: tuple[bytes, ...]
    ordered: int
    term: int


@dataclass(frozen=True, slots=True)
class Step:
    act: Callable[[NodeStore], None]
    after: State


def write(*values: bytes, ordered: int | None = None) -> Callable[[NodeStore], None]:
    """Store values; with ``ordered``, a cut in the same frame orders all up to that LLSN."""

    def act(node: NodeStore) -> None:
        store = node.streams[STREAM]
        body = encode_values(values, timestamp_us=1)
        begin = store.end_llsn
        header = seal_batch(body, stream=STREAM, term=store.term, first_llsn=begin)
        stored = StoredBatch(begin, begin + len(values), header + body.data)
        cut = None if ordered is None else cut_up_to(store, ordered)
        node.reserve([])
        node.write(FrameWrite([BatchWrite(STREAM, stored, len(values))], cut))

    return act


def cut_up_to(store: StreamStore, llsn: int) -> CutDecided:
    begin = store.ordered_end
    commit = StreamCommit(
        topic=TopicId(store.topic),
        stream=StreamId(STREAM),
        high_watermark=Glsn(llsn),
        glsn_begin=Glsn(begin),
        llsn_begin=Llsn(begin),
        length=llsn + 1 - begin,
    )
    return CutDecided(Version(store.context.version + 1), (commit,))


def truncate(llsn_end: int, term: int) -> Callable[[NodeStore], None]:
    return lambda node: node.write(FrameWrite(truncates=[(STREAM, Truncate(llsn_end, term))]))


def flush(node: NodeStore) -> None:
    assert node.flush_oldest()


OLD = (b"1", b"2", b"3")
REPLACED = (*OLD, b"4", b"five", b"six")
STEPS = (
    Step(write(b"4", b"5"), State((*OLD, b"4", b"5"), ordered=3, term=1)),
    Step(write(b"6"), State((*OLD, b"4", b"5", b"6"), ordered=3, term=1)),
    # It cuts the batch of 4 and 5 in two.
    Step(truncate(5, 2), State((*OLD, b"4"), ordered=3, term=2)),
    Step(write(b"five", b"six", ordered=5), State(REPLACED, ordered=5, term=2)),
    Step(lambda node: node.wal.roll(), State(REPLACED, ordered=5, term=2)),
    Step(write(b"7", ordered=6), State((*REPLACED, b"7"), ordered=6, term=2)),
    Step(flush, State((*REPLACED, b"7"), ordered=6, term=2)),
    Step(truncate(7, 3), State(REPLACED, ordered=6, term=3)),
    Step(write(b"seven", b"8", ordered=8), State((*REPLACED, b"seven", b"8"), 8, 3)),
    Step(NodeStore.save_manifest, State((*REPLACED, b"seven", b"8"), 8, 3)),
)
FIRST = State(OLD, ordered=3, term=1)


def open_store(vfs: Vfs) -> NodeStore:
    return open_node_store(vfs, PATH, StoreOptions(wal_file_bytes=OPTIONS.wal_file_bytes))


def prepare(vfs: SimVfs) -> None:
    CHANCE.begin("prepare")
    with open_log(vfs) as log:
        Scribe(log, Journal()).append(*OLD)


def run(vfs: SimVfs, journal: Journal) -> None:
    CHANCE.begin("run")
    node = open_store(vfs)
    for number, step in enumerate(STEPS):
        journal.attempted.append(number)
        step.act(node)
        journal.acknowledged.append(number)
        assert state_of(node) == step.after


def state_of(node: NodeStore) -> State:
    store = node.streams[STREAM]
    found: list[bytes] = []
    for piece in store.read(1, store.end_llsn):
        assert list(piece.llsns()) == list(range(len(found) + 1, len(found) + 1 + piece.end))
        found += [entry.value for entry in piece.batch.entries(piece.begin, piece.end)]
    glsns = [store.glsn_of(llsn) for llsn in range(1, len(found) + 1)]
    ordered = store.ordered_end - 1
    assert glsns == [*range(1, ordered + 1), *[0] * (len(found) - ordered)]
    assert store.end_llsn == len(found) + 1
    return State(tuple(found), ordered, store.term)


def check(vfs: SimVfs, journal: Journal) -> None:
    CHANCE.begin("check")
    node = open_store(vfs)
    states = [FIRST, *(step.after for step in STEPS)]
    done = len(journal.acknowledged)
    found = state_of(node)
    assert found in (states[done], states[min(done + 1, len(STEPS))])
    node.save_manifest()
    node.close()
    files = vfs.disk.files()
    node = open_store(vfs)
    assert state_of(node) == found
    node.close()
    assert vfs.disk.files() == files


def test_a_crash_while_a_suffix_is_replaced_leaves_one_of_the_two() -> None:
    report = enumerate_crashes(run, check, prepare=prepare, outcomes_max=OUTCOMES_MAX)
    assert report.points > 2 * len(STEPS)
    assert report.bounded_points == 0


def test_a_log_goes_on_behind_a_replaced_suffix() -> None:
    vfs = SimDisk().vfs()
    prepare(vfs)
    run(vfs, Journal())
    with open_log(vfs.disk.after_crash().vfs()) as log:
        assert [record.value for record in log.read()] == [*REPLACED, b"seven", b"8"]
        assert log.append(b"9").glsn == 9
