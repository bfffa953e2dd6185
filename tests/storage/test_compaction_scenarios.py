"""Stories of compaction on one stream, from deleting whole segments to merging groups."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from tests.storage.streams import (
    Streams,
    delete,
    delete_storage,
    put,
    puts,
    value,
    values,
)
from tidelog.core.compaction.plan import Strategy, Trigger
from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import CorruptData
from tidelog.formats.entry import Kind
from tidelog.formats.snapshot import Snapshot
from tidelog.limits import COMPACTION_GROUP_MAX, KIB
from tidelog.storage.compaction import compact_major, compact_minor
from tidelog.storage.segments import segment_name
from tidelog.storage.snapshot_store import SnapshotState
from tidelog.storage.vfs import FileKind


def symlinks(story: Streams) -> list[str]:
    vfs, directory = story.disk.vfs(), story.directory()
    found = ((name, vfs.stat(f"{directory}/{name}")) for name in story.names())
    return [name for name, status in found if status and status.kind is FileKind.SYMLINK]


def test_only_the_first_of_three_segments_holds_something_live() -> None:
    story = Streams.new()
    story.segment(puts(range(10)))
    story.segment(puts(range(1, 10), "w"))
    story.segment(puts(range(1, 10), "x"))
    story.snapshot()
    result = story.minor()
    assert (result.deleted, story.numbers()) == (1, [1, 3])
    assert result.reclaimed_bytes > 0
    story.assert_live()
    before = story.segments()[0].size
    result = story.major()
    assert (result.groups, result.rewritten, story.numbers()) == (1, 1, [1, 3])
    assert story.segments()[0].entries == 1
    assert story.segments()[0].size < before
    story.assert_live()
    story.reopen()
    assert story.numbers() == [1, 3]
    story.assert_live()


def test_a_dense_segment_parts_the_groups_before_and_after_it() -> None:
    story = Streams.new()
    for part in (1, 2, 3):
        story.segment([*values(10, 100), *puts(range(30), "v" * 100 + str(part))])
    story.segment(values(40, 100))
    story.segment([*values(10, 100), *puts(range(30), "w" * 100)])
    story.segment(puts(range(30), "newest"))
    story.snapshot()
    result = compact_major(story.store(), bytes_max=16 * KIB)
    assert (result.groups, result.rewritten) == (2, 4)
    assert symlinks(story) == [segment_name(2), segment_name(3)]
    assert story.numbers() == [1, 4, 5, 6]
    story.assert_live()
    assert story.store().sweep() == 2
    assert symlinks(story) == []
    live = story.read()
    story.reopen()
    assert story.read() == live
    story.assert_live()


def test_bytes_part_groups_that_their_count_of_entries_would_allow() -> None:
    story = Streams.new()
    for _ in range(4):
        story.segment([*values(10, 300), *puts(range(30), "v" * 300)])
    story.segment(puts(range(30), "newest"))
    story.snapshot()
    result = story.major(bytes_max=10 * KIB)
    assert (result.groups, result.rewritten) == (2, 4)
    assert story.numbers() == [1, 3, 5]
    story.assert_live()


def test_few_live_bytes_are_enough_although_most_entries_are_live() -> None:
    story = Streams.new()
    story.segment([*values(20, 1), *puts(range(10), "v" * 1000)])
    story.segment(puts(range(10), "small"))
    story.snapshot()
    result = story.major(bytes_max=16 * KIB)
    assert (result.groups, story.segments()[0].entries) == (1, 20)
    story.assert_live()


def test_a_purge_leaves_only_the_newest_segment() -> None:
    story = Streams.new()
    story.segment(puts(range(10)))
    story.segment([delete(f"k{key}") for key in range(10)])
    story.segment([put("other")])
    story.snapshot()
    # The deletes are still needed: what they delete is there.
    assert story.minor().deleted == 1
    assert story.numbers() == [2, 3]
    story.assert_live()
    story.write([put("another")])
    story.snapshot()
    assert story.minor().deleted == 1
    assert story.numbers() == [3]
    story.assert_live()
    story.reopen()
    story.assert_live()


def test_a_trim_of_everything_leaves_only_the_newest_segment() -> None:
    story = Streams.new()
    for _ in range(3):
        story.segment(values(5))
    story.trim(16)
    assert story.minor().deleted == 2
    assert story.numbers() == [3]
    assert story.read() == {}
    story.reopen()
    assert story.read() == {}
    story.write(values(2))
    assert list(story.read()) == [16, 17]


def test_a_major_follows_after_so_many_minors_and_is_counted() -> None:
    story = Streams.new()
    maintenance = Maintenance(story.node, Strategy(minors=2, dead_ratio=None), 1)
    for part in range(3):
        story.segment([value(f"{part}"), *puts(range(4), f"{part}")])
    for expected in (None, Trigger.MINORS, None):
        story.write(puts(range(4), "again"))
        maintenance.snapshot(story.store())
        assert maintenance.compact_if_due(story.store()) is expected
    counters = maintenance.counters
    assert (counters.minor_runs, counters.major_runs, counters.failures) == (3, 1, 0)
    assert counters.rewritten_segments == 2
    assert counters.reclaimed_bytes > 0
    story.assert_live()


def test_entries_that_were_never_ordered_and_written_over_do_not_come_back() -> None:
    story = Streams.new()
    story.write([value("a"), value("b")])
    story.write([value("lost"), value("lost too")], cut=False)
    story.roll()
    story.truncate(3, term=2)
    story.write([value("c")], term=2)
    story.flush()
    story.write([value("d")], term=3)
    story.flush()
    assert {llsn: entry.value for llsn, (_, entry) in story.read().items()} == {
        1: b"a",
        2: b"b",
        3: b"c",
        4: b"d",
    }
    assert [piece.batch.term for piece in story.store().read(1, 9)] == [1, 2, 3]
    story.snapshot()
    story.major(full=True)
    story.assert_whole()
    terms = [(piece.batch.first_llsn, piece.batch.term) for piece in story.store().read(1, 9)]
    assert terms == [(1, 1), (3, 2), (4, 3)]
    story.reopen()
    story.assert_whole()


def test_a_segment_that_newer_ones_shadow_wholly_is_swept_and_links_are_spared() -> None:
    story = Streams.new()
    for part in range(3):
        story.segment([value(f"{part}"), *puts(range(4), f"{part}")])
    story.segment([value("end")])
    story.snapshot()
    compact_major(story.store(), full=True)
    assert len(symlinks(story)) == 2
    story.store().rearrange()
    assert story.store().sweep() == 2
    assert story.names(suffix=".segment") == [segment_name(number) for number in story.numbers()]


def test_a_reader_holds_its_files_over_two_compactions_and_the_sweep() -> None:
    story = Streams.new()
    for part in range(4):
        story.segment([value(f"{part}"), *puts(range(4), f"{part}")])
    pieces = story.store().read(1, 99)
    first = next(pieces)
    assert first.llsns() == range(1, 6)
    story.snapshot()
    story.major(full=True)
    story.segment([*puts(range(4), "new"), value("new")])
    story.segment([value("newest")])
    story.snapshot()
    story.major(full=True)
    # Both compactions are done, and the old names still lead to entries.
    assert len(symlinks(story)) > 0
    seen = [llsn for piece in pieces for llsn in piece.llsns()]
    assert seen == [6, 11, 16]
    assert story.store().sweep() > 0
    assert symlinks(story) == []
    story.assert_live()


def test_a_reader_of_a_deleted_segment_reads_on() -> None:
    story = Streams.new()
    story.write(puts(range(4)))
    story.write(puts(range(4, 8)))
    story.flush()
    story.segment(puts(range(8), "w"))
    pieces = story.store().read(1, 9)
    story.snapshot()
    begun = next(pieces)
    assert story.minor().deleted == 1
    assert story.store().pins.waiting == 1
    rest = [llsn for piece in pieces for llsn in piece.llsns()]
    assert [*begun.llsns(), *rest] == list(range(1, 9))
    assert story.store().sweep() == 1
    assert story.names(suffix=".segment") == [segment_name(2)]


def test_a_live_index_that_the_segments_lack_is_a_loud_error_and_nothing_goes() -> None:
    story = Streams.new()
    for part in range(3):
        story.segment([value(f"{part}"), *puts(range(4), f"{part}")])
    story.segment([value("end")])
    snapshot = story.snapshot()
    assert story.major(full=True).failures == []
    assert 2 not in snapshot.live
    story.store().snapshot = SnapshotState(
        snapshot.term, snapshot.index, snapshot.live | BitMap64([2])
    )
    story.segment([value("more")])
    files = story.disk.files()
    result = story.major(full=True)
    (failure,) = result.failures
    assert "segments (1, 4) stay as they are" in failure
    assert "hold 8 of the 9 live entries" in failure
    assert (result.groups, result.deleted) == (0, 0)
    assert story.disk.files() == files


def test_a_start_refuses_a_live_index_that_the_segments_lack() -> None:
    story = Streams.new()
    for part in range(3):
        story.segment([value(f"{part}"), *puts(range(4), f"{part}")])
    snapshot = story.snapshot()
    story.major(full=True)
    with_ghost = snapshot.live | BitMap64([2])
    store = story.store()
    ghost = Snapshot(snapshot.term, snapshot.index, store.state(), len(with_ghost))
    with store.snapshots.publishing:
        store.snapshots.write(ghost, with_ghost)
    files = story.disk.files()
    story.node.close()
    with pytest.raises(CorruptData, match="LLSN 2 should be stored, but is missing"):
        story.open()
    assert story.disk.files() == files


def test_a_segment_alone_above_the_limit_is_passed_over_and_the_run_ends() -> None:
    story = Streams.new()
    story.segment([*values(4, 10), *puts(range(4))])
    story.segment([*values(30, 200), *puts(range(70), "v" * 200)])
    story.segment([*values(4, 10), *puts(range(4), "w")])
    story.segment(puts(range(70), "x"))
    story.snapshot()
    result = story.major(bytes_max=4 * KIB)
    assert story.segments()[1].entries == 100
    assert result.failures == []
    story.assert_live()


def test_more_than_eight_small_segments_become_several_groups() -> None:
    story = Streams.new()
    for part in range(COMPACTION_GROUP_MAX + 3):
        story.segment([value(f"{part}")])
    story.write([put("end")])
    story.snapshot()
    result = story.major()
    assert (result.groups, result.rewritten) == (2, COMPACTION_GROUP_MAX + 2)
    assert story.numbers() == [1, 9, 11]
    story.assert_whole()


def test_a_compaction_that_is_repeated_comes_to_rest() -> None:
    story = Streams.new()
    for part in range(6):
        story.segment([value(f"{part}"), *puts(range(8), f"{part}"), delete(f"k{part}")])
    for _ in range(6):
        story.write([put("turn")])
        story.snapshot()
        story.major(full=True)
        story.assert_live()
    files = story.disk.files()
    assert story.major(full=True).groups == 0
    assert story.disk.files() == files


def test_a_deleted_storage_goes_and_its_delete_goes_after_it() -> None:
    story = Streams.new()
    story.segment([put(f"k{i}", storage=7) for i in range(10)] + [put("k0", storage=8)])
    story.segment([delete_storage(7)])
    story.segment([put("k1", "again", storage=7)])
    story.snapshot()
    story.assert_live()
    assert story.major(full=True).failures == []
    story.assert_live()
    story.write([put("end")])
    story.snapshot()
    story.major(full=True)
    story.assert_live()
    kinds = [entry.kind for _, entry in story.read().values()]
    assert Kind.DELETE_STORAGE not in kinds
    assert story.get("k1", storage=7) == b"again"
    assert story.get("k0", storage=8) == b"v"
    story.reopen()
    story.assert_live()


def test_minor_runs_only_look_at_what_the_snapshot_has_settled() -> None:
    story = Streams.new()
    story.segment(puts(range(4)))
    story.snapshot()
    story.segment(puts(range(4), "w"))
    story.segment(puts(range(4), "x"))
    assert compact_minor(story.store()).deleted == 0
    story.snapshot()
    assert compact_minor(story.store()).deleted == 2
    story.assert_live()


def test_explicit_versions_are_kept_above_the_boundary_and_thinned_below_it() -> None:
    story = Streams.new(versions="explicit")
    story.segment([put("k", f"v{version}", version=version) for version in (10, 20, 30)])
    story.segment([put("k", "v40", version=40), put("l", "v1", version=5)])
    story.segment([value("end")])
    story.boundary(25)
    story.snapshot()
    story.major(full=True)
    story.assert_live()
    assert sorted(entry.write_version or 0 for _, entry in story.read().values()) == [
        0,
        5,
        20,
        30,
        40,
    ]
    story.reopen()
    assert story.store().boundary == 25
    story.assert_live()
