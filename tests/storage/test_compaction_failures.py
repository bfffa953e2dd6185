"""Compaction that meets a full disk, a failing one or damaged sources: nothing is lost by it."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager

import pytest
from pyroaring import BitMap64

from tests.storage.streams import Streams, delete, put, puts, value, values
from tidelog.core.compaction.plan import Strategy
from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import StorageFailed
from tidelog.formats.segment import HEADER_BYTES
from tidelog.limits import KIB
from tidelog.storage.compaction import compact_major
from tidelog.storage.scrub import scrub
from tidelog.storage.segments import segment_name
from tidelog.storage.snapshot_store import SnapshotState
from tidelog.testing.disk import Choice, Op

BYTES_MAX = 8 * KIB


def two_groups() -> Streams:
    """Segments 1 and 2, and 4 and 5, are to be merged; 3 is dense and 6 is the newest."""
    story = Streams.new()
    for part in (1, 2):
        story.segment([*values(4, 100), *puts(range(12), f"{part}" * 100)])
    story.segment(values(16, 100))
    for part in (4, 5):
        story.segment([*values(4, 100), *puts(range(12), f"{part}" * 100)])
    story.segment([value("end")])
    story.write(puts(range(12), "new"))
    story.snapshot()
    return story


def copied(story: Streams) -> Streams:
    """The same log in another process, before the run."""
    twin = Streams(story.disk.copy(), story.file_bytes)
    twin.model = story.model
    twin.open()
    return twin


def leftovers(story: Streams) -> list[str]:
    return [name for name in story.names() if name.endswith((".compacting", ".link", ".tmp"))]


def calls_of_a_run(base: Streams, operation: Op) -> int:
    """How many such calls a run makes in the stream's directory."""
    for count in range(99):
        story = copied(base)
        story.disk.fail(operation, "", errno.EIO, after=count)
        try:
            story.major(bytes_max=BYTES_MAX)
        except StorageFailed:
            continue
        return count
    raise AssertionError("a run makes no end of calls")


def test_the_story_has_two_groups() -> None:
    story = two_groups()
    assert story.numbers() == [1, 2, 3, 4, 5, 6]
    result = story.major(bytes_max=BYTES_MAX)
    assert (result.groups, result.rewritten, story.numbers()) == (2, 4, [1, 3, 4, 6])
    story.assert_live()


@pytest.mark.parametrize("operation", [Op.CREATE, Op.WRITE, Op.LINK, Op.SYMLINK, Op.RENAME])
def test_a_disk_that_fills_up_anywhere_costs_one_group_and_no_entry(operation: Op) -> None:
    base = two_groups()
    count = calls_of_a_run(base, operation)
    assert count >= 2
    for after in range(count):
        if operation is Op.RENAME and after % 2:
            continue  # That of the second segment of a group: see below.
        story = copied(base)
        story.disk.fail(operation, "", errno.ENOSPC, after=after, partial=operation is Op.WRITE)
        result = story.major(bytes_max=BYTES_MAX)
        assert (result.groups, len(result.failures)) == (1, 1)
        assert "stay as they are" in result.failures[0]
        assert leftovers(story) == []
        story.assert_live()
        again = copied(story)
        again.assert_live()
        again.node.close()
        result = story.major(bytes_max=BYTES_MAX)
        assert (result.groups, result.failures) == (1, [])
        story.assert_live()
        story.reopen()
        assert story.numbers() == [1, 3, 4, 6]
        story.assert_live()
        story.node.close()


def test_a_full_disk_behind_the_point_of_no_return_stops_the_log_and_costs_no_entry() -> None:
    """Only a name is put over another one there, which needs no room on any disk we know."""
    story = two_groups()
    story.disk.fail(Op.RENAME, "", errno.ENOSPC, after=1)
    with pytest.raises(StorageFailed, match="half replaced"):
        story.major(bytes_max=BYTES_MAX)
    with pytest.raises(StorageFailed, match="stopped"):
        story.write(values(1))
    story.power_loss()
    assert story.numbers() == [1, 3, 4, 5, 6]
    assert leftovers(story) == []
    story.assert_live()


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("goes", ["dead", "trimmed"])
def test_a_group_that_found_no_room_for_its_links_is_as_it_was(goes: str, after: int) -> None:
    """What becomes of its first segment later is no matter to the others."""
    story = Streams.new()
    story.segment(puts(range(10), "a" * 50))
    story.segment(values(10, 60))
    story.segment([*values(10, 60), put("gone")])
    story.segment([value("end")])
    story.write(puts(range(2), "new"))
    story.snapshot()
    story.disk.fail(Op.SYMLINK, "", errno.ENOSPC, after=after)
    assert "stay as they are" in story.major().failures[0]
    if goes == "trimmed":
        story.trim(11)
    else:
        story.write(puts(range(10), "newer"))
        story.flush()
        story.segment([delete("gone")])
        story.snapshot()
    assert story.minor().deleted == 1
    for segment in story.segments():
        story.store().opened.forget(segment.path)
    story.assert_live()
    for again in (story.reopen, story.power_loss):
        again()
        story.assert_live()
        story.snapshot()


def held(story: Streams) -> AbstractContextManager[None]:
    return story.store().pins.pinned()


