"""The swap of a group of files: every state that a stop can leave is finished or undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.storage.streams import Streams, delete, put, puts, value, values
from tidelog.invariants import InvariantViolation
from tidelog.storage.compaction_files import (
    compacting_name,
    install_group,
    recover_groups,
    remove_stale,
    remove_symlinks,
)
from tidelog.storage.segments import segment_name, segment_numbers
from tidelog.storage.vfs import FileKind
from tidelog.testing.disk import Choice, SimDisk, SimulatedCrash

DIRECTORY = "/s"
GROUP = (1, 2, 3)


def write(disk: SimDisk, name: str, data: bytes) -> None:
    file = disk.vfs().create(f"{DIRECTORY}/{name}")
    file.write_at(0, (data,))
    file.sync()
    file.close()


def disk_with(*numbers: int, compacting: Sequence[Sequence[int]] = ()) -> SimDisk:
    """Segments that hold their own number, and files that are to replace groups of them."""
    disk = SimDisk()
    vfs = disk.vfs()
    vfs.make_dir(DIRECTORY)
    vfs.sync_dir("/")
    for number in numbers:
        write(disk, segment_name(number), b"%d" % number)
    for group in compacting:
        write(disk, compacting_name(group), b"-".join(b"%d" % number for number in group))
    vfs.sync_dir(DIRECTORY)
    return disk


def content(disk: SimDisk) -> dict[int, bytes]:
    """What each name leads to, links included."""
    vfs = disk.vfs()
    found: dict[int, bytes] = {}
    for name in vfs.list_dir(DIRECTORY):
        assert name.endswith(".segment"), f"{name} was left behind"
        file = vfs.open(f"{DIRECTORY}/{name}")
        found[int(name.split(".")[0])] = file.read_at(0, 99)
        file.close()
    return found


OLD = {1: b"1", 2: b"2", 3: b"3", 4: b"4"}
NEW = {1: b"1-2-3", 2: b"1-2-3", 3: b"1-2-3", 4: b"4"}


def states() -> Iterator[tuple[int, bool, SimDisk]]:
    """The disk after each call of the swap, with the call itself done or cut."""
    whole = disk_with(1, 2, 3, 4, compacting=[GROUP])
    install_group(whole.copy().vfs(), DIRECTORY, GROUP)
    for calls in range(1, 99):
        for cut in (True, False):
            disk = disk_with(1, 2, 3, 4, compacting=[GROUP])
            before = disk.operations
            disk.crash_after(calls, cut=cut)
            try:
                install_group(disk.vfs(), DIRECTORY, GROUP)
                if disk.operations - before < calls:
                    return
            except SimulatedCrash:
                pass
            yield calls, cut, disk


def test_the_swap_puts_one_file_in_the_place_of_the_group() -> None:
    disk = disk_with(1, 2, 3, 4, compacting=[GROUP])
    install_group(disk.vfs(), DIRECTORY, GROUP)
    assert content(disk) == NEW
    assert disk.pending_effects() == []
    assert segment_numbers(disk.vfs(), DIRECTORY) == [1, 4]
    assert remove_symlinks(disk.vfs(), DIRECTORY) == 2
    assert content(disk) == {1: b"1-2-3", 4: b"4"}


def test_a_name_never_leads_to_entries_of_another_segment_alone() -> None:
    """A link stands in a member's place only after the first one holds all entries."""
    for calls, cut, crashed in states():
        vfs = crashed.copy().vfs()
        for number in (1, 2, 3, 4):
            file = vfs.open(f"{DIRECTORY}/{segment_name(number)}")
            assert file.read_at(0, 99) in (OLD[number], NEW[number]), (calls, cut, number)


@pytest.mark.parametrize("survived", ["kill", "nothing unsynced", "everything"])
def test_recovery_finishes_or_undoes_every_state_of_the_swap(survived: str) -> None:
    outcomes: list[bool] = []
    for calls, cut, crashed in states():
        if survived == "kill":
            disk = crashed.copy()
        else:
            disk = crashed.after_crash(
                Choice.LOST if survived == "nothing unsynced" else Choice.KEPT
            )
        recover_groups(disk.vfs(), DIRECTORY)
        found = content(disk)
        assert found in (OLD, NEW), (calls, cut)
        outcomes.append(found == NEW)
        again = disk.fingerprint()
        assert recover_groups(disk.vfs(), DIRECTORY) == 0
        assert disk.fingerprint() == again
        # A power loss may take the last steps of the recovery; then it is done once more.
        later = disk.after_crash(Choice.LOST)
        recover_groups(later.vfs(), DIRECTORY)
        assert content(later) == found
    # There is one point of no return: before it all is old, after it all is new.
    assert outcomes == sorted(outcomes)
    assert not outcomes[0]
    assert outcomes[-1]


def without_hard_links(disk: SimDisk) -> SimDisk:
    """The directory as a copy that knows symbolic links, but makes every file one of its own."""
    copied = SimDisk()
    vfs, source = copied.vfs(), disk.vfs()
    vfs.make_dir(DIRECTORY)
    vfs.sync_dir("/")
    for name in source.list_dir(DIRECTORY):
        status = source.stat(f"{DIRECTORY}/{name}")
        assert status is not None
        if status.kind is FileKind.SYMLINK:
            vfs.symlink(segment_name(1), f"{DIRECTORY}/{name}")
        else:
            write(copied, name, disk.files()[f"{DIRECTORY}/{name}"])
    vfs.sync_dir(DIRECTORY)
    return copied


