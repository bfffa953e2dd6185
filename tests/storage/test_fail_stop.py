"""Which error of the disk becomes which error of the log, and which of them end it."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tidelog.errors import CorruptData, DiskFull, LogError, ReadOnly, StorageFailed
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.testing.disk import Op, SimDisk

Action = Callable[[FailStopVfs], object]


def disk_with_files() -> SimDisk:
    disk = SimDisk()
    vfs = disk.vfs()
    vfs.make_dir("/d")
    for name in ("a", "b"):
        vfs.create(f"/d/{name}").write_at(0, (b"bytes",))
    return disk


def write(vfs: FailStopVfs) -> None:
    vfs.open("/d/a", write=True).write_at(0, (b"new",))


def sync(vfs: FailStopVfs) -> None:
    vfs.open("/d/a", write=True).sync()


WRITES: list[tuple[Op, Action]] = [
    (Op.CREATE, lambda vfs: vfs.create("/d/c")),
    (Op.WRITE, write),
    (Op.MAKE_DIR, lambda vfs: vfs.make_dir("/d/e")),
    (Op.RENAME, lambda vfs: vfs.rename("/d/a", "/d/c")),
    (Op.LINK, lambda vfs: vfs.link("/d/a", "/d/c")),
    (Op.SYMLINK, lambda vfs: vfs.symlink("a", "/d/c")),
    (Op.UNLINK, lambda vfs: vfs.unlink("/d/a")),
]
SYNCS: list[tuple[Op, Action]] = [
    (Op.SYNC, sync),
    (Op.SYNC_DIR, lambda vfs: vfs.sync_dir("/d")),
]
READS: list[tuple[Op, Action]] = [
    (Op.OPEN, lambda vfs: vfs.open("/d/a")),
    (Op.STAT, lambda vfs: vfs.stat("/d/a")),
    (Op.STAT, lambda vfs: vfs.open("/d/a").size()),
    (Op.STAT, lambda vfs: vfs.free_bytes("/d")),
    (Op.LIST_DIR, lambda vfs: vfs.list_dir("/d")),
    (Op.READ, lambda vfs: vfs.open("/d/a").read_at(0, 5)),
]


def outcome(operation: Op, action: Action, code: int) -> tuple[type[LogError], FailStopVfs]:
    """What a call raises that the disk refuses with ``code``."""
    disk = disk_with_files()
    vfs = FailStopVfs(disk.vfs())
    disk.fail(operation, "", code)
    with pytest.raises(LogError) as caught:
        action(vfs)
    assert isinstance(caught.value.__cause__, OSError)
    return caught.type, vfs


@pytest.mark.parametrize(("operation", "action"), WRITES)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_f1_a_full_disk_is_an_answer_and_the_log_goes_on(
    operation: Op, action: Action, code: int
) -> None:
    kind, vfs = outcome(operation, action, code)
    assert kind is DiskFull
    assert vfs.failed is None
    action(vfs)


@pytest.mark.parametrize(("operation", "action"), WRITES)
@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_f1_a_disk_that_cannot_be_written_says_so(operation: Op, action: Action, code: int) -> None:
    kind, vfs = outcome(operation, action, code)
    assert kind is ReadOnly
    assert vfs.failed is None


@pytest.mark.parametrize(("operation", "action"), WRITES)
def test_f2_any_other_failed_write_stops_the_log(operation: Op, action: Action) -> None:
    kind, vfs = outcome(operation, action, errno.EIO)
    assert kind is StorageFailed
    assert vfs.failed is not None
    for _, other in WRITES + SYNCS:
        with pytest.raises(StorageFailed, match="the log has stopped"):
            other(vfs)


@pytest.mark.parametrize(("operation", "action"), SYNCS)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EINVAL])
def test_f2_every_failed_sync_stops_the_log(operation: Op, action: Action, code: int) -> None:
    kind, vfs = outcome(operation, action, code)
    assert kind is StorageFailed
    for _, other in WRITES + SYNCS:
        with pytest.raises(StorageFailed, match="the log has stopped"):
            other(vfs)


def test_f2_a_stopped_log_does_not_touch_the_disk_any_more_and_can_be_read() -> None:
    disk = disk_with_files()
    vfs = FailStopVfs(disk.vfs())
    file = vfs.open("/d/a", write=True)
    vfs.stop("a test")
    operations, before = disk.operations, disk.files()
    for call in (
        lambda: file.write_at(0, (b"x",)),
        file.sync,
        *(lambda action=action: action(vfs) for _, action in WRITES + SYNCS),
    ):
        with pytest.raises(StorageFailed, match="a test"):
            call()
    assert (disk.operations, disk.files()) == (operations, before)
    assert file.read_at(0, 5) == b"bytes"
    assert vfs.list_dir("/d") == ["a", "b"]


@pytest.mark.parametrize(("operation", "action"), READS)
def test_f3_what_cannot_be_read_is_damaged_and_not_absent(operation: Op, action: Action) -> None:
    kind, vfs = outcome(operation, action, errno.EIO)
    assert kind is CorruptData
    assert vfs.failed is None


def test_f3_a_file_that_is_gone_is_named() -> None:
    vfs = FailStopVfs(disk_with_files().vfs())
    with pytest.raises(CorruptData, match="/d/z is missing"):
        vfs.open("/d/z")
    with pytest.raises(CorruptData, match="/z is missing"):
        vfs.list_dir("/z")
    assert vfs.stat("/d/z") is None


def test_an_error_that_is_not_of_the_disk_passes_through() -> None:
    vfs = FailStopVfs(disk_with_files().vfs())
    lock = vfs.lock("/d/LOCK")
    with pytest.raises(BlockingIOError):
        vfs.lock("/d/LOCK")
    lock.release()
    vfs.lock("/d/LOCK").release()
    assert vfs.failed is None