def test_a_dead_segment_that_somebody_reads_is_not_enclosed_by_a_merged_one() -> None:
    """Its file has the higher number: it would cut the merged one off at the next start."""
    story = around_a_dead_one()
    with held(story):
        result = story.major()
        assert (result.groups, result.waiting) == (0, 2)
        assert result.failures == []
        twin = copied(story)
        twin.assert_live()
        twin.node.close()
    result = story.major()
    assert (result.groups, result.waiting) == (1, 0)
    assert story.numbers() == [1, 4]
    story.reopen()
    story.assert_live()


@pytest.mark.parametrize("end", ["kill", "power loss", "power loss that spares everything"])
def test_a_dead_segment_that_comes_back_does_not_cut_a_merged_one_off(end: str) -> None:
    story = around_a_dead_one()
    compact_major(story.store())
    match end:
        case "kill":
            story.kill()
        case "power loss":
            story.power_loss(Choice.LOST)
        case _:
            story.power_loss(Choice.KEPT)
    story.assert_live()
    assert story.numbers() == [1, 4]


def around_a_dead_one() -> Streams:
    story = Streams.new()
    story.segment([value("a")])
    story.segment([put("k", "old")])
    story.segment([value("b")])
    story.segment([put("k", "new")])
    story.snapshot()
    return story


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", [Op.SYNC, Op.SYNC_DIR])
def test_a_sync_that_fails_anywhere_stops_the_log_and_costs_no_entry(
    operation: Op, code: int
) -> None:
    base = two_groups()
    count = calls_of_a_run(base, operation)
    assert count >= 2
    for after in range(count):
        story = copied(base)
        story.disk.fail(operation, "", code, after=after)
        with pytest.raises(StorageFailed, match="fsync"):
            story.major(bytes_max=BYTES_MAX)
        story.assert_live()
        with pytest.raises(StorageFailed, match="stopped"):
            story.write(values(1))
        story.power_loss()
        assert leftovers(story) == []
        story.assert_live()
        story.major(bytes_max=BYTES_MAX)
        assert story.numbers() == [1, 3, 4, 6]
        story.assert_live()
        story.node.close()


def test_too_little_room_is_noticed_before_anything_is_written() -> None:
    story = two_groups()
    used = sum(len(data) for data in story.disk.files().values())
    story.disk.capacity_bytes = used + 100
    before = story.disk.operations
    result = story.major(bytes_max=BYTES_MAX)
    assert len(result.failures) == 2
    assert "100 are free" in result.failures[0]
    assert story.disk.operations == before
    story.disk.capacity_bytes = None
    assert story.major(bytes_max=BYTES_MAX).groups == 2
    story.assert_live()


def flipped(base: Streams, number: int, byte: int) -> Streams:
    """The log with one bit of a segment flipped; its readers are opened anew."""
    story = copied(base)
    story.disk.flip_bit(f"{story.directory()}/{segment_name(number)}", byte, 3)
    return story


def test_a_flipped_bit_in_a_source_costs_its_group_and_is_counted() -> None:
    base = two_groups()
    for byte in range(HEADER_BYTES, HEADER_BYTES + 800, 50):
        story = flipped(base, 2, byte)
        damaged = story.disk.files()
        maintenance = Maintenance(story.node, Strategy(), 1)
        result = maintenance.major(story.store(), full=True)
        assert maintenance.counters.failures == len(result.failures) == 1
        assert segment_name(2) in maintenance.counters.last_failure
        assert leftovers(story) == []
        for number in (1, 2):
            path = f"{story.directory()}/{segment_name(number)}"
            assert story.disk.files()[path] == damaged[path]
        story.node.close()


def test_a_flipped_bit_in_one_group_does_not_stop_the_other() -> None:
    story = flipped(two_groups(), 2, HEADER_BYTES + 100)
    result = story.major(bytes_max=BYTES_MAX)
    assert (result.groups, len(result.failures)) == (1, 1)
    assert story.numbers() == [1, 2, 3, 4, 6]


def test_a_scrub_finds_every_flipped_byte_of_a_segment_and_names_its_file() -> None:
    story = Streams.new()
    story.segment([value("a"), *puts(range(3))])
    story.segment([value("b")])
    path = f"{story.directory()}/{segment_name(1)}"
    size = len(story.disk.files()[path])
    assert [finding.problem for finding in scrub(story.node)] == ["", ""]
    assert sum(finding.entries for finding in scrub(story.node)) == 5
    for byte in range(HEADER_BYTES, size):
        story.disk.flip_bit(path, byte, byte % 8)
        story.node.opened.forget(path)
        problems = [finding.problem for finding in scrub(story.node)]
        assert path in problems[0], f"byte {byte}"
        assert problems[1] == ""
        story.disk.flip_bit(path, byte, byte % 8)
        story.node.opened.forget(path)
    assert [finding.problem for finding in scrub(story.node)] == ["", ""]


def test_a_scrub_misses_a_live_entry_that_is_not_there() -> None:
    story = Streams.new()
    story.segment([value("first"), *puts(range(3))])
    story.segment([value("a"), *puts(range(2), "w")])
    story.segment([value("end")])
    snapshot = story.snapshot()
    story.major(full=True)
    ghost = snapshot.live | BitMap64([2])
    story.store().snapshot = SnapshotState(snapshot.term, snapshot.index, ghost)
    problems = [finding.problem for finding in scrub(story.node)]
    assert problems == ["the live entry 2 is not there", ""]
