"""The small parts of a storage node, each by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from tests.runtime.storage_node.image_disk import ImageDisk
from tests.runtime.storage_node.scripted import OTHER, SECONDS, STREAM, TOPIC, scene
from tidelog.core.compaction.plan import Strategy
from tidelog.core.metadata.view import MetadataView
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.options import Appended
from tidelog.core.replica.output import HardState, Output, Write
from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import BadOption, DiskFull, LogError, StorageFailed
from tidelog.interface.records import Ack
from tidelog.invariants import InvariantViolation
from tidelog.runtime.storage_node import syncs
from tidelog.runtime.storage_node.appends import Appends
from tidelog.runtime.storage_node.chores import Chores
from tidelog.runtime.storage_node.counters import Counters, Histogram
from tidelog.runtime.storage_node.guarded_reader import GuardedReader
from tidelog.runtime.storage_node.options import StorageNodeOptions
from tidelog.runtime.storage_node.readable import Snapshot, readable_up_to
from tidelog.runtime.storage_node.retention import Retain, Retention
from tidelog.runtime.storage_node.snapshot_hold import SnapshotHold
from tidelog.runtime.storage_node.syncs import Syncs
from tidelog.runtime.storage_node.turns import Turns
from tidelog.types import FIRST_LLSN, Glsn, Llsn, StreamId, Term, Version

# --- what may be shown ---


def context(version: int, watermark: int, glsn: int, llsn: int, length: int) -> CommitContext:
    return CommitContext(version, watermark, glsn, llsn, length)


def test_without_word_of_later_cuts_a_replica_shows_what_its_own_context_covers() -> None:
    assert readable_up_to(TOPIC, STREAM, context(3, 20, 11, 6, 5), ()) == 20


def test_a_replica_that_misses_nothing_shows_all_that_other_streams_were_given() -> None:
    seen = Snapshot({TOPIC: 90}, {STREAM: Llsn(11)})
    assert readable_up_to(TOPIC, STREAM, context(3, 20, 11, 6, 5), (seen,)) == 90


def test_a_replica_that_lacks_one_entry_shows_no_more_than_before() -> None:
    seen = Snapshot({TOPIC: 90}, {STREAM: Llsn(12)})
    assert readable_up_to(TOPIC, STREAM, context(3, 20, 11, 6, 5), (seen,)) == 20


def test_word_of_other_streams_says_nothing_about_this_one() -> None:
    seen = Snapshot({TOPIC: 90}, {OTHER: Llsn(1)})
    assert readable_up_to(TOPIC, STREAM, context(3, 20, 11, 6, 5), (seen,)) == 20


def test_an_old_snapshot_never_hides_what_is_known() -> None:
    seen = Snapshot({TOPIC: 5}, {STREAM: Llsn(1)})
    assert readable_up_to(TOPIC, STREAM, context(3, 20, 11, 6, 5), (seen,)) == 20


def test_a_stream_without_entries_shows_all_of_its_topic() -> None:
    seen = Snapshot({TOPIC: 90}, {STREAM: FIRST_LLSN})
    assert readable_up_to(TOPIC, STREAM, NONE, (seen,)) == 90


# --- turns ---


@scene
async def test_all_that_comes_in_one_iteration_is_one_turn() -> None:
    ends: list[list[int]] = []
    words: list[int] = []
    failed: list[BaseException] = []
    turns = Turns(lambda: ends.append(list(words)), failed.append)
    for number in range(3):
        turns.put(partial(words.append, number))
    assert not ends, "not before the iteration is over"
    await asyncio.sleep(0)
    assert ends == [[0, 1, 2]]
    turns.wake()
    await asyncio.sleep(0)
    assert ends == [[0, 1, 2], [0, 1, 2]]


@scene
async def test_after_a_broken_invariant_no_turn_is_taken() -> None:
    ends: list[int] = []
    failed: list[BaseException] = []

    def contradict() -> None:
        raise InvariantViolation("it")

    turns = Turns(lambda: ends.append(1), failed.append)
    turns.put(contradict)
    await asyncio.sleep(0)
    turns.put(lambda: ends.append(2))
    await asyncio.sleep(0)
    assert (ends, [type(error) for error in failed]) == ([], [InvariantViolation])


# --- appends ---


def output(*, stored: int | None = None, ordered: int | None = None) -> Output:
    return Output(
        stored=None if stored is None else Llsn(stored),
        ordered=None if ordered is None else Llsn(ordered),
    )


@scene
async def test_glsns_of_appends_are_those_of_the_runs_that_were_written() -> None:
    appends = Appends(Counters(), lambda _stream, _llsn: 0)
    appends.add_stream(STREAM, FIRST_LLSN)
    first = appends.took(STREAM, Appended(Llsn(1), 2, False), Ack.ORDERED)
    second = appends.took(STREAM, Appended(Llsn(3), 1, False), Ack.ORDERED)
    appends.note_runs(STREAM, [GlsnRun(Llsn(1), 10, 2), GlsnRun(Llsn(3), 20, 1)])
    appends.progress(STREAM, output(ordered=3))
    assert ((await first).glsn, second.done()) == (10, False)
    appends.progress(STREAM, output(ordered=4))
    assert (await second).glsn == 20
    assert appends.waiting == 0


@scene
async def test_the_place_of_an_append_that_was_ordered_long_ago_is_asked_of_the_disk() -> None:
    appends = Appends(Counters(), lambda _stream, llsn: 1000 + llsn)
    appends.add_stream(STREAM, Llsn(50))
    placed = await appends.took(STREAM, Appended(Llsn(7), 1, True), Ack.ORDERED)
    assert (placed.glsn, placed.duplicate) == (1007, True)


@scene
async def test_a_deposed_leader_forgets_how_far_it_was() -> None:
    appends = Appends(Counters(), lambda _stream, _llsn: 0)
    appends.add_stream(STREAM, FIRST_LLSN)
    appends.progress(STREAM, output(stored=9))
    appends.progress(STREAM, Output(deposed=True))
    waiting = appends.took(STREAM, Appended(Llsn(5), 1, False), Ack.STORED)
    assert not waiting.done(), "the next leadership has not said so"
    appends.progress(STREAM, output(stored=6))
    assert (await waiting).llsn == 5


# --- the disk thread ---


def write(sequence: int, llsn: int) -> Write:
    batch = Batch(Term(1), Llsn(llsn), 1, b"x")
    hard_state = HardState(Term(1), is_complete=True)
    return Write(sequence=sequence, hard_state=hard_state, batches=(batch,))


class Watcher:
    """A disk thread over a disk in memory, and what it told."""

    def __init__(
        self, wait_for_room: Callable[[], None] = lambda: None, disk: ImageDisk | None = None
    ) -> None:
        self.disk = disk or ImageDisk()
        self.durable: list[int] = []
        self.failures: list[LogError] = []
        self.thread = Syncs(
            self.disk,
            wait_for_room=wait_for_room,
            on_durable=self.durable.append,
            on_failed=self.failures.append,
        )

    def begin(self, sequence: int) -> None:
        self.disk.begin(STREAM, TOPIC, write(sequence, sequence))
        self.thread.kick()

    def has_synced(self, number: int) -> bool:
        return self.durable[-1:] == [number]

    async def until(self, holds: Callable[[], bool]) -> None:
        await _until(holds)


def order(sequence: int, llsn_end: int) -> Write:
    """What a cut gives to entries that are durable."""
    context = CommitContext(sequence, llsn_end - 1, llsn_end - 1, llsn_end - 1, 1)
    run = GlsnRun(Llsn(llsn_end - 1), Glsn(llsn_end - 1), 1)
    return Write(sequence=sequence, runs=(run,), context=context)


@scene
async def test_what_can_wait_becomes_durable_with_what_cannot() -> None:
    watcher = Watcher()
    watcher.begin(1)
    await watcher.until(partial(watcher.has_synced, 1))
    watcher.disk.begin(STREAM, TOPIC, order(2, 2))
    watcher.thread.kick()
    await asyncio.sleep(0.01)
    assert watcher.durable == [1]
    watcher.disk.begin(STREAM, TOPIC, write(3, 2))
    watcher.thread.kick()
    await watcher.until(partial(watcher.has_synced, 3))
    assert watcher.disk.groups == [1, 2], "one sync for both"
    await watcher.thread.stop()


@scene
async def test_what_can_wait_is_synced_when_somebody_asks_be_it_during_a_sync() -> None:
    watcher = Watcher()
    watcher.disk.gate.clear()
    watcher.begin(1)
    await watcher.until(lambda: watcher.disk.is_held)
    watcher.disk.begin(STREAM, TOPIC, order(2, 2))
    watcher.thread.flush()
    watcher.disk.gate.set()
    await watcher.until(partial(watcher.has_synced, 2))
    assert watcher.disk.groups == [1, 1]
    await watcher.thread.stop()


@scene
async def test_what_can_wait_goes_with_a_wal_file_that_is_left_and_with_the_last_sync() -> None:
    watcher = Watcher()
    watcher.begin(1)
    await watcher.until(partial(watcher.has_synced, 1))
    watcher.disk.begin(STREAM, TOPIC, order(2, 2))
    await watcher.thread.roll()
    await watcher.until(partial(watcher.has_synced, 2))
    watcher.disk.begin(STREAM, TOPIC, order(3, 3))
    await watcher.thread.stop()
    assert watcher.disk.groups == [1, 1, 1]


@scene
async def test_what_the_disk_had_no_room_for_is_written_when_there_is() -> None:
    watcher = Watcher()
    watcher.disk.error = DiskFull("no room")
    watcher.begin(1)
    await watcher.until(lambda: watcher.thread.is_full)
    watcher.disk.error = None
    watcher.thread.kick()
    assert watcher.durable == [], "only a retry looks for room again"
    watcher.thread.retry()
    await watcher.until(lambda: watcher.durable == [1] and not watcher.thread.is_full)
    await watcher.thread.stop()


@scene
async def test_nothing_is_synced_after_a_failure() -> None:
    watcher = Watcher()
    watcher.disk.error = StorageFailed("it")
    watcher.begin(1)
    await watcher.until(lambda: len(watcher.failures) == 1)
    watcher.disk.error = None
    watcher.begin(2)
    watcher.thread.retry()
    await watcher.thread.stop()
    assert (watcher.durable, len(watcher.failures)) == ([], 1)


@scene
async def test_syncs_wait_while_segments_are_written_too_slowly() -> None:
    room = threading.Event()
    watcher = Watcher(wait_for_room=lambda: _wait(room))
    watcher.begin(1)
    await asyncio.sleep(0.01)
    assert watcher.durable == []
    room.set()
    await watcher.until(lambda: watcher.durable == [1])
    await watcher.thread.stop()


def _wait(event: threading.Event) -> None:
    event.wait()


class QuickDisk(ImageDisk):
    """All that it has to write is little; it remembers who wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: list[int] = []

    def sync_quickly(self) -> int | None:
        return self.sync()

    def sync(self) -> int:
        self.writers.append(threading.get_ident())
        return super().sync()


