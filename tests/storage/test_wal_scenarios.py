"""Stories of the shared WAL and its streams: sparse writes, overwriting, rolling, stopping."""

from __future__ import annotations

import errno

import pytest

from tests.storage.streams import PATH, Streams, put, puts, value, values
from tests.storage.watched import Once
from tidelog.errors import CorruptData, ProducerConflict, StorageFailed
from tidelog.formats.wal import Record, RecordType
from tidelog.invariants import InvariantViolation
from tidelog.limits import KIB, WAL_BACKLOG_FILES_MAX
from tidelog.storage.frame_write import FrameWrite
from tidelog.storage.wal import wal_numbers, wal_path
from tidelog.testing.disk import Choice, Op


def sparse(story: Streams, *llsns: int, cut: bool = True) -> None:
    """Entries of a snapshot that is being installed: in order, with holes."""
    story.write([value(f"at {llsn}") for llsn in llsns], llsns=llsns, cut=cut)


# -- sparse writes -----------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [False, True])
def test_sparse_writes_come_back_as_they_were_written(flushed: bool) -> None:
    story = Streams.new()
    sparse(story, 3, 7, 9)
    sparse(story, 12)
    story.write(values(3))
    story.trim(3)
    story.store().snapshot = story.snapshot()
    if flushed:
        story.flush()
    expected = story.read()
    assert list(expected) == [3, 7, 9, 12, 13, 14, 15]
    story.power_loss()
    assert story.read() == expected
    assert story.store().end_llsn == 16
    story.write(values(2))
    story.reopen()
    story.assert_whole()


def test_sparse_batches_of_one_frame_follow_one_another() -> None:
    story = Streams.new()
    first = story.batch([value("a"), value("b")], llsns=[2, 5])
    second = story.batch([value("c")], llsns=[8])
    story.frame(first, second, cut=(1,))
    assert {llsn: glsn for llsn, (glsn, _) in story.read().items()} == {2: 2, 5: 5, 8: 8}
    story.trim(2)
    story.snapshot()
    story.reopen()
    assert list(story.read()) == [2, 5, 8]


def test_a_record_whose_predecessor_is_missing_is_refused_at_a_start() -> None:
    """The frame is whole, but the entries before it are in no frame: a write got lost."""
    story = Streams.new()
    story.write(values(3))
    lost = story.batch(values(2), llsns=[4, 5])
    late = story.batch(values(2), llsns=[6, 7])
    parts = (late.stored.data,)
    story.node.wal.append([Record(RecordType.BATCH, 1, lost.stored.end_llsn - 1, parts)])
    story.lose()
    with pytest.raises(CorruptData, match="a batch at LLSN 6 follows 5, but the last entry is 3"):
        story.open()


# -- overwriting -------------------------------------------------------------------------


