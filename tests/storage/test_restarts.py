"""A process that dies and comes back before anything was synced: what it finds is not yet safe.

What a new process reads may lie in the page cache alone.  It must make durable what it builds on,
or a power loss later takes the ground from under what it acknowledged.
"""

from __future__ import annotations

import errno
import itertools

import pytest

from tests.storage.streams import PATH, Streams, puts, values
from tidelog.errors import DiskFull, LogLocked, StorageFailed
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.testing.disk import Choice, Op, SimDisk, SimulatedCrash


def killed_at(story: Streams, operation: Op, suffix: str, action: str) -> None:
    """Run a step of the story and let the process die right before such a call."""
    trial = story.disk.copy()
    calls: list[tuple[Op, str]] = []
    probe = Streams(trial, story.file_bytes, lambda op, path: calls.append((op, path)))
    probe.model = story.model
    story.node.close()
    probe.open()

    class Killed(BaseException):
        pass

    dead = False

    def die(op: Op, path: str) -> None:
        nonlocal dead
        dead = dead or (op is operation and path.endswith(suffix))
        if dead:  # Nothing is tidied up any more either.
            raise Killed

    probe.watcher = die
    inner = probe.node.vfs.inner
    inner.watcher = die  # type: ignore[attr-defined]
    with pytest.raises(Killed):
        getattr(probe, action)()
    inner.watcher = lambda op, path: None  # type: ignore[attr-defined]
    probe.node.close()
    story.disk = trial.copy()


def lost_names(disk: SimDisk, *endings: str) -> list[Choice]:
    """Everything survives the power loss but changes of names that end so."""
    return [
        Choice.LOST if (effect.target or effect.path).endswith(endings) else Choice.KEPT
        for effect in disk.pending_effects()
    ]


def test_a_frame_that_was_written_and_not_synced_is_made_durable_by_the_next_start() -> None:
    story = Streams.new()
    story.write(values(2))
    batch = story.batch(values(3))
    story.disk.crash_after(1, cut=True)
    with pytest.raises(SimulatedCrash):
        story.frame(batch, cut=(1,))
    # The process died between write and sync; the kernel still has the bytes.
    story.node.close()
    story.disk = story.disk.copy()
    story.open()
    seen = story.read()
    assert len(seen) == 5
    story.close()
    story.disk = story.disk.after_crash(Choice.LOST)
    story.open()
    assert story.read() == seen


def test_a_frame_whose_sync_failed_is_written_again_before_it_counts() -> None:
    """After a failed sync the bytes are on no disk, but readers still see them."""
    story = Streams.new()
    story.write(values(2))
    story.disk.fail(Op.SYNC, ".wal", errno.EIO)
    with pytest.raises(StorageFailed, match="fsync"):
        story.write(values(3))
    story.kill()
    seen = story.read()
    assert len(seen) == 5
    story.close()
    story.disk = story.disk.after_crash(Choice.LOST)
    story.open()
    assert story.read() == seen


def test_a_file_whose_name_was_not_synced_gets_a_durable_name_before_frames_go_into_it() -> None:
    story = Streams.new()
    story.write(values(2))
    killed_at(story, Op.SYNC_DIR, "/wal", "roll")
    story.open()
    assert story.node.wal.number == 2
    story.write(values(3))
    story.power_loss(Choice.LOST)
    story.assert_whole()


def test_a_recycled_file_whose_name_was_not_synced_gets_one_before_frames_go_into_it() -> None:
    story = Streams.new()
    story.write(values(2))
    story.flush()
    killed_at(story, Op.SYNC_DIR, "/wal", "roll")
    story.open()
    story.write(values(3))
    story.power_loss(Choice.LOST)
    story.assert_whole()


def test_old_wal_files_go_only_after_the_manifest_that_drops_them_is_durable() -> None:
    story = Streams.new()
    story.write(values(2))
    killed_at(story, Op.SYNC_DIR, "/log", "flush")
    story.open()
    assert story.node.manifest.wal_file == 2
    story.power_loss(lost_names(story.disk, "/manifest"))
    story.assert_whole()


