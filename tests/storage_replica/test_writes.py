"""What each field of a write does, and what is left of it after a restart."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from tests.storage_replica.fillings import end_filling, fill
from tests.storage_replica.twin import STREAM, Twin, control, values
from tidelog.core.replica.commit_context import NONE
from tidelog.core.replica.entries import NO_ENTRY, EntryId, GlsnRun
from tidelog.core.replica.output import HardState
from tidelog.core.replica.producers import ProducerState
from tidelog.core.replica.state import Stored
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.arrow import record_batches
from tidelog.interface.records import records_of
from tidelog.limits import KIB
from tidelog.storage.replica_batches import sealed
from tidelog.storage.replica_disk import QUICK_BYTES_MAX
from tidelog.storage.replica_frame import ReplicaFrame
from tidelog.testing.disk import Choice
from tidelog.types import Llsn, StreamId, Term


@pytest.fixture
def twin() -> Twin:
    twin = Twin()
    twin.become_member()
    return twin


def test_a_stream_appears_with_its_first_hard_state_and_stays(twin: Twin) -> None:
    assert twin.disk.stored(StreamId(2)) == Stored()
    twin.restart()
    assert twin.disk.streams() == (STREAM,)
    assert twin.disk.stored(STREAM).hard_state == HardState(Term(1), is_complete=True)


def test_what_was_begun_is_read_at_once_and_gone_after_a_crash_without_sync(twin: Twin) -> None:
    twin.sync()
    twin.append("a", "b")
    twin.check_seen()
    twin.crash()
    assert twin.disk.stored(STREAM).end == 1


def test_what_was_synced_survives_a_crash(twin: Twin) -> None:
    twin.append("a", "b", producer=7, sequence=3)
    twin.order()
    twin.sync()
    twin.append("c")
    twin.crash()
    twin.check()
    assert twin.disk.stored(STREAM).producers == (ProducerState(7, 3, ((3, 1, 2),)),)


def test_many_writes_of_several_streams_are_one_frame(twin: Twin) -> None:
    other = StreamId(2)
    twin.become_member(other)
    for _ in range(10):
        twin.append("x")
        twin.append("y", stream=other)
    frames = twin.disk.node.wal.frames
    twin.sync()
    assert twin.disk.node.wal.frames == frames + 1


def test_batches_that_were_written_do_not_wait_for_the_garbage_collector(twin: Twin) -> None:
    """A cycle in what a sync leaves would keep megabytes until a full collection."""
    gc.collect()
    gc.disable()
    try:
        twin.append("a", "b", producer=7, sequence=3)
        twin.order()
        twin.append("c")
        twin.write(truncate_to=3, hard_state=HardState(Term(2), is_complete=True))
        twin.sync()
        frames = [found for found in gc.get_objects() if isinstance(found, ReplicaFrame)]
    finally:
        gc.enable()
    assert frames == []


def test_a_small_write_to_a_known_stream_is_synced_at_once(twin: Twin) -> None:
    twin.append("a")
    assert twin.disk.sync_quickly() is None, "the stream's directory is made first"
    twin.sync()
    twin.append("b")
    frames = twin.disk.node.wal.frames
    assert twin.disk.sync_quickly() is not None
    assert twin.disk.node.wal.frames == frames + 1
    assert not twin.disk.has_begun
    twin.sync()
    twin.crash()
    twin.check()


@pytest.mark.parametrize("obstacle", ["large", "truncation", "worker", "end of the file"])
def test_what_may_take_long_is_not_synced_quickly(twin: Twin, obstacle: str) -> None:
    twin.append("a")
    twin.sync()
    twin.append("b" * QUICK_BYTES_MAX if obstacle == "large" else "b")
    if obstacle == "truncation":
        twin.write(truncate_to=2)
    if obstacle == "end of the file":
        while twin.disk.node.wal.is_filled(3 * KIB):
            twin.append("c" * KIB)
            twin.sync()
        twin.append("d" * 2 * KIB)
    if obstacle == "worker":
        with ThreadPoolExecutor(1) as pool:
            pool.submit(twin.disk.node.applying.acquire).result()
            assert twin.disk.sync_quickly() is None
            pool.submit(twin.disk.node.applying.release).result()
        assert twin.disk.sync_quickly() is not None
    else:
        assert twin.disk.sync_quickly() is None
    twin.sync()
    twin.crash()
    twin.check()


def test_a_batch_that_brings_its_place_is_stored_as_the_bytes_that_came() -> None:
    """So a node has them in memory once, and copies nothing."""
    elsewhere = values(1, 7, "a", "b", producer=7, sequence=3)
    stored = sealed(STREAM, elsewhere)
    assert stored.data != elsewhere.data
    again = replace(elsewhere, data=stored.data)
    assert sealed(STREAM, again).data is again.data
    for other in (replace(again, term=Term(2)), replace(again, llsn_begin=Llsn(8))):
        assert sealed(STREAM, other).data != again.data
    assert sealed(StreamId(2), again).data != again.data


def test_an_entry_is_stored_with_its_own_place(twin: Twin) -> None:
    twin.append("a", "b", producer=5, sequence=9)
    twin.sync()
    (stored,) = twin.store().view.memtables[-1].batches
    view = stored.view()
    assert (view.stream, view.term, view.first_llsn) == (STREAM, 1, 1)
    assert (view.producer, view.sequence, view.count) == (5, 9, 2)


def test_truncated_entries_do_not_come_back_after_a_restart(twin: Twin) -> None:
    twin.append("kept")
    twin.append("cut", producer=3, sequence=1)
    twin.sync()
    twin.write(hard_state=HardState(Term(2), is_complete=True), truncate_to=2)
    twin.append("other", term=2)
    twin.check_seen()
    twin.restart()
    twin.check()
    assert twin.disk.stored(STREAM).terms == ((1, 1), (2, 2))


def test_entries_in_a_rolled_wal_file_can_be_truncated(twin: Twin) -> None:
    twin.append("ordered")
    twin.order()
    twin.append("cut 1")
    twin.sync()
    twin.disk.roll()
    twin.append("cut 2")
    twin.sync()
    twin.write(truncate_to=2)
    twin.append("instead", term=1)
    twin.sync()
    twin.crash()
    twin.check()
    twin.order()
    twin.flush()
    twin.crash()
    twin.check()


def test_a_sequence_that_was_truncated_may_come_again_behind_a_lower_one(twin: Twin) -> None:
    """A start that knew the later table already would take the old append for a new one."""
    twin.append("lost 5", producer=7, sequence=5)
    twin.append("lost 7", producer=7, sequence=7)
    twin.sync()
    twin.write(hard_state=HardState(Term(2), is_complete=True), truncate_to=1)
    twin.append("other", term=2)
    twin.append("again 5", term=2, producer=7, sequence=5)
    twin.restart()  # The manifest is written with the latest table.
    twin.crash()
    twin.check()


def test_a_control_entry_is_stored_and_served_and_never_shown(twin: Twin) -> None:
    twin.write(batches=[control(1, 1), values(1, 2, "a")])
    twin.order()
    twin.restart()
    twin.check()
    assert twin.read()[1][2] == Entry(Kind.CONTROL)
    assert shown(twin) == {2: b"a"}
    twin.flush()
    twin.crash()
    twin.check()
    assert shown(twin) == {2: b"a"}


def shown(twin: Twin) -> dict[int, bytes]:
    """GLSN → value of what clients and Spark get."""
    store = twin.store()
    pieces = list(store.read(1, store.ordered_end))
    rows = record_batches([[(STREAM, piece) for piece in pieces]])
    assert sum(batch.num_rows for batch in rows) == 1
    return {record.glsn: record.value for piece in pieces for record in records_of(STREAM, piece)}


def test_trimmed_entries_are_gone_after_a_restart(twin: Twin) -> None:
    for text in "abcd":
        twin.append(text)
        twin.order(gap=2)
    twin.sync()
    twin.write(trim_to=3)
    twin.check_seen()
    twin.restart()
    twin.check()
    assert twin.store().trim_glsn_end == 9
    twin.flush()
    twin.crash()
    twin.check()
    assert sorted(twin.read()) == [3, 4]


def test_a_wiped_log_begins_anew_and_its_files_go(twin: Twin) -> None:
    twin.append("old")
    twin.order()
    twin.flush()
    twin.write(
        wipe=True, hard_state=HardState(Term(2), is_complete=False, had=EntryId(Term(1), Llsn(1)))
    )
    twin.sync()
    assert twin.store().end_llsn == 1
    twin.crash()
    twin.check_stored()
    assert not twin.store().view.segments
    names = twin.sim.vfs().list_dir(f"/node/streams/{STREAM:016d}")
    assert names  # It was not complete at the start.
    twin.write(wipe=True)
    twin.sync()
    twin.disk.node.sweep_abandoned()
    assert not twin.sim.vfs().list_dir(f"/node/streams/{STREAM:016d}.1")


def test_a_dropped_replica_keeps_its_term_alone(twin: Twin) -> None:
    twin.append("old")
    twin.order()
    twin.flush()
    last = HardState(Term(5), is_complete=False, is_member=False)
    twin.write(drop=True, hard_state=last)
    twin.restart()
    assert twin.disk.stored(STREAM) == Stored(hard_state=last)


def test_a_log_that_began_anew_is_the_same_after_its_wal_file_is_gone(twin: Twin) -> None:
    twin.append("old")
    twin.order()
    twin.flush()
    fill(twin, first=1)
    twin.order()
    twin.flush()
    twin.crash()
    twin.check()


@pytest.mark.parametrize("first", [1, 40])
def test_a_replica_that_was_filled_up_has_what_it_was_sent(first: int, twin: Twin) -> None:
    twin.append("gone")
    twin.order()
    twin.sync()
    fill(twin, first=first)
    twin.check_seen()
    twin.sync()
    twin.check()
    assert twin.disk.stored(STREAM).snapshot_index == first + 4
    assert list(twin.store().snapshot.live) == [first, first + 2]
    twin.crash()
    twin.check()
    twin.flush()
    twin.crash()
    twin.check()
    store = twin.store()
    assert store.snapshot.index == first + 4
    assert list(store.snapshot.live) == [first, first + 2]


def test_a_half_filled_replica_restarts_as_one_that_is_not_complete(twin: Twin) -> None:
    incomplete = HardState(Term(2), is_complete=False, had=NO_ENTRY)
    twin.write(wipe=True, hard_state=incomplete)
    twin.write(batches=[values(1, 5, "x")], sparse=True, runs=[GlsnRun(Llsn(5), 50, 1)])
    twin.flush()
    twin.crash()
    twin.check_stored()
    twin.write(truncate_to=1)
    fill(twin)
    twin.flush()
    twin.crash()
    twin.check()


@pytest.mark.parametrize("flushes", range(4))
def test_a_replica_that_is_filled_up_beyond_its_log_keeps_what_it_had_ordered(
    flushes: int, twin: Twin
) -> None:
    """Until the last part trims it; ``flushes``: before the filling, amid it, or both."""
    twin.append("a", "b")
    twin.order()
    if flushes & 1:
        twin.flush()
    twin.append("not ordered")
    known = twin.image().context
    had = EntryId(Term(1), Llsn(3))
    twin.write(hard_state=HardState(Term(2), is_complete=False, had=had), truncate_to=3)
    for _ in range(2):
        twin.write(batches=[values(1, 40, "part")], sparse=True, runs=[GlsnRun(Llsn(40), 49, 1)])
        twin.check_seen()
        twin.flush() if flushes & 2 else twin.sync()
        twin.check_seen()
        twin.crash()
        twin.check()
        assert twin.disk.stored(STREAM).is_sound
        assert twin.disk.stored(STREAM).context == known
        twin.write(truncate_to=3)
    end_filling(twin, first=40)
    twin.flush() if flushes & 2 else twin.sync()
    twin.check()
    twin.crash()
    twin.check()
    assert sorted(twin.read()) == [40, 42, 45, 46, 47, 48]
    twin.order()
    twin.compact()
    twin.flush()
    twin.crash()
    twin.check_stored()


def test_a_filling_that_begins_anew_forgets_what_was_flushed_of_the_first_one(twin: Twin) -> None:
    twin.write(wipe=True, hard_state=HardState(Term(2), is_complete=False, had=NO_ENTRY))
    twin.write(batches=[values(1, 1, "stale 1")], sparse=True, runs=[GlsnRun(Llsn(1), 1, 1)])
    twin.write(batches=[values(1, 2, "stale 2")], sparse=True, runs=[GlsnRun(Llsn(2), 2, 1)])
    twin.flush()
    twin.write(truncate_to=1)
    twin.write(batches=[values(2, 1, "new")], sparse=True, runs=[GlsnRun(Llsn(1), 7, 1)])
    twin.flush()
    twin.store().sweep()
    twin.disk.roll()
    while twin.disk.node.flush_oldest():
        pass
    twin.crash()
    assert [entry.value for _, _, entry in twin.read().values()] == [b"new"]


def test_what_was_flushed_of_a_given_up_filling_never_comes_back_below_the_next(
    twin: Twin,
) -> None:
    """The first entries of the second one are dead, so nothing newer covers the stale ones."""
    twin.write(wipe=True, hard_state=HardState(Term(2), is_complete=False, had=NO_ENTRY))
    twin.write(batches=[values(1, 1, "stale")], sparse=True, runs=[GlsnRun(Llsn(1), 1, 1)])
    twin.flush()
    with twin.store().pins.pinned():  # Somebody reads: the stale file cannot go yet.
        twin.write(truncate_to=1)
        twin.write(batches=[values(2, 5, "new")], sparse=True, runs=[GlsnRun(Llsn(5), 7, 1)])
        twin.flush()
        twin.store().sweep()
        twin.crash()
    assert [entry.value for _, _, entry in twin.read().values()] == [b"new"]


def test_the_context_of_a_stream_is_that_of_its_last_durable_cut(twin: Twin) -> None:
    assert twin.disk.durable_context(STREAM) == NONE
    twin.append("a")
    twin.sync()
    twin.order()
    assert twin.disk.durable_context(STREAM) == NONE
    twin.sync()
    assert twin.disk.durable_context(STREAM).llsn_end == 2


def test_a_boundary_only_rises_and_survives(twin: Twin) -> None:
    twin.sync()
    twin.disk.set_boundary(STREAM, 1 << 100)
    twin.disk.set_boundary(STREAM, 5)
    twin.sync()
    assert twin.store().boundary == 1 << 100
    twin.crash(Choice.LOST)
    assert twin.store().boundary == 1 << 100
