"""From memtables to segments: what is dead or trimmed is left out, nothing else."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from pyroaring import BitMap64

from tests.storage.streams import Streams, delete, put, puts, value, values
from tidelog.errors import DiskFull
from tidelog.formats.batch import Batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.key_index import RowColumns
from tidelog.invariants import InvariantViolation
from tidelog.storage.segment_writer import flush_memtable
from tidelog.storage.segments import segment_name
from tidelog.storage.snapshot_store import SnapshotState
from tidelog.testing.disk import Op


def llsns_in(story: Streams, position: int = 0) -> list[int]:
    with story.node.opened.lease(story.segments()[position].path) as reader:
        return list(reader.llsns())


def test_live_entries_below_the_snapshot_and_all_above_it_are_written() -> None:
    story = Streams.new()
    story.write(puts(range(6)))
    story.write([*puts(range(4), "w"), value("kept")])
    story.snapshot()
    story.write(puts(range(2), "x"))
    story.flush()
    assert llsns_in(story) == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    story.assert_live()
    story.reopen()
    story.assert_live()


def test_keys_that_a_snapshot_hashed_are_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Streams.new()
    story.write([*puts(range(6)), value("first")])
    story.write([*puts(range(4), "w"), delete("k5"), value("kept")])
    story.snapshot()
    story.trim(6)
    monkeypatch.setattr(RowColumns, "add", _hashed_again)
    story.flush()
    monkeypatch.undo()
    assert llsns_in(story) == [7, 8, 9, 10, 11, 12, 13]
    with story.node.opened.lease(story.segments()[0].path) as reader:
        assert reader.verify(story.store().place.hash_seed).entries == 7
    story.assert_live()
    story.reopen()
    story.assert_live()


def _hashed_again(gathered: RowColumns, batch: Batch) -> None:
    raise AssertionError("the keys of this batch were known")


def test_a_memtable_that_grew_since_the_snapshot_has_all_its_keys_in_the_segment() -> None:
    story = Streams.new()
    story.write(puts(range(6)))
    story.snapshot()
    story.write(values(2))
    story.write(puts(range(6, 9)))
    story.flush()
    with story.node.opened.lease(story.segments()[0].path) as reader:
        assert reader.verify(story.store().place.hash_seed).entries == 11
    story.assert_live()


def test_a_snapshot_that_is_done_after_its_memtable_grew_tells_nothing_of_all_of_it() -> None:
    story = Streams.new()
    story.write(puts(range(6)))
    story.snapshot()
    (table,) = story.store().view.memtables
    content = table.content_of(1)
    assert content is not None
    story.write(puts(range(6, 9)))
    table.note_content(1, content)
    assert table.content_of(2) is None
    story.flush()
    with story.node.opened.lease(story.segments()[0].path) as reader:
        assert reader.verify(story.store().place.hash_seed).entries == 9


@pytest.mark.parametrize("index", [0, 3, 6, 9])
def test_many_llsns_are_kept_as_single_ones_are(index: int) -> None:
    snapshot = SnapshotState(1, index, BitMap64(llsn for llsn in (1, 2, 3, 6, 7) if llsn <= index))
    for llsns in ([], [4], [1, 2, 3], [7, 1, 4], [9, 8, 7, 6, 5, 4], [1 << 60, 2], [1 << 60]):
        kept = snapshot.keeps_all(np.array(llsns, dtype=np.uint64))
        assert kept.tolist() == list(map(snapshot.keeps, llsns))


def test_of_two_memtables_only_the_older_one_holds_something_live() -> None:
    story = Streams.new()
    story.write([put("old"), put("k0")])
    story.roll()
    story.write([*puts(range(3)), *(delete(f"k{key}") for key in range(3))])
    story.roll()
    story.write([put("end")])
    story.snapshot()
    while story.node.flush_oldest():
        pass
    # k0 was deleted, and nothing older than its delete is left but what the first one held.
    assert llsns_in(story, 0) == [1]
    story.assert_live()
    story.reopen()
    story.assert_live()


def test_a_memtable_without_anything_live_makes_no_segment() -> None:
    story = Streams.new()
    story.write(puts(range(3)))
    story.roll()
    story.write(puts(range(3), "w"))
    story.snapshot()
    assert story.node.flush_oldest()
    assert (story.numbers(), story.store().stored_end) == ([], 4)
    story.assert_live()
    story.reopen()
    story.assert_live()
    story.flush()
    assert story.numbers() == [1]
    story.reopen()
    story.assert_live()


def test_trimmed_entries_are_not_written() -> None:
    story = Streams.new()
    story.write(values(5))
    story.write(values(5))
    story.trim(8)
    story.flush()
    assert llsns_in(story) == [8, 9, 10]
    story.reopen()
    story.assert_whole()


def test_a_memtable_that_was_trimmed_whole_makes_no_segment() -> None:
    story = Streams.new()
    story.write(values(5))
    story.trim(6)
    story.flush()
    assert (story.numbers(), story.store().stored_end) == ([], 6)
    story.reopen()
    assert story.read() == {}
    story.write(values(2))
    assert list(story.read()) == [6, 7]


def test_control_entries_die_with_the_first_snapshot() -> None:
    story = Streams.new()
    story.write([Entry(Kind.CONTROL, b"c"), value("a")])
    story.flush()
    assert llsns_in(story) == [1, 2]
    story.segment([Entry(Kind.CONTROL, b"d"), value("b")])
    story.snapshot()
    story.major(full=True)
    assert llsns_in(story) == [2]


def test_entries_that_are_not_ordered_hold_their_file_back() -> None:
    story = Streams.new()
    story.write(values(3))
    story.write(values(2), cut=False)
    story.roll()
    assert not story.node.flush_oldest()
    assert story.node.backlog == 1
    story.cut(1)
    assert story.node.flush_oldest()
    assert llsns_in(story) == [1, 2, 3, 4, 5]
    story.reopen()
    story.assert_whole()


def test_a_memtable_that_is_not_ordered_is_never_written() -> None:
    story = Streams.new()
    story.write(values(3), cut=False)
    table = story.store().view.memtables[0]
    with pytest.raises(InvariantViolation, match="M2"):
        flush_memtable(story.node.vfs, story.store().place, 1, table, SnapshotState(), 1)
    assert story.names() == []


def test_a_cut_in_a_later_file_orders_the_entries_of_an_earlier_one() -> None:
    story = Streams.new()
    story.write(values(3), cut=False)
    story.roll()
    story.write(values(2), cut=False)
    story.cut(1)
    assert story.node.flush_oldest()
    story.power_loss()
    story.assert_whole()
    story.flush()
    story.reopen()
    story.assert_whole()


@pytest.mark.parametrize("operation", [Op.CREATE, Op.WRITE, Op.RENAME])
def test_a_full_disk_leaves_the_memtable_where_it_is(operation: Op) -> None:
    story = Streams.new()
    story.write(puts(range(5)))
    story.roll()
    story.disk.fail(operation, ".segment.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        story.node.flush_oldest()
    story.assert_live()
    assert story.numbers() == []
    story.write(puts(range(2), "w"))
    assert story.node.flush_oldest()
    assert story.names() == [segment_name(1)]
    story.assert_live()
    story.reopen()
    story.assert_live()


def test_a_full_disk_at_the_manifest_leaves_the_wal_file_in_use() -> None:
    story = Streams.new()
    story.write(values(5))
    story.roll()
    story.disk.fail(Op.WRITE, "manifest.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        story.node.flush_oldest()
    assert (story.node.backlog, story.numbers()) == (1, [1])
    story.assert_whole()
    assert story.node.flush_oldest()
    assert (story.node.backlog, story.numbers()) == (0, [1])
    story.reopen()
    story.assert_whole()


def test_a_segment_that_was_written_twice_counts_once() -> None:
    """Twice the process stops after the segment and before the manifest."""
    story = Streams.new()
    story.write(puts(range(5)))
    story.write(puts(range(3), "w"))
    story.roll()
    for _ in range(2):
        table = story.store().view.memtables[0]
        story.store().flush(table)
        assert len(story.numbers()) == 1
        story.power_loss()
        story.assert_live()
    story.flush()
    assert len(story.numbers()) == len(story.names(suffix=".segment")) == 1
    story.assert_live()
    story.reopen()
    story.assert_live()


def test_segments_of_a_file_keep_their_terms_and_glsns() -> None:
    story = Streams.new(streams=2)
    for round_ in range(3):
        story.write([value(f"a{round_}")], stream=1, term=round_ + 1)
        story.write([value(f"b{round_}")], stream=2)
    story.flush()
    assert [glsn for glsn, _ in story.read(1).values()] == [1, 3, 5]
    assert [glsn for glsn, _ in story.read(2).values()] == [2, 4, 6]
    assert [piece.batch.term for piece in story.store(1).read(1, 9)] == [1, 2, 3]
    story.reopen()
    story.assert_whole()
