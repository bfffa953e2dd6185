"""A full disk is an answer: reads go on, nothing is lost, and appends work when there is room."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.embedded.logs import BACKGROUND, INLINE, flush, open_sim, values, wait_until
from tidelog import Log, Options
from tidelog.errors import DiskFull, StorageFailed
from tidelog.limits import WAL_BACKLOG_FILES_MAX
from tidelog.testing.disk import Op, SimDisk

VALUE = bytes(1000)


def fill(disk: SimDisk) -> None:
    """Leave no room at all."""
    disk.capacity_bytes = 0


def free(disk: SimDisk) -> None:
    disk.capacity_bytes = None


def append_until_full(log: Log, appends_max: int = 3000) -> list[int]:
    """GLSNs of what was acknowledged before the disk was full."""
    glsns: list[int] = []
    full: DiskFull | None = None
    for _ in range(appends_max):
        try:
            glsns.append(log.append(VALUE).glsn)
        except DiskFull as error:
            full = error
            break
    assert full is not None, "the disk never filled up"
    assert full.definite
    assert "free" in str(full)
    return glsns


def check_all_there(log: Log, glsns: list[int]) -> None:
    assert [record.glsn for record in log.read()] == glsns == list(range(1, len(glsns) + 1))


@pytest.mark.parametrize("streams", [1, 3])
def test_appends_are_refused_on_a_full_disk_and_go_on_when_there_is_room(streams: int) -> None:
    disk = SimDisk()
    with open_sim(disk, streams=streams) as log:
        glsns = [log.append(VALUE).glsn for _ in range(10)]
        fill(disk)
        glsns += append_until_full(log)
        assert len(glsns) > 30, "what the WAL file has room for is still taken"
        check_all_there(log, glsns)
        with pytest.raises(DiskFull):
            log.append(VALUE)
        free(disk)
        glsns += [log.append(VALUE).glsn for _ in range(100)]
        check_all_there(log, glsns)
        assert log.log_stats().wal_backlog_files <= 1, "the flush that failed was made up for"
    with open_sim(disk) as log:
        check_all_there(log, glsns)


def test_a_full_disk_survives_a_crash_and_a_restart() -> None:
    disk = SimDisk()
    log = open_sim(disk, streams=2)
    fill(disk)
    glsns = append_until_full(log)
    crashed = disk.after_crash()
    with open_sim(crashed) as log:
        check_all_there(log, glsns)
    free(crashed)
    with open_sim(crashed) as log:
        check_all_there(log, [*glsns, log.append(VALUE).glsn])


def test_closing_on_a_full_disk_loses_nothing() -> None:
    disk = SimDisk()
    with open_sim(disk, streams=2) as log:
        fill(disk)
        glsns = append_until_full(log)
    with open_sim(disk) as log:
        check_all_there(log, glsns)


def test_a_flush_that_stops_between_two_streams_loses_nothing() -> None:
    """One stream is in its segment, the other is not; the manifest is written all the same."""
    disk = SimDisk()
    with open_sim(disk, streams=2) as log:
        glsns = [log.append(VALUE).glsn for _ in range(20)]
        disk.fail(Op.WRITE, ".segment.tmp", errno.ENOSPC, after=1)
        log.engine.roll()
        with pytest.raises(DiskFull):
            log.engine.maintenance.flush_rolled()
        check_all_there(log, glsns)
        log.create_topic("other")
    with open_sim(disk) as log:
        check_all_there(log, glsns)
        flush(log)
        check_all_there(log, glsns)


def test_a_frame_that_does_not_fit_is_refused_before_any_of_it_is_written() -> None:
    """The file has to grow for it, and cannot."""
    disk = SimDisk()
    with open_sim(disk) as log:
        log.append(b"before")
        disk.capacity_bytes = sum(map(len, disk.files().values())) + (100 << 10)
        with pytest.raises(DiskFull):
            log.append(bytes(200 << 10))
        log.append(b"small")
        free(disk)
        log.append(bytes(200 << 10))
        assert [len(value) for value in values(log)] == [6, 5, 200 << 10]
    with open_sim(disk) as log:
        assert [len(value) for value in values(log)] == [6, 5, 200 << 10]


def test_a_disk_that_fills_up_inside_a_frame_stops_the_log() -> None:
    disk = SimDisk()
    log = open_sim(disk)
    log.append(b"a")
    disk.fail(Op.WRITE, ".wal", errno.ENOSPC, partial=True)
    with pytest.raises(StorageFailed, match="filled up inside a WAL frame") as caught:
        log.append(VALUE * 5)
    assert not caught.value.definite
    assert values(log) == [b"a"]
    log.close()
    with open_sim(disk) as log:
        assert values(log) == [b"a"]
        assert log.append(b"b").glsn == 2


def keyed(log: Log) -> None:
    """Segments in which some entries are dead and some are not."""
    for turn in range(4):
        numbers = range(20 * turn, 20 * turn + 50)
        log.put_batch([(b"%d" % n, b"%d" % turn + bytes(100)) for n in numbers])
        flush(log)


@pytest.mark.parametrize("suffix", [".live.tmp", ".snapshot.tmp"])
def test_a_snapshot_that_finds_no_room_changes_nothing(suffix: str) -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        keyed(log)
        log.put(b"0", b"new")
        index = log.stats().streams[0].snapshot_index
        disk.fail(Op.WRITE, suffix, errno.ENOSPC)
        with pytest.raises(DiskFull, match="free some space") as caught:
            log.snapshot()
        assert caught.value.definite
        assert log.stats().streams[0].snapshot_index == index
        log.snapshot()
        assert log.stats().streams[0].snapshot_index > index
    with open_sim(disk) as log:
        found = log.get(b"0")
        assert found is not None
        assert found.value == b"new"


def fill_up(disk: SimDisk) -> None:
    disk.capacity_bytes = 0


def fail_in_the_middle(disk: SimDisk) -> None:
    disk.fail(Op.WRITE, ".compacting", errno.ENOSPC, partial=True)


@pytest.mark.parametrize("no_room", [fill_up, fail_in_the_middle])
def test_a_compaction_that_finds_no_room_leaves_its_segments_as_they_are(
    no_room: Callable[[SimDisk], None],
) -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        keyed(log)
        log.snapshot()
        before = list(log.read())
        store = log.engine.node.streams[1]
        no_room(disk)
        result = log.engine.maintenance.major(store, full=True)
        assert len(result.failures) == 1
        assert "stay as they are" in result.failures[0]
        assert log.log_stats().compaction_failures == 1
        assert "stay as they are" in log.log_stats().last_compaction_failure
        assert list(log.read()) == before
        assert not [path for path in disk.files() if path.endswith(".compacting")]
        free(disk)
        assert not log.compact(full=True).failures
        assert {log.get(b"%d" % n) for n in range(110)} <= set(before)
        assert len(list(log.read())) < len(before)


def test_a_worker_without_room_lets_appends_go_on_until_its_backlog_is_full() -> None:
    disk = SimDisk()
    options = Options(wal_file_bytes=64 << 10, tick_seconds=0.01, compaction=BACKGROUND.compaction)
    with open_sim(disk, options=options) as log:
        disk.fail(Op.WRITE, ".segment.tmp", errno.ENOSPC, times=1 << 30)
        glsns = append_until_full(log)
        assert log.log_stats().wal_backlog_files == WAL_BACKLOG_FILES_MAX + 1
        check_all_there(log, glsns)
        disk.faults._faults.clear()
        wait_until(lambda: log.log_stats().wal_backlog_files == 0, "the flush of the backlog")
        glsns.append(log.append(VALUE).glsn)
        check_all_there(log, glsns)


def test_a_refused_append_sets_a_new_try_of_the_flush_going() -> None:
    """Nobody needs to wait for the next tick, which may be far away."""
    disk = SimDisk()
    options = Options(wal_file_bytes=64 << 10, tick_seconds=3600, compaction=INLINE.compaction)
    with open_sim(disk, options=options) as log:
        disk.fail(Op.WRITE, ".segment.tmp", errno.ENOSPC, times=1 << 30)
        append_until_full(log)
        disk.faults._faults.clear()
        with pytest.raises(DiskFull):
            log.append(VALUE)
        wait_until(lambda: log.log_stats().wal_backlog_files == 0, "the flush of the backlog")
        log.append(VALUE)


@pytest.mark.parametrize("end", ["closed", "killed", "power loss"])
def test_a_flush_that_is_half_done_lets_no_delete_die(end: str) -> None:
    """The flush left out what the delete hides; from the WAL that comes back at the next start."""
    disk = SimDisk()
    log = open_sim(disk)
    other = log.create_topic("other")
    log.put(b"k", b"old")
    log.delete(b"k")
    other.append(b"y")
    log.snapshot()
    disk.fail(Op.CREATE, ".segment.tmp", errno.ENOSPC, after=1, times=1 << 30)
    log.engine.roll()
    with pytest.raises(DiskFull):
        log.engine.maintenance.flush_rolled()
    log.append(b"more")
    log.snapshot()
    assert 2 in log.engine.node.streams[1].snapshot.live
    if end == "closed":
        log.close()
    disk = disk.after_crash() if end == "power loss" else disk.copy()
    disk.faults._faults.clear()
    with open_sim(disk) as log:
        log.snapshot()
        assert log.get(b"k") is None
        log.compact(full=True)
        flush(log)
        log.snapshot()
        assert log.get(b"k") is None
    with open_sim(disk) as log:
        assert log.get(b"k") is None
        assert values(log)[-1] == b"more"
