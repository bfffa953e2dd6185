"""Snapshot files and live indexes: damaged, missing or of another snapshot, never "nothing"."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyroaring import BitMap64

from tests.storage.streams import Streams, delete, put, puts, value
from tests.storage.test_rebatch import batch_of
from tidelog.errors import CorruptData
from tidelog.formats.live_index import LiveIndex, encode_live_index
from tidelog.formats.snapshot import Snapshot
from tidelog.storage.snapshot_store import SnapshotState, SnapshotStore


def compacted() -> Streams:
    """Three segments of which the first was thinned; the snapshot says what may be missing."""
    story = Streams.new()
    story.segment([value("a"), *puts(range(6))])
    story.segment([*puts(range(4), "w"), delete("k4")])
    story.segment([value("end")])
    story.snapshot()
    story.major(full=True)
    return story


def overwrite(story: Streams, suffix: str, data: bytes) -> None:
    (name,) = story.names(suffix=suffix)
    path = f"{story.directory()}/{name}"
    story.disk.truncate(path, 0)
    story.disk.vfs().open(path, write=True).write_at(0, (data,))


def file_of(story: Streams, suffix: str) -> bytes:
    (name,) = story.names(suffix=suffix)
    return story.disk.files()[f"{story.directory()}/{name}"]


def remove(story: Streams, suffix: str) -> None:
    (name,) = story.names(suffix=suffix)
    story.disk.vfs().unlink(f"{story.directory()}/{name}")


def flip_middle(story: Streams) -> None:
    data = bytearray(file_of(story, ".live"))
    data[len(data) // 2] ^= 1
    overwrite(story, ".live", bytes(data))


def of_another_index(story: Streams) -> None:
    snapshot = story.store().snapshot
    other = LiveIndex(snapshot.term, snapshot.index + 1, snapshot.live)
    overwrite(story, ".live", encode_live_index(other))


def of_another_term(story: Streams) -> None:
    snapshot = story.store().snapshot
    other = LiveIndex(snapshot.term + 1, snapshot.index, snapshot.live)
    overwrite(story, ".live", encode_live_index(other))


def with_nothing_live(story: Streams) -> None:
    snapshot = story.store().snapshot
    overwrite(
        story, ".live", encode_live_index(LiveIndex(snapshot.term, snapshot.index, BitMap64()))
    )


def of_another_version(story: Streams) -> None:
    data = file_of(story, ".live")
    overwrite(story, ".live", data[:4] + b"\x02\x00" + data[6:])


DAMAGES: list[Callable[[Streams], None]] = [
    lambda story: remove(story, ".live"),
    lambda story: overwrite(story, ".live", b""),
    lambda story: overwrite(story, ".live", file_of(story, ".live")[:-1]),
    lambda story: overwrite(story, ".live", bytes(100)),
    flip_middle,
    of_another_index,
    of_another_term,
    with_nothing_live,
    of_another_version,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_live_indexes_that_are_no_good_are_rebuilt_and_never_taken_for_nothing(
    damage: Callable[[Streams], None],
) -> None:
    story = compacted()
    live = story.store().snapshot.live
    # Of the deleted key nothing older is left, so a rebuild may let go of the delete itself.
    allowed = {llsn for llsn in live if story.model[1][llsn][1].key == b"k4"}
    assert len(allowed) == 1
    damage(story)
    story.reopen()
    rebuilt = story.store().snapshot
    assert set(live) - allowed <= set(rebuilt.live) <= set(live)
    assert rebuilt.index == 13
    story.assert_live()
    assert story.names(suffix=".live") == [story.names(suffix=".snapshot")[0][:-8] + "live"]
    assert file_of(story, ".live") == encode_live_index(
        LiveIndex(rebuilt.term, rebuilt.index, rebuilt.live)
    )
    files = story.disk.files()
    story.kill()
    # The second start has nothing to repair.
    assert story.disk.files() == files
    assert story.store().snapshot == rebuilt
    story.segment([put("k0", "x")])
    story.snapshot()
    story.major(full=True)
    story.reopen()
    story.assert_live()


def test_live_indexes_are_written_also_when_nothing_is_live() -> None:
    story = Streams.new()
    story.write([put("k")])
    story.trim(2)
    assert len(story.snapshot().live) == 0
    assert len(story.names(suffix=".live")) == 1
    story.reopen()
    assert story.store().snapshot.index == 1


def snapshot_beside(story: Streams, index: int, data: bytes | None = None) -> None:
    """A newer snapshot that was written, of which the files are still beside the old one."""
    stem = f"{1:016x}_{index:016x}"
    vfs = story.disk.vfs()
    vfs.create(f"{story.directory()}/{stem}.snapshot").write_at(0, (data or b"damaged",))
    vfs.create(f"{story.directory()}/{stem}.live").write_at(0, (b"damaged",))


def test_a_newest_snapshot_that_is_damaged_gives_way_to_an_older_one() -> None:
    story = compacted()
    snapshot_beside(story, 14)
    story.reopen()
    assert story.store().snapshot.index == 13
    assert len(story.names(suffix=".snapshot")) == 1
    story.assert_live()


def test_a_snapshot_under_the_name_of_another_is_not_believed() -> None:
    story = compacted()
    snapshot_beside(story, 14, file_of(story, ".snapshot"))
    story.reopen()
    assert story.store().snapshot.index == 13
    story.assert_live()


def test_without_a_readable_snapshot_a_thinned_log_is_refused_and_the_file_named() -> None:
    story = compacted()
    overwrite(story, ".snapshot", b"damaged")
    files = story.disk.files()
    story.node.close()
    with pytest.raises(CorruptData, match=r"should be stored, but is missing \(.*\.snapshot: "):
        story.open()
    assert story.disk.files() == files


def test_a_missing_snapshot_of_a_thinned_log_is_refused() -> None:
    story = compacted()
    remove(story, ".snapshot")
    story.node.close()
    with pytest.raises(CorruptData, match="should be stored, but is missing"):
        story.open()


def test_a_damaged_snapshot_of_a_whole_log_costs_nothing() -> None:
    story = Streams.new()
    story.segment(puts(range(4)))
    story.write(puts(range(2), "w"))
    story.snapshot()
    overwrite(story, ".snapshot", b"damaged")
    story.reopen()
    assert story.store().snapshot.index == 0
    story.assert_whole()
    story.snapshot()
    assert len(story.names(suffix=".snapshot")) == 1
    story.reopen()
    assert story.store().snapshot.index == 6


def test_a_newer_snapshot_removes_the_older_ones() -> None:
    story = Streams.new()
    for part in range(3):
        story.write(puts(range(3), f"{part}"))
        story.snapshot()
        assert len(story.names()) == 2
    assert story.store().snapshot.index == 9


def test_what_a_snapshot_finds_dead_stays_dead_after_a_trim_took_the_newer_write() -> None:
    story = Streams.new(versions="explicit")
    story.write([put("k", "new", version=9), put("k", "old", version=4), put("l", version=5)])
    story.boundary(10)
    assert list(story.snapshot().live) == [1, 3]
    story.trim(2)
    story.write([put("m", version=11)])
    assert list(story.snapshot().live) == [3, 4]


def test_the_state_of_a_snapshot_is_read_as_one_value() -> None:
    state = SnapshotState(1, 10, BitMap64([2, 3, 7]))
    assert (state.smallest_live, SnapshotState(1, 10).smallest_live) == (2, 11)
    assert [llsn for llsn in range(1, 13) if state.keeps(llsn)] == [2, 3, 7, 11, 12]
    assert list(state.dead()) == [1, 4, 5, 6, 8, 9, 10]
    assert [state.live_count(1, end) for end in (1, 3, 8, 11, 14)] == [0, 1, 3, 3, 6]
    assert state.live_count(12, 14) == 2
    everything = BitMap64(range(1, 20))
    assert state.missing_from(everything, 1, 15) is None
    assert state.missing_from(everything - BitMap64([1, 4, 7, 12]), 1, 15) == 7
    assert state.missing_from(everything - BitMap64([12]), 1, 12) is None
    assert state.missing_from(BitMap64(), 4, 4) is None
    assert state.missing_from(BitMap64(), 8, 15) == 11


def test_the_kept_positions_of_a_batch_are_the_entries_that_are_not_dead() -> None:
    state = SnapshotState(1, 10, BitMap64([2, 3, 7]))
    dense = batch_of([value(f"{i}") for i in range(14)], 1)
    sparse = batch_of([value(f"{i}") for i in range(5)], 2, llsns=[2, 4, 7, 10, 12])
    for batch in (dense, sparse):
        for begin in range(1, 16):
            for end in range(begin, 16):
                found = [batch.llsn_at(i) for i in state.kept_positions(batch, begin, end)]
                assert found == [
                    llsn for llsn in batch.llsns() if begin <= llsn < end and state.keeps(llsn)
                ]


def test_a_snapshot_store_of_an_empty_directory_has_nothing() -> None:
    story = Streams.new()
    store = SnapshotStore(story.disk.vfs(), story.directory())

    def refuse(snapshot: Snapshot) -> tuple[Snapshot, BitMap64]:
        raise AssertionError(f"there is nothing to rebuild for {snapshot}")

    assert store.load(refuse) == (SnapshotState(), None, None)
    story.disk.vfs().create(f"{story.directory()}/notes.snapshot")
    assert store.load(refuse) == (SnapshotState(), None, None)
