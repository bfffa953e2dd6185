"""The disk on which changes stay in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.cli.running import SMALL, keyed_log, segments_of
from tidelog.cli.read_only_disk import ReadOnlyDisk
from tidelog.cli.session import Session, marks_of, opened_for_reading, reading
from tidelog.embedded.topic import Topic
from tidelog.errors import CorruptData, ReadOnly
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import FileKind


@pytest.fixture
def disk(tmp_path: Path) -> ReadOnlyDisk:
    (tmp_path / "file").write_bytes(b"below")
    return ReadOnlyDisk(OsVfs())


def test_names_and_files_change_in_memory_alone(disk: ReadOnlyDisk, tmp_path: Path) -> None:
    before = marks_of(str(tmp_path))
    root = str(tmp_path)

    made = disk.create(f"{root}/new")
    made.write_at(2, [b"a", b"b"])
    disk.link(f"{root}/file", f"{root}/link")
    disk.symlink("link", f"{root}/symlink")
    disk.rename(f"{root}/file", f"{root}/moved")
    disk.unlink(f"{root}/moved")

    assert disk.list_dir(root) == ["link", "new", "symlink"]
    assert disk.open(f"{root}/new").read_at(0, 99) == b"\0\0ab"
    linked = disk.open(f"{root}/symlink")
    assert linked.read_at(0, 99) == b"below"
    linked.close()
    found = disk.stat(f"{root}/new")
    assert found is not None
    assert (found.kind, found.size) == (FileKind.FILE, 4)
    assert disk.stat(f"{root}/file") is None
    assert marks_of(str(tmp_path)) == before
    assert (tmp_path / "file").read_bytes() == b"below"


def test_a_file_below_is_not_written_to(disk: ReadOnlyDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/file", write=True)
    try:
        file.write_at(1, [b"el", b"ow"])  # What is there already.
        with pytest.raises(OSError, match="opened for reading"):
            file.write_at(1, [b"xx"])
    finally:
        file.close()
    assert (tmp_path / "file").read_bytes() == b"below"


def test_names_that_are_taken_or_missing_are_refused(disk: ReadOnlyDisk, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        disk.create(f"{tmp_path}/file")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/missing")
    disk.unlink(f"{tmp_path}/missing")
    with pytest.raises(OSError, match="opened for reading"):
        disk.make_dir(f"{tmp_path}/directory")


def test_a_file_that_was_replaced_is_noticed(disk: ReadOnlyDisk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/file").close()
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "other").rename(tmp_path / "file")

    with pytest.raises(OSError, match="another process replaced it"):
        disk.open(f"{tmp_path}/file")


def test_a_log_that_recovery_has_work_with_opens_without_a_trace(tmp_path: Path) -> None:
    data = tmp_path / "log"
    keyed_log(data)
    segments = segments_of(data)
    (data / "manifest.tmp").write_bytes(b"half")
    compacting = segments[0].parent / "-".join(s.stem for s in segments[:2])
    compacting.with_suffix(".compacting").write_bytes(b"half")
    for live in data.glob("streams/*/*.live"):
        live.unlink()
    before = marks_of(str(data))

    with opened_for_reading(str(data)) as engine:
        topic = Topic(engine, "default")
        assert topic.get(b"k3") is not None
        assert sum(1 for _ in topic.read()) >= 20
        with pytest.raises(ReadOnly):
            topic.append(b"x")

    assert marks_of(str(data)) == before
    with tidelog.open(data, options=SMALL) as log:
        assert log.get(b"k3") is not None


def test_work_is_repeated_only_while_files_change(tmp_path: Path) -> None:
    data = tmp_path / "log"
    keyed_log(data)
    looks: list[int] = []

    def unlucky(session: Session) -> int:
        looks.append(1)
        if len(looks) < 3:
            (data / "other").write_bytes(b"x" * len(looks))
            raise CorruptData("a file was swapped")
        return len(looks)

    def broken(session: Session) -> int:
        looks.append(1)
        raise CorruptData("a file is damaged")

    assert reading(str(data), unlucky) == 3
    looks.clear()
    with pytest.raises(CorruptData, match="damaged"):
        reading(str(data), broken)
    assert len(looks) == 1