def test_an_older_snapshot_goes_only_after_the_newer_one_is_durable() -> None:
    story = Streams.new()
    story.segment(puts(range(4)))
    story.segment(puts(range(4), "w"))
    story.snapshot()
    story.minor()
    assert story.numbers() == [2]
    story.segment(puts(range(3), "x"))
    killed_at(story, Op.SYNC_DIR, "/0000000000000001", "snapshot")
    story.open()
    assert story.store().snapshot.index == 11
    story.power_loss(lost_names(story.disk, ".snapshot", ".live"))
    story.assert_live()


def test_a_segment_goes_only_after_the_snapshot_that_condemns_it_is_durable() -> None:
    story = Streams.new()
    story.segment(puts(range(4)))
    story.segment(puts(range(4), "w"))
    killed_at(story, Op.SYNC_DIR, "/0000000000000001", "snapshot")
    story.open()
    story.minor()
    assert story.numbers() == [2]
    story.power_loss(lost_names(story.disk, ".snapshot", ".live"))
    story.assert_live()


@pytest.mark.parametrize("kept", list(itertools.product((Choice.LOST, Choice.KEPT), repeat=2)))
def test_a_start_changes_nothing_that_a_second_start_does_not_find_again(
    kept: tuple[Choice, Choice],
) -> None:
    story = Streams.new()
    story.segment(puts(range(4)))
    story.write(puts(range(2), "w"))
    story.roll()
    story.write(puts(range(3), "x"))
    expected = story.read()
    for choice in kept:
        story.power_loss(choice)
        assert story.read() == expected
        assert story.disk.pending_effects() == []


def test_a_clean_end_after_half_a_flush_can_be_opened_again() -> None:
    """One stream's segment was written, the disk filled up at the next one's."""
    story = Streams.new(streams=2)
    story.write(values(5), stream=1)
    story.write(values(5), stream=2)
    story.roll()
    story.disk.fail(Op.WRITE, "0002/0000000000000001.segment.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        story.node.flush_oldest()
    assert (story.numbers(1), story.numbers(2)) == ([1], [])
    story.assert_whole()
    story.reopen()
    story.assert_whole()
    story.write(values(2), stream=1)
    story.flush()
    assert story.node.backlog == 0
    story.reopen()
    story.assert_whole()


def test_a_clean_end_after_half_a_flush_of_entries_that_came_after_a_truncation() -> None:
    story = Streams.new(streams=2)
    story.write(values(10))
    story.write(values(10), cut=False)
    story.write(values(10), cut=False)
    story.truncate(11)
    story.write(values(5), term=2)
    story.write(values(5), stream=2)
    story.roll()
    story.disk.fail(Op.WRITE, "0002/0000000000000001.segment.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        story.node.flush_oldest()
    story.reopen()
    story.assert_whole()
    story.flush()
    story.reopen()
    story.assert_whole()


def test_a_topic_that_is_made_in_the_middle_of_a_flush_does_no_harm() -> None:
    story = Streams.new(streams=2)
    story.write(values(5), stream=1)
    story.write(values(5), stream=2)
    story.roll()
    table = story.store(1).view.memtables[0]
    story.store(1).flush(table)
    story.add_topic("second")
    story.power_loss()
    story.assert_whole()


def test_a_truncation_is_replayed_although_the_manifest_knows_a_later_order() -> None:
    story = Streams.new()
    story.write(values(10), cut=False)
    story.truncate(5, term=2)
    story.write(values(4), term=2)
    story.reopen()
    story.assert_whole()
    assert story.store().ordered_end == story.store().end_llsn == 9
    story.power_loss()
    story.assert_whole()


def test_a_second_process_finds_the_log_locked_and_changes_nothing() -> None:
    story = Streams.new()
    story.write(values(2))
    before = story.disk.fingerprint()
    with pytest.raises(LogLocked, match="another process"):
        open_node_store(story.disk.vfs(), PATH, StoreOptions(story.file_bytes))
    assert story.disk.fingerprint() == before