def test_a_directory_that_was_copied_without_hard_links_loses_nothing() -> None:
    for calls, cut, crashed in states():
        disk = without_hard_links(crashed.copy())
        recover_groups(disk.vfs(), DIRECTORY)
        found = content(disk)
        # Undone, or the first is new: then the others are old, which only overlaps, or links.
        assert found[1] in (b"1", b"1-2-3"), (calls, cut)
        for number in (2, 3):
            assert found[number] == OLD[number] or found[1] == found[number] == b"1-2-3"
        assert recover_groups(disk.vfs(), DIRECTORY) == 0


def test_files_of_several_groups_are_finished_each_by_itself() -> None:
    disk = disk_with(1, 2, 3, 4, 5, 6, compacting=[(1, 2), (3, 4), (5, 6)])
    vfs = disk.vfs()
    vfs.link(f"{DIRECTORY}/{compacting_name((1, 2))}", f"{DIRECTORY}/{1:016d}.link")
    vfs.link(f"{DIRECTORY}/{compacting_name((5, 6))}", f"{DIRECTORY}/{5:016d}.link")
    vfs.rename(f"{DIRECTORY}/{5:016d}.link", f"{DIRECTORY}/{segment_name(5)}")
    assert recover_groups(vfs, DIRECTORY) == 3
    assert content(disk) == {1: b"1-2", 2: b"1-2", 3: b"3", 4: b"4", 5: b"5-6", 6: b"5-6"}
    assert disk.pending_effects() == []


def test_a_link_from_an_older_run_is_replaced() -> None:
    disk = disk_with(1, 2, 3, 4, compacting=[GROUP])
    write(disk, f"{1:016d}.link", b"stale")
    write(disk, f"{2:016d}.link", b"stale")
    install_group(disk.vfs(), DIRECTORY, GROUP)
    assert content(disk) == NEW


def test_a_link_that_is_left_over_alone_is_deleted() -> None:
    disk = disk_with(1, 2)
    write(disk, f"{2:016d}.link", b"stale")
    assert recover_groups(disk.vfs(), DIRECTORY) == 0
    assert content(disk) == {1: b"1", 2: b"2"}
    assert disk.pending_effects() == []


def test_three_links_mean_complete_as_well() -> None:
    """The file itself, the first segment, and the link that was to be renamed."""
    disk = disk_with(1, 2, 3, 4, compacting=[GROUP])
    vfs = disk.vfs()
    compacting = f"{DIRECTORY}/{compacting_name(GROUP)}"
    vfs.link(compacting, f"{DIRECTORY}/{1:016d}.link")
    vfs.unlink(f"{DIRECTORY}/{segment_name(1)}")
    vfs.link(compacting, f"{DIRECTORY}/{segment_name(1)}")
    status = vfs.stat(compacting)
    assert status is not None
    assert status.links == 3
    recover_groups(vfs, DIRECTORY)
    assert content(disk) == NEW


def test_two_links_without_the_rename_do_not_pass_for_a_replaced_segment() -> None:
    disk = disk_with(1, 2, 3, 4, compacting=[GROUP])
    vfs = disk.vfs()
    vfs.link(f"{DIRECTORY}/{compacting_name(GROUP)}", f"{DIRECTORY}/{1:016d}.link")
    recover_groups(vfs, DIRECTORY)
    assert content(disk) == NEW


def test_a_file_that_nothing_links_to_is_thrown_away_whatever_is_in_it() -> None:
    disk = disk_with(1, 2, 3, 4)
    write(disk, compacting_name(GROUP), b"half a seg")
    assert recover_groups(disk.vfs(), DIRECTORY) == 1
    assert content(disk) == OLD


def test_what_a_failed_run_left_is_gone_before_the_next_one() -> None:
    disk = disk_with(1, 2, 3, 4, compacting=[(1, 2), (1,), (3, 4)])
    for number in (1, 2):
        write(disk, f"{number:016d}.link", b"stale")
    remove_stale(disk.vfs(), DIRECTORY, 1)
    names = disk.vfs().list_dir(DIRECTORY)
    assert [name for name in names if not name.endswith(".segment")] == [compacting_name((3, 4))]


def test_a_group_has_one_to_eight_members() -> None:
    assert len(compacting_name(range(1, 9))) < 255
    for numbers in ((), range(1, 10)):
        with pytest.raises(InvariantViolation, match="1 to 8"):
            compacting_name(numbers)


def test_a_link_whose_target_is_gone_does_not_disturb_a_start() -> None:
    story = Streams.new()
    story.segment(values(3))
    story.disk.vfs().symlink(segment_name(99), f"{story.directory()}/{segment_name(98)}")
    story.reopen()
    assert story.names(suffix=".segment") == [segment_name(1)]
    story.assert_whole()


def test_a_log_that_was_copied_in_the_middle_of_a_swap_opens_whole() -> None:
    """Without hard links: the first segment is the new one, the others are still the old ones."""
    story = Streams.new()
    for part in range(3):
        story.segment([value(f"{part}"), *puts(range(4), f"{part}"), delete("k9")])
    story.segment([put("end")])
    story.snapshot()
    sources = {name: story.disk.files()[f"{story.directory()}/{name}"] for name in story.names()}
    story.major(full=True)
    merged = story.disk.files()[f"{story.directory()}/{segment_name(1)}"]
    assert merged != sources[segment_name(1)]
    vfs = story.disk.vfs()
    for name, data in (
        (segment_name(2), sources[segment_name(2)]),
        (segment_name(3), sources[segment_name(3)]),
        (compacting_name(GROUP), merged),
    ):
        path = f"{story.directory()}/{name}"
        if vfs.stat(path) is not None:
            vfs.unlink(path)
        file = vfs.create(path)
        file.write_at(0, (data,))
        file.close()
    story.reopen()
    assert story.numbers() == [1, 2, 3, 4]
    story.assert_live()
    assert story.major(full=True).failures == []
    story.assert_live()
    story.reopen()
    story.assert_live()
