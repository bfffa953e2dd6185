"""A failed write or sync stops the log for good, and says so; reads go on."""

from __future__ import annotations

import errno

import pytest

from tests.embedded.logs import (
    BACKGROUND,
    flush,
    gated,
    in_thread,
    open_sim,
    together,
    values,
    wait_for_queued,
    wait_until,
)
from tidelog import Log, Options
from tidelog.errors import Busy, LogError, StorageFailed
from tidelog.limits import WAL_BACKLOG_FILES_MAX
from tidelog.testing.disk import Choice, Op, SimDisk

VALUE = bytes(1000)


def append_many(log: Log, count: int) -> None:
    for _ in range(count):
        log.append(VALUE)


def refuses_everything(log: Log) -> bool:
    """Whether no call that writes gets through any more."""
    for call in (
        lambda: log.append(b"later"),
        lambda: log.trim(1),
        lambda: log.create_topic("later"),
        lambda: log.add_streams("default", 1),
    ):
        with pytest.raises(StorageFailed, match=r"stopped.*open it again"):
            call()
    return True


@pytest.mark.parametrize(("operation", "code"), [(Op.SYNC, errno.EIO), (Op.WRITE, errno.EIO)])
@pytest.mark.parametrize("kept", [Choice.LOST, Choice.KEPT])
def test_a_failed_wal_write_stops_the_log(operation: Op, code: int, kept: Choice) -> None:
    disk = SimDisk()
    log = open_sim(disk, streams=2)
    log.append_batch([b"a", b"b"])
    disk.fail(operation, ".wal", code)
    with pytest.raises(StorageFailed, match=r"\.wal.*open it again") as caught:
        log.append_batch([b"c", b"d"])
    assert not caught.value.definite
    assert refuses_everything(log)
    assert values(log) == [b"a", b"b"], "what failed is not visible"
    assert log.high_watermark == 2
    log.close()
    with open_sim(disk.after_crash(kept)) as log:
        assert values(log) in ([b"a", b"b"], [b"a", b"b", b"c", b"d"]), "all of a frame, or none"
        assert log.append(b"e").glsn == log.high_watermark


def test_a_failed_sync_reaches_everyone_in_the_group() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)
    log = open_sim(disk, vfs=vfs)
    log.append(b"a")

    def append(_: int) -> type[BaseException] | None:
        try:
            log.append(b"x")
        except LogError as error:
            return type(error)
        return None

    with gate.shut(), in_thread(lambda: log.append(b"b")) as held:
        gate.wait_until_held()
        with in_thread(lambda: together(4, append)) as others:
            wait_for_queued(log, 4)
            disk.fail(Op.SYNC, ".wal", errno.EIO, after=1)
            gate.open()
            assert others.result(20) == [StorageFailed] * 4
        assert held.result(20).glsn == 2
    assert refuses_everything(log)
    log.close()
    with open_sim(disk.after_crash()) as log:
        assert values(log) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        (Op.SYNC, ".segment.tmp"),
        (Op.RENAME, ".segment"),
        (Op.SYNC_DIR, "/streams/0000000000000001"),
        (Op.SYNC, "manifest.tmp"),
        (Op.RENAME, "manifest"),
    ],
)
def test_a_flush_that_fails_stops_the_log_and_loses_nothing(operation: Op, suffix: str) -> None:
    disk = SimDisk()
    log = open_sim(disk)
    glsns = [log.append(VALUE).glsn for _ in range(10)]
    log.engine.roll()
    disk.fail(operation, suffix, errno.EIO)
    with pytest.raises(StorageFailed):
        log.engine.maintenance.flush_rolled()
    assert refuses_everything(log)
    assert [record.glsn for record in log.read()] == glsns
    log.close()
    for kept in (Choice.LOST, Choice.KEPT):
        with open_sim(disk.after_crash(kept)) as log:
            assert [record.glsn for record in log.read()] == glsns
            flush(log)
            assert [record.glsn for record in log.read()] == glsns


def test_a_commit_that_is_torn_away_stops_the_log() -> None:
    """An interrupt may hit between the WAL and the streams: nothing may be written after it."""
    disk = SimDisk()
    log = open_sim(disk)
    log.append(b"a")
    store = log.engine.node.streams[1]
    with pytest.MonkeyPatch.context() as patch:

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(type(store), "apply_batch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            log.append(b"b")
    assert refuses_everything(log)
    assert values(log) == [b"a"]
    log.close()
    with open_sim(disk.after_crash()) as log:
        assert values(log) == [b"a", b"b"], "it was durable before the interrupt"
        assert log.append(b"c").glsn == 3


def test_the_failure_of_the_worker_reaches_the_next_append() -> None:
    disk = SimDisk()
    with open_sim(disk, options=BACKGROUND) as log:
        disk.fail(Op.SYNC, ".segment.tmp", errno.EIO)
        with pytest.raises(StorageFailed, match=r"fsync of .*segment.*failed"):
            append_many(log, 2000)
        acknowledged = log.high_watermark
        assert acknowledged > 50
        assert refuses_everything(log)
        assert [record.glsn for record in log.read()] == list(range(1, acknowledged + 1))
    with open_sim(disk.after_crash()) as log:
        assert log.high_watermark == acknowledged


def test_appends_are_held_back_when_segments_are_written_too_slowly() -> None:
    """The worker stands before a sync; after its bound the backlog refuses more."""
    disk = SimDisk()
    vfs, gate = gated(disk, ".segment")
    options = Options(wal_file_bytes=64 << 10, append_timeout_seconds=0.05)
    with open_sim(disk, options=options, vfs=vfs) as log:
        with gate.shut():
            with pytest.raises(Busy, match="more slowly than appends come: try again") as caught:
                append_many(log, 2000)
            assert caught.value.definite
            assert log.log_stats().wal_backlog_files == WAL_BACKLOG_FILES_MAX + 1
            refused_at = log.high_watermark
            assert len(list(log.read())) == refused_at
        wait_until(lambda: log.log_stats().wal_backlog_files == 0, "the flush of the backlog")
        assert log.append(VALUE).glsn == refused_at + 1