@pytest.mark.parametrize("end", [4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("rolled", [False, True])
def test_entries_that_were_cut_off_stay_gone_whatever_batch_they_were_in(
    end: int, rolled: bool
) -> None:
    story = Streams.new()
    story.write(values(3))
    story.write([value("x"), value("y"), value("z")], cut=False)
    story.write([value("u"), value("v")], cut=False)
    if rolled:
        story.roll()
    story.truncate(end, term=2)
    assert story.store().end_llsn == end
    story.assert_whole()
    story.power_loss()
    assert (story.store().end_llsn, story.store().term) == (end, 2)
    story.assert_whole()
    story.write([value("instead")], term=2)
    story.power_loss()
    story.assert_whole()
    story.flush()
    story.reopen()
    story.assert_whole()


def test_entries_are_cut_off_again_and_again_in_ever_later_terms() -> None:
    story = Streams.new()
    story.write(values(2))
    for term in range(2, 7):
        story.write(values(term), cut=False, term=term - 1)
        story.truncate(3 + term % 2, term=term)
    story.write([value("at last")], term=6)
    story.power_loss()
    story.assert_whole()
    story.flush()
    story.assert_whole()
    assert [piece.batch.term for piece in story.store().read(1, 9)][-1] == 6


def test_nothing_ordered_is_ever_cut_off() -> None:
    story = Streams.new()
    story.write(values(5))
    with pytest.raises(InvariantViolation, match="T3"):
        story.store().apply_truncate(5, 2, wal_file=1)
    story.assert_whole()


def test_two_terms_in_one_frame_stay_two_batches() -> None:
    story = Streams.new()
    old = story.batch([value("a")], term=1)
    new = story.batch([value("b")], llsns=[2], term=2)
    story.frame(old, new, cut=(1,))
    for _ in range(2):
        assert [piece.batch.term for piece in story.store().read(1, 9)] == [1, 2]
        story.power_loss()
    story.flush()
    assert [piece.batch.term for piece in story.store().read(1, 9)] == [1, 2]


def test_a_producer_may_repeat_what_was_cut_off() -> None:
    story = Streams.new()
    story.write(values(2), producer=7, sequence=1)
    story.write(values(2), producer=7, sequence=2, cut=False)
    story.truncate(3)
    for _ in range(2):
        producers = story.store().producers
        assert producers.lookup(7, 2) is None
        found = producers.lookup(7, 1)
        assert found is not None
        assert (found.llsn_begin, found.count) == (1, 2)
        story.power_loss()
    story.write(values(3), producer=7, sequence=2)
    story.power_loss()
    found = story.store().producers.lookup(7, 2)
    assert found is not None
    assert (found.llsn_begin, found.count) == (3, 3)


# -- snapshots and the WAL ---------------------------------------------------------------


def test_entries_that_die_before_they_are_flushed_are_replayed_and_left_out() -> None:
    story = Streams.new()
    story.write(puts(range(5)))
    story.write(puts(range(5), "w"))
    story.snapshot()
    story.power_loss()
    assert story.store().snapshot.index == 10
    story.assert_live()
    story.flush()
    assert story.segments()[0].entries == 5
    story.reopen()
    story.assert_live()


def test_a_snapshot_index_in_the_middle_of_a_batch() -> None:
    story = Streams.new()
    story.write([put("a"), put("b"), put("a", "w"), put("b", "w")], cut=False)
    story.cut(1)
    story.write([put("c"), put("a", "x")], cut=False)
    story.snapshot()
    story.cut(1)
    story.flush()
    assert list(story.read()) == [3, 4, 5, 6]
    story.assert_live()


# -- rolling -----------------------------------------------------------------------------


def test_streams_and_producers_survive_a_roll_to_an_empty_file() -> None:
    story = Streams.new(streams=3)
    for stream in (1, 2):
        story.write(values(4), stream=stream, producer=5, sequence=9)
    story.flush()
    story.flush()
    story.power_loss()
    story.assert_whole()
    assert [story.store(stream).end_llsn for stream in (1, 2, 3)] == [5, 5, 1]
    for stream in (1, 2):
        with pytest.raises(ProducerConflict):
            story.store(stream).producers.lookup(5, 8)
        assert story.store(stream).producers.lookup(5, 9) is not None
    story.write(values(1), stream=1, producer=5, sequence=10)
    story.reopen()
    story.assert_whole()


def test_many_rolled_files_come_back_and_are_flushed_one_after_the_other() -> None:
    story = Streams.new(streams=2)
    rolls = WAL_BACKLOG_FILES_MAX + 3
    for number in range(rolls):
        story.write(puts(range(3), f"{number}"), stream=1 + number % 2)
        story.roll()
    assert story.node.backlog_is_full
    story.power_loss()
    assert story.node.backlog == rolls
    story.assert_whole()
    for left in range(rolls - 1, -1, -1):
        assert story.node.flush_oldest()
        assert story.node.backlog == left
        story.assert_whole()
    assert not story.node.flush_oldest()
    story.reopen()
    story.assert_whole()
    assert len(wal_numbers(story.disk.vfs(), f"{PATH}/wal")) == 1


def test_files_that_the_manifest_no_longer_needs_are_removed_at_a_start() -> None:
    """The process died after the manifest was written and before the files were retired."""

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    story = Streams.new()
    story.write(values(5))
    story.roll()
    story.write(values(5))
    story.node.close()
    story.watcher = Once(Op.RENAME, ".spare", die)
    story.open()
    with pytest.raises(Killed):
        story.node.flush_oldest()
    assert wal_numbers(story.disk.vfs(), f"{PATH}/wal") == [1, 2]
    for choice in (Choice.KEPT, Choice.LOST):
        story.power_loss(choice)
        assert wal_numbers(story.disk.vfs(), f"{PATH}/wal") == [2]
        story.assert_whole()


def test_an_entry_larger_than_a_wal_file_is_stored_whole() -> None:
    story = Streams.new(file_bytes=64 * KIB)
    story.write(values(3))
    story.write([value("x" * 300 * KIB)])
    assert story.node.wal.number == 2
    story.write(values(3))
    assert story.node.wal.number == 3
    story.power_loss()
    story.assert_whole()
    story.flush()
    story.reopen()
    story.assert_whole()
    # The grown file is a spare now, and serves the next frames.
    for _ in range(4):
        story.write([value("y" * 40 * KIB)])
    story.power_loss()
    story.assert_whole()


def test_a_frame_that_does_not_fit_rolls_before_it_is_written() -> None:
    story = Streams.new(file_bytes=64 * KIB)
    for number in range(12):
        story.write([value(f"{number}" * 10 * KIB)])
    sizes = [len(data) for path, data in story.disk.files().items() if path.endswith(".wal")]
    assert sizes == [64 * KIB] * story.node.wal.number
    story.power_loss()
    story.assert_whole()


# -- stopping ----------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [Op.WRITE, Op.SYNC])
def test_a_frame_that_was_not_made_durable_leaves_no_trace_in_the_state(operation: Op) -> None:
    story = Streams.new()
    story.write(puts(range(3)), producer=4, sequence=1)
    before = story.store().state()
    view = story.read()
    story.disk.fail(operation, ".wal", errno.EIO)
    with pytest.raises(StorageFailed):
        story.write(puts(range(3), "w"), producer=4, sequence=2)
    assert story.store().state() == before
    assert (story.read(), story.store().end_llsn) == (view, 4)
    with pytest.raises(StorageFailed):
        story.node.save_manifest()
    story.power_loss()
    assert story.store().state() == before
    story.assert_live()


def test_a_stopped_log_is_read_on_and_flushes_nothing() -> None:
    story = Streams.new()
    story.write(puts(range(3)))
    story.roll()
    story.disk.fail(Op.SYNC, ".wal", errno.EIO)
    with pytest.raises(StorageFailed):
        story.write(values(1))
    files = story.disk.files()
    for job in (story.node.flush_oldest, story.snapshot, story.roll):
        with pytest.raises(StorageFailed, match="stopped"):
            job()
    assert story.disk.files() == files
    story.assert_live()


def test_trims_boundaries_and_batches_of_one_frame_are_durable_together() -> None:
    story = Streams.new(versions="explicit")
    story.write([put("k", version=3), put("k", version=5)])
    batch = story.batch([put("k", "w", version=9)])
    cut = story._decide((1,), {1: 4})
    story.node.write(FrameWrite(batches=(batch,), cut=cut, boundaries=((1, 8),)))
    story.model[1][3] = (3, put("k", "w", version=9))
    story.power_loss()
    assert (story.store().boundary, story.store().ordered_end) == (8, 4)
    story.assert_whole()
    path = wal_path(f"{PATH}/wal", 1)
    assert story.node.wal.sequence == 3
    story.close()
    # Without the last sector of that frame all of it is gone.
    story.disk.flip_bit(path, story.node.wal._offset - 1, 7)
    with pytest.raises(CorruptData):
        story.open()