class SlowlyRollingDisk(QuickDisk):
    """Makes a new WAL file when it is told to."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def roll(self) -> None:
        self._gate.wait(SECONDS)


@scene
async def test_a_small_group_is_synced_without_a_thread() -> None:
    watcher = Watcher(disk=QuickDisk())
    watcher.begin(1)
    watcher.begin(2)
    await watcher.until(lambda: watcher.durable == [2])
    assert watcher.disk.groups == [2], "both came before the turn ended"
    assert watcher.thread.inline == 1
    await watcher.thread.stop()


@scene
async def test_after_a_slow_sync_the_event_loop_waits_for_none() -> None:
    disk = QuickDisk()
    watcher = Watcher(disk=disk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(syncs, "QUICK_SECONDS", 0.0)
        for number in (1, 2):
            watcher.begin(number)
            await watcher.until(partial(watcher.has_synced, number))
    here = threading.get_ident()
    assert [writer == here for writer in disk.writers] == [True, False]
    await watcher.thread.stop()


@scene
async def test_the_event_loop_does_not_write_while_a_wal_file_is_begun() -> None:
    """K4: the thread makes the new file; two writers would tear the WAL."""
    gate = threading.Event()
    disk = SlowlyRollingDisk(gate)
    watcher = Watcher(disk=disk)
    rolling = asyncio.ensure_future(watcher.thread.roll())
    await asyncio.sleep(0)
    watcher.begin(1)
    await asyncio.sleep(0.01)
    assert watcher.durable == []
    gate.set()
    await rolling
    await watcher.until(lambda: watcher.durable == [1])
    assert disk.writers != [threading.get_ident()]
    await watcher.thread.stop()


@scene
async def test_a_quick_sync_that_fails_ends_it_all() -> None:
    watcher = Watcher(disk=QuickDisk())
    watcher.disk.error = StorageFailed("it")
    watcher.begin(1)
    await watcher.until(lambda: len(watcher.failures) == 1)
    watcher.begin(2)
    await watcher.thread.stop()
    assert watcher.durable == []


# --- readers ---


class FlushedDisk(ImageDisk):
    """Claims that entries lie in segments."""

    flushed = 0

    def settled_index(self, stream: StreamId) -> Llsn:
        return Llsn(self.flushed)


def test_flushed_batches_are_read_only_once_the_replica_knows_that_they_are_joined() -> None:
    disk = FlushedDisk()
    for llsn in (1, 2, 3):
        disk.begin(STREAM, TOPIC, write(llsn, llsn))
    reader = GuardedReader(disk, STREAM)
    assert len(reader.batches(Llsn(1), 1000) or ()) == 3
    disk.flushed = 2
    assert reader.batches(Llsn(1), 1000) is None
    assert len(reader.batches(Llsn(3), 1000) or ()) == 1, "that one is in memory"
    reader.told = lambda: Llsn(2)
    assert len(reader.batches(Llsn(1), 1000) or ()) == 3


# --- retention ---


def view(trim: int, boundary: int = 0) -> MetadataView:
    topic = TopicOrder(TOPIC, (STREAM,), trim_glsn_end=Glsn(trim), boundary_low=boundary)
    order = StreamOrder(TOPIC, STREAM, ())
    return MetadataView(
        number=1, version=Version(1), topics=(topic,), streams=(order,), nodes=(), members=()
    )


def test_a_trim_is_due_until_it_was_carried_out() -> None:
    retention = Retention()
    assert retention.due([STREAM]) == []
    retention.learn(view(10))
    assert retention.due([STREAM, OTHER]) == [(STREAM, Retain(10, 0))]
    retention.done(STREAM, Retain(10, 0))
    assert retention.due([STREAM]) == []
    retention.learn(view(10, boundary=5))
    assert retention.due([STREAM]) == [(STREAM, Retain(10, 5))]


# --- figures and options ---


def test_buckets_of_a_histogram_add_up() -> None:
    histogram = Histogram((1, 10))
    for value in (1, 2, 50):
        histogram.observe(value)
    assert list(histogram.buckets()) == [("1", 1), ("10", 2), ("+Inf", 3)]
    assert histogram.total == 53


@pytest.mark.parametrize(
    "make",
    [
        lambda: StorageNodeOptions(tick_seconds=0.0),
        lambda: StorageNodeOptions(upkeep_seconds=0.0),
        lambda: StorageNodeOptions(hold_seconds=-1.0),
        lambda: StorageNodeOptions(snapshot_bytes=0),
    ],
)
def test_options_that_make_no_sense_are_refused(make: Callable[[], StorageNodeOptions]) -> None:
    with pytest.raises(BadOption):
        make()


# --- snapshots that wait ---


@scene
async def test_no_snapshot_is_taken_while_a_replica_fills_others_up() -> None:
    disk, turns = ImageDisk(), Turns(lambda: None, _fail)
    chores = Chores(turns.put)
    maintenance = Maintenance(disk.node, Strategy(), 1)
    hold = SnapshotHold(maintenance, chores, seconds=60.0)
    hold.look(is_filling=True)
    await _until(lambda: hold.is_held)
    hold.look(is_filling=False)
    await _until(lambda: not hold.is_held)
    await chores.stop()


@scene
async def test_a_filling_that_does_not_end_lets_snapshots_through_after_a_while() -> None:
    disk, turns = ImageDisk(), Turns(lambda: None, _fail)
    chores = Chores(turns.put)
    hold = SnapshotHold(Maintenance(disk.node, Strategy(), 1), chores, seconds=0.05)
    hold.look(is_filling=True)
    await _until(lambda: hold.is_held)

    def is_released() -> bool:
        hold.look(is_filling=True)
        return not hold.is_held

    await _until(is_released)
    await chores.stop()


def _fail(error: BaseException) -> None:
    raise AssertionError(error)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.001)
