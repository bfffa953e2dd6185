"""Opening a directory: whose log is it, is it whole, and may we write to it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import tidelog
from tests.embedded.logs import INLINE, PATH, flush, open_sim, values
from tidelog.errors import CorruptData, LogLocked, NotALog, ReadOnly, StorageFailed
from tidelog.testing.disk import Op, SimDisk


def wal_files(directory: Path) -> list[Path]:
    return sorted((directory / "wal").glob("*.wal"))


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("streams/*/*.segment"))


def test_a_log_can_be_opened_once_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with tidelog.open(path, options=INLINE) as log:
        log.append(b"a")
        with pytest.raises(
            LogLocked, match=r"is open in another process.*close it there"
        ) as caught:
            tidelog.open(path, options=INLINE)
        assert caught.value.definite
        assert str(path) in str(caught.value)
        log.append(b"b")
    with tidelog.open(path, options=INLINE) as log:
        assert values(log) == [b"a", b"b"]


def test_a_missing_log_is_not_made_when_nothing_may_be_created(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="does not exist"):
        tidelog.open(tmp_path / "log", create=False)
    assert not (tmp_path / "log").exists()
    (tmp_path / "log").mkdir()
    with pytest.raises(NotALog, match="holds no log: it has no manifest"):
        tidelog.open(tmp_path / "log", create=False)
    assert not list((tmp_path / "log").iterdir())


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"picture")
    with pytest.raises(NotALog, match=r"holds 'holiday.jpg' and no log: give an empty"):
        tidelog.open(tmp_path, options=INLINE)
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["LOCK", "holiday.jpg"],
        ["holiday.jpg"],
    )
    assert (tmp_path / "holiday.jpg").read_bytes() == b"picture"


def test_a_file_in_place_of_the_directory_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    with pytest.raises(NotALog, match="is a file: give the directory"):
        tidelog.open(tmp_path / "log", options=INLINE)


def make_two_logs(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "mine", tmp_path / "other"
    for path in paths:
        with tidelog.open(path, options=INLINE) as log:
            log.append(path.name.encode())
            flush(log)
            log.append(b"in the WAL")
    return paths


def test_a_wal_file_of_another_log_is_refused(tmp_path: Path) -> None:
    mine, other = make_two_logs(tmp_path)
    wal_files(mine)[-1].write_bytes(wal_files(other)[-1].read_bytes())
    with pytest.raises(CorruptData, match=r"\.wal belongs to another log"):
        tidelog.open(mine, options=INLINE)
    with tidelog.open(other, options=INLINE) as log:
        assert values(log) == [b"other", b"in the WAL"]


def test_a_segment_of_another_log_is_refused(tmp_path: Path) -> None:
    mine, other = make_two_logs(tmp_path)
    segments(mine)[0].write_bytes(segments(other)[0].read_bytes())
    with pytest.raises(CorruptData, match=r"\.segment belongs to another log or stream"):
        tidelog.open(mine, options=INLINE)


def test_a_segment_under_a_wrong_number_is_refused(tmp_path: Path) -> None:
    mine, _ = make_two_logs(tmp_path)
    (segment,) = segments(mine)
    segment.with_name(f"{7:016d}.segment").write_bytes(segment.read_bytes())
    with pytest.raises(CorruptData, match="says that it is segment 1"):
        tidelog.open(mine, options=INLINE)


def test_a_log_without_its_manifest_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    mine, _ = make_two_logs(tmp_path)
    (mine / "manifest").unlink()
    for _ in range(2):  # The attempt must not make it look like a new log.
        with pytest.raises(CorruptData, match="its manifest is missing: restore it"):
            tidelog.open(mine, options=INLINE)


def test_a_log_whose_first_wal_file_holds_all_is_not_lost_with_its_manifest(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "log", options=INLINE) as log:
        log.append(b"a")
    (tmp_path / "log" / "manifest").unlink()
    with pytest.raises(CorruptData, match="manifest is missing"):
        tidelog.open(tmp_path / "log", options=INLINE)


def test_a_missing_segment_is_never_taken_for_nothing(tmp_path: Path) -> None:
    mine, _ = make_two_logs(tmp_path)
    segments(mine)[0].unlink()
    with pytest.raises(CorruptData, match=r"stream 1.*tidelog verify"):
        tidelog.open(mine, options=INLINE)


def test_a_missing_wal_file_is_never_taken_for_nothing(tmp_path: Path) -> None:
    mine, _ = make_two_logs(tmp_path)
    for path in wal_files(mine):
        path.unlink()
    with pytest.raises(CorruptData, match="WAL"):
        tidelog.open(mine, options=INLINE)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_directory_that_cannot_be_locked_is_read_only(code: int) -> None:
    disk = SimDisk()
    open_sim(disk).close()
    disk.fail(Op.LOCK, "LOCK", code)
    with pytest.raises(ReadOnly, match=f"{PATH} cannot be") as caught:
        open_sim(disk)
    assert caught.value.definite
    with open_sim(disk) as log:
        assert log.append(b"").glsn == 1


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("operation", [Op.MAKE_DIR, Op.CREATE])
def test_a_log_cannot_be_made_where_nothing_may_be_written(operation: Op, code: int) -> None:
    disk = SimDisk()
    disk.fail(operation, "", code)
    with pytest.raises(ReadOnly, match=r"not allowed to (make|create)") as caught:
        open_sim(disk)
    assert caught.value.definite
    with open_sim(disk) as log:
        assert log.append(b"").glsn == 1


def test_a_read_only_disk_refuses_an_append_and_keeps_what_is_there() -> None:
    """A file system that was mounted anew, read-only, under an open log."""
    disk = SimDisk()
    with open_sim(disk) as log:
        log.append(b"a")
        disk.fail(Op.WRITE, ".wal", errno.EROFS)
        with pytest.raises(ReadOnly, match=r"not allowed to write to .*\.wal"):
            log.append(b"b")
        with pytest.raises(StorageFailed, match=r"the log has stopped.*open it again"):
            log.append(b"c")
        assert values(log) == [b"a"]
    with open_sim(disk) as log:
        assert values(log) == [b"a"]
        assert log.append(b"b").glsn == 2


def test_a_start_that_fails_leaves_no_lock_behind(tmp_path: Path) -> None:
    mine, other = make_two_logs(tmp_path)
    whole = wal_files(mine)[-1].read_bytes()
    wal_files(mine)[-1].write_bytes(wal_files(other)[-1].read_bytes())
    with pytest.raises(CorruptData):
        tidelog.open(mine, options=INLINE)
    wal_files(mine)[-1].write_bytes(whole)
    with tidelog.open(mine, options=INLINE) as log:
        assert values(log) == [b"mine", b"in the WAL"]
