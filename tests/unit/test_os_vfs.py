"""The contract of ``Vfs``, held against the real disk and the simulated one alike.

After it: what only the real disk has (modes, descriptors, locks between processes).
"""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelog.storage import os_vfs
from tidelog.storage.os_vfs import WRITE_BUFFERS_MAX, WRITEBACK_BYTES, OsFile, OsVfs
from tidelog.storage.vfs import FileKind, Vfs
from tidelog.testing.disk import SimDisk


@dataclass(frozen=True)
class Disk:
    vfs: Vfs
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, data: bytes) -> None:
        file = self.vfs.create(self.path(name))
        file.write_at(0, [data])
        file.close()

    def read(self, name: str) -> bytes:
        file = self.vfs.open(self.path(name))
        try:
            return file.read_at(0, 1 << 20)
        finally:
            file.close()

    def inode(self, name: str) -> int:
        found = self.vfs.stat(self.path(name))
        assert found is not None
        return found.inode


def simulated_disk() -> Disk:
    vfs = SimDisk().vfs()
    vfs.make_dir("/disk")
    return Disk(vfs, "/disk")


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Disk(OsVfs(), str(tmp_path)) if request.param == "real" else simulated_disk()


def raises(code: int) -> pytest.RaisesExc[OSError]:
    return pytest.RaisesExc(OSError, check=lambda error: error.errno == code)


class TestFiles:
    def test_what_is_written_is_read_back(self, disk: Disk) -> None:
        file = disk.vfs.create(disk.path("a"))
        file.write_at(0, [b"one", b"", b"two"])
        file.sync()
        assert file.read_at(0, 6) == b"onetwo"
        assert file.read_at(2, 2) == b"et"
        assert file.size() == 6
        file.close()

    def test_reads_are_short_only_at_the_end(self, disk: Disk) -> None:
        disk.write("a", b"0123456789")
        file = disk.vfs.open(disk.path("a"))
        assert file.read_at(8, 100) == b"89"
        assert file.read_at(10, 1) == b""
        assert file.read_at(99, 1) == b""
        assert file.read_at(3, 0) == b""
        file.close()

    def test_a_write_behind_the_end_leaves_zeros_between(self, disk: Disk) -> None:
        file = disk.vfs.create(disk.path("a"))
        file.write_at(5, [b"x"])
        assert file.read_at(0, 10) == b"\0\0\0\0\0x"
        file.close()

    def test_a_write_of_nothing_does_not_grow_the_file(self, disk: Disk) -> None:
        file = disk.vfs.create(disk.path("a"))
        file.write_at(100, [])
        file.write_at(100, [b"", b""])
        assert file.size() == 0
        file.close()

    def test_an_overwrite_changes_only_its_bytes(self, disk: Disk) -> None:
        disk.write("a", b"0123456789")
        file = disk.vfs.open(disk.path("a"), write=True)
        file.write_at(2, [b"AB", b"C"])
        file.close()
        assert disk.read("a") == b"01ABC56789"

    def test_thousands_of_parts_are_written_in_order(self, disk: Disk) -> None:
        parts = [b"%d," % i for i in range(3 * WRITE_BUFFERS_MAX + 7)]
        file = disk.vfs.create(disk.path("a"))
        file.write_at(3, parts)
        assert file.read_at(3, 1 << 20) == b"".join(parts)
        file.close()

    def test_create_refuses_a_name_that_is_taken(self, disk: Disk) -> None:
        disk.write("a", b"old")
        disk.vfs.symlink("nowhere", disk.path("link"))
        disk.vfs.make_dir(disk.path("dir"))
        for name in ("a", "link", "dir"):
            with pytest.raises(FileExistsError):
                disk.vfs.create(disk.path(name))
        assert disk.read("a") == b"old"

    def test_a_missing_file_is_not_found(self, disk: Disk) -> None:
        for call in (disk.vfs.open, disk.vfs.unlink, disk.vfs.list_dir, disk.vfs.sync_dir):
            with pytest.raises(FileNotFoundError):
                call(disk.path("missing"))
        with pytest.raises(FileNotFoundError):
            disk.vfs.create(disk.path("missing/a"))
        with pytest.raises(FileNotFoundError):
            disk.vfs.rename(disk.path("missing"), disk.path("b"))
        with pytest.raises(FileNotFoundError):
            disk.vfs.link(disk.path("missing"), disk.path("b"))

    def test_a_directory_is_not_opened_as_a_file(self, disk: Disk) -> None:
        for write in (False, True):
            with pytest.raises(IsADirectoryError):
                disk.vfs.open(disk.root, write=write)
        with pytest.raises(IsADirectoryError):
            disk.vfs.unlink(disk.root)

    def test_a_file_opened_for_reading_refuses_writes(self, disk: Disk) -> None:
        disk.write("a", b"old")
        file = disk.vfs.open(disk.path("a"))
        with raises(errno.EBADF):
            file.write_at(0, [b"new"])
        file.close()
        assert disk.read("a") == b"old"

    def test_a_closed_file_refuses_everything_and_closes_again(self, disk: Disk) -> None:
        file = disk.vfs.create(disk.path("a"))
        file.close()
        file.close()
        calls: list[Callable[[], object]] = [
            lambda: file.read_at(0, 1),
            lambda: file.write_at(0, [b"x"]),
            file.sync,
            file.size,
        ]
        for call in calls:
            with raises(errno.EBADF):
                call()

    def test_negative_positions_are_refused(self, disk: Disk) -> None:
        file = disk.vfs.create(disk.path("a"))
        with raises(errno.EINVAL):
            file.read_at(-1, 1)
        with raises(errno.EINVAL):
            file.write_at(-1, [b"x"])
        file.close()

    def test_an_open_file_outlives_its_name(self, disk: Disk) -> None:
        disk.write("a", b"old")
        disk.write("b", b"new")
        reader = disk.vfs.open(disk.path("a"), write=True)
        disk.vfs.rename(disk.path("b"), disk.path("a"))
        assert reader.read_at(0, 10) == b"old"
        disk.vfs.unlink(disk.path("a"))
        reader.write_at(3, [b"er"])
        reader.sync()
        assert reader.read_at(0, 10) == b"older"
        assert disk.vfs.list_dir(disk.root) == []
        reader.close()


class TestNames:
    def test_stat_tells_kind_size_and_links(self, disk: Disk) -> None:
        disk.write("a", b"12345")
        disk.vfs.link(disk.path("a"), disk.path("b"))
        disk.vfs.symlink("a", disk.path("s"))
        found = disk.vfs.stat(disk.path("a"))
        assert found is not None
        assert (found.kind, found.links, found.size) == (FileKind.FILE, 2, 5)
        assert found == disk.vfs.stat(disk.path("b"))
        link = disk.vfs.stat(disk.path("s"))
        assert link is not None
        assert (link.kind, link.links, link.size) == (FileKind.SYMLINK, 1, 1)
        directory = disk.vfs.stat(disk.root)
        assert directory is not None
        assert directory.kind is FileKind.DIRECTORY

    def test_stat_of_nothing_is_none(self, disk: Disk) -> None:
        assert disk.vfs.stat(disk.path("missing")) is None
        assert disk.vfs.stat(disk.path("missing/deeper")) is None
        disk.write("a", b"")
        with pytest.raises(NotADirectoryError):
            disk.vfs.stat(disk.path("a/deeper"))

    def test_names_are_listed_sorted(self, disk: Disk) -> None:
        for name in ("b", "a", "C", "10", "9"):
            disk.write(name, b"")
        disk.vfs.make_dir(disk.path("d"))
        disk.vfs.symlink("a", disk.path("l"))
        assert disk.vfs.list_dir(disk.root) == ["10", "9", "C", "a", "b", "d", "l"]
        with pytest.raises(NotADirectoryError):
            disk.vfs.list_dir(disk.path("a"))

    def test_making_a_directory_twice_is_fine(self, disk: Disk) -> None:
        disk.vfs.make_dir(disk.path("d"))
        disk.vfs.make_dir(disk.path("d"))
        disk.vfs.symlink("d", disk.path("to_directory"))
        disk.vfs.make_dir(disk.path("to_directory"))
        disk.vfs.sync_dir(disk.path("d"))

    def test_a_directory_cannot_take_the_name_of_a_file(self, disk: Disk) -> None:
        disk.write("a", b"")
        disk.vfs.symlink("nowhere", disk.path("dangling"))
        for name in ("a", "dangling"):
            with pytest.raises(FileExistsError):
                disk.vfs.make_dir(disk.path(name))
        with pytest.raises(FileNotFoundError):
            disk.vfs.make_dir(disk.path("missing/d"))

    def test_rename_replaces_the_target(self, disk: Disk) -> None:
        disk.write("a", b"new")
        disk.write("b", b"old")
        inode = disk.inode("a")
        disk.vfs.rename(disk.path("a"), disk.path("b"))
        assert disk.vfs.list_dir(disk.root) == ["b"]
        assert disk.read("b") == b"new"
        assert disk.inode("b") == inode

    def test_rename_of_two_names_of_one_inode_does_nothing(self, disk: Disk) -> None:
        disk.write("a", b"x")
        disk.vfs.link(disk.path("a"), disk.path("b"))
        disk.vfs.rename(disk.path("a"), disk.path("b"))
        disk.vfs.rename(disk.path("a"), disk.path("a"))
        assert disk.vfs.list_dir(disk.root) == ["a", "b"]

    def test_rename_moves_between_directories(self, disk: Disk) -> None:
        disk.vfs.make_dir(disk.path("d"))
        disk.vfs.make_dir(disk.path("e"))
        disk.write("d/a", b"x")
        disk.vfs.rename(disk.path("d/a"), disk.path("e/b"))
        assert disk.vfs.list_dir(disk.path("d")) == []
        assert disk.read("e/b") == b"x"

    def test_rename_moves_a_directory_with_its_files(self, disk: Disk) -> None:
        disk.vfs.make_dir(disk.path("d"))
        disk.write("d/a", b"x")
        disk.vfs.rename(disk.path("d"), disk.path("e"))
        assert disk.read("e/a") == b"x"
        assert disk.vfs.stat(disk.path("d")) is None
        with raises(errno.EINVAL):
            disk.vfs.rename(disk.path("e"), disk.path("e/inside"))

    def test_rename_replaces_a_symbolic_link_not_its_target(self, disk: Disk) -> None:
        disk.write("a", b"a")
        disk.write("b", b"b")
        disk.vfs.symlink("b", disk.path("s"))
        disk.vfs.rename(disk.path("a"), disk.path("s"))
        assert disk.read("s") == b"a"
        assert disk.read("b") == b"b"

    def test_link_gives_a_second_name(self, disk: Disk) -> None:
        disk.write("a", b"x")
        disk.vfs.link(disk.path("a"), disk.path("b"))
        assert disk.inode("a") == disk.inode("b")
        disk.vfs.unlink(disk.path("a"))
        assert disk.read("b") == b"x"
        disk.write("c", b"")
        with pytest.raises(FileExistsError):
            disk.vfs.link(disk.path("b"), disk.path("c"))
        with pytest.raises(PermissionError):
            disk.vfs.link(disk.root, disk.path("d"))

    def test_a_symbolic_link_leads_to_its_neighbour(self, disk: Disk) -> None:
        disk.vfs.make_dir(disk.path("d"))
        disk.vfs.symlink("a", disk.path("d/s"))
        disk.vfs.symlink("d", disk.path("t"))
        with pytest.raises(FileNotFoundError):
            disk.vfs.open(disk.path("d/s"))
        disk.write("d/a", b"x")
        assert disk.read("d/s") == b"x"
        assert disk.read("t/s") == b"x"
        disk.vfs.symlink("../d/a", disk.path("d/up"))
        assert disk.read("d/up") == b"x"
        disk.vfs.unlink(disk.path("d/s"))
        assert disk.read("d/a") == b"x"

    def test_a_link_to_itself_leads_nowhere(self, disk: Disk) -> None:
        disk.vfs.symlink("s", disk.path("s"))
        with raises(errno.ELOOP):
            disk.vfs.open(disk.path("s"))

    def test_a_symbolic_link_must_be_relative(self, disk: Disk) -> None:
        for target in ("/absolute", ""):
            with raises(errno.EINVAL):
                disk.vfs.symlink(target, disk.path("s"))
        assert disk.vfs.list_dir(disk.root) == []

    def test_the_disk_has_room(self, disk: Disk) -> None:
        assert disk.vfs.free_bytes(disk.root) > 0
        with pytest.raises(FileNotFoundError):
            disk.vfs.free_bytes(disk.path("missing"))


class TestLocks:
    def test_a_lock_is_held_by_one_until_released(self, disk: Disk) -> None:
        lock = disk.vfs.lock(disk.path("lock"))
        with pytest.raises(BlockingIOError, match=r"locked by .*process"):
            disk.vfs.lock(disk.path("lock"))
        other = disk.vfs.lock(disk.path("other"))
        lock.release()
        again = disk.vfs.lock(disk.path("lock"))
        lock.release()
        with pytest.raises(BlockingIOError):
            disk.vfs.lock(disk.path("lock"))
        again.release()
        other.release()

    def test_the_lock_file_stays(self, disk: Disk) -> None:
        disk.vfs.lock(disk.path("lock")).release()
        assert disk.vfs.list_dir(disk.root) == ["lock"]
        with pytest.raises(FileNotFoundError):
            disk.vfs.lock(disk.path("missing/lock"))


NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "s", "a/x")


def random_call(rng: random.Random, disk: Disk) -> Callable[[], object]:
    """A call on random names that returns something comparable."""
    vfs = disk.vfs
    one, two = disk.path(rng.choice(NAMES)), disk.path(rng.choice(NAMES))
    relative = rng.choice(("a", "b", "../a", "d", "e/a"))
    offset, data = rng.randrange(2000), bytes([rng.randrange(1, 256)]) * rng.randrange(2000)

    def create() -> None:
        vfs.create(one).close()

    def write() -> None:
        file = vfs.open(one, write=True)
        file.write_at(offset, [data[:7], data[7:]])
        file.sync()
        file.close()

    def read() -> tuple[bytes, int]:
        file = vfs.open(one)
        found = (file.read_at(offset // 2, len(data)), file.size())
        file.close()
        return found

    def describe() -> object:
        found = vfs.stat(one)
        if found is None or found.kind is FileKind.DIRECTORY:
            return found and found.kind
        return (found.kind, found.links, found.size)

    calls: Sequence[Callable[[], object]] = (
        create,
        write,
        read,
        describe,
        lambda: vfs.list_dir(one),
        lambda: vfs.make_dir(one),
        lambda: vfs.rename(one, two),
        lambda: vfs.link(one, two),
        lambda: vfs.symlink(relative, one),
        lambda: vfs.unlink(one),
        lambda: vfs.sync_dir(one),
    )
    return rng.choice(calls)


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except OSError as error:
        return (type(error), error.errno)


@pytest.mark.parametrize("seed", range(20))
def test_both_disks_answer_random_calls_alike(seed: int, tmp_path: Path) -> None:
    real, simulated = Disk(OsVfs(), str(tmp_path)), simulated_disk()
    twins = random.Random(seed), random.Random(seed)
    for step in range(400):
        answers = [
            outcome(random_call(rng, disk))
            for rng, disk in zip(twins, (real, simulated), strict=True)
        ]
        assert answers[0] == answers[1], f"step {step}"


class TestRealDiskOnly:
    def test_files_and_directories_are_private(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            vfs = OsVfs()
            vfs.create(f"{tmp_path}/a").close()
            vfs.make_dir(f"{tmp_path}/d")
            vfs.lock(f"{tmp_path}/lock").release()
        finally:
            os.umask(before)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == {"a": 0o600, "d": 0o700, "lock": 0o600}

    def test_every_call_gives_its_descriptors_back(self, tmp_path: Path) -> None:
        vfs = OsVfs()
        held = vfs.lock(f"{tmp_path}/lock")
        before = os.listdir("/proc/self/fd")
        vfs.create(f"{tmp_path}/a").close()
        vfs.sync_dir(str(tmp_path))
        with pytest.raises(BlockingIOError):
            vfs.lock(f"{tmp_path}/lock")
        with pytest.raises(IsADirectoryError):
            vfs.open(str(tmp_path))
        with pytest.raises(NotADirectoryError):
            vfs.sync_dir(f"{tmp_path}/a")
        assert os.listdir("/proc/self/fd") == before
        held.release()

    def test_a_device_is_not_opened(self, tmp_path: Path) -> None:
        with raises(errno.EINVAL):
            OsVfs().open("/dev/null")
        os.mkfifo(tmp_path / "pipe")
        with raises(errno.EINVAL):
            OsVfs().stat(f"{tmp_path}/pipe")

    def test_the_real_link_is_relative(self, tmp_path: Path) -> None:
        OsVfs().symlink("a.segment", f"{tmp_path}/b.segment")
        assert os.readlink(tmp_path / "b.segment") == "a.segment"

    def test_short_writes_are_continued(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = os.pwritev

        def at_most_five(fd: int, buffers: Sequence[bytes], offset: int) -> int:
            return whole(fd, [b"".join(bytes(b) for b in buffers)[:5]], offset)

        monkeypatch.setattr(os, "pwritev", at_most_five)
        file = OsVfs().create(f"{tmp_path}/a")
        file.write_at(2, [b"abc", b"", b"defghij", b"k", b"lm"])
        assert file.read_at(2, 100) == b"abcdefghijklm"
        file.close()

    def test_short_reads_are_continued(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = OsVfs().create(f"{tmp_path}/a")
        file.write_at(0, [b"0123456789"])
        whole = os.pread
        monkeypatch.setattr(os, "pread", lambda fd, n, offset: whole(fd, min(n, 3), offset))
        assert file.read_at(1, 8) == b"12345678"
        assert file.read_at(1, 100) == b"123456789"
        file.close()

    def test_a_disk_that_takes_no_bytes_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = OsVfs().create(f"{tmp_path}/a")
        monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: 0)
        with raises(errno.EIO):
            file.write_at(0, [b"x"])
        file.close()

    @pytest.mark.parametrize("call", ["pwritev", "fdatasync", "fstat", "pread"])
    def test_no_error_is_swallowed(
        self, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = OsVfs().create(f"{tmp_path}/a")
        assert isinstance(file, OsFile)

        def fail(*arguments: object) -> int:
            raise OSError(errno.EIO, "broken")

        monkeypatch.setattr(os, call, fail)
        methods: dict[str, Callable[[], object]] = {
            "pwritev": lambda: file.write_at(0, [b"x"]),
            "fdatasync": file.sync,
            "fstat": file.size,
            "pread": lambda: file.read_at(0, 1),
        }
        with raises(errno.EIO):
            methods[call]()
        monkeypatch.undo()
        file.close()

    def test_a_failed_directory_sync_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(descriptor: int) -> None:
            raise OSError(errno.EIO, "broken")

        monkeypatch.setattr(os, "fsync", fail)
        with raises(errno.EIO):
            OsVfs().sync_dir(str(tmp_path))

    def test_the_lock_names_the_process_that_holds_it_and_ends_with_it(
        self, tmp_path: Path
    ) -> None:
        path = f"{tmp_path}/lock"
        program = (
            "import sys; from tidelog.storage.os_vfs import OsVfs; "
            "lock = OsVfs().lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"held\n"
            with pytest.raises(BlockingIOError, match=f"locked by process {child.pid}"):
                OsVfs().lock(path)
            child.kill()
            child.wait()
            OsVfs().lock(path).release()

    def test_a_forked_child_does_not_take_the_lock_from_its_parent(self, tmp_path: Path) -> None:
        # In a process of its own: a fork copies whatever threads the test runner has.
        program = """
import os, sys
from tidelog.storage.os_vfs import OsVfs
lock = OsVfs().lock(sys.argv[1])
child = os.fork()
if child == 0:
    lock.release()
    os._exit(0)
os.waitpid(child, 0)
try:
    OsVfs().lock(sys.argv[1])
except BlockingIOError:
    print("still held")
"""
        done = subprocess.run(
            [sys.executable, "-c", program, f"{tmp_path}/lock"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        )
        assert done.stdout == b"still held\n"

    def test_free_bytes_are_those_of_an_ordinary_user(self, tmp_path: Path) -> None:
        found = os.statvfs(tmp_path)
        free = OsVfs().free_bytes(str(tmp_path))
        assert abs(free - found.f_bavail * found.f_frsize) < 1 << 30


def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that the disk is told to begin with."""
    ranges: list[tuple[int, int]] = []

    def note(descriptor: int, offset: int, length: int) -> bool:
        ranges.append((offset, offset + length))
        return True

    monkeypatch.setattr(os_vfs, "start_writeback", note)
    return ranges


def test_a_new_file_is_handed_to_the_disk_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = handed_over(monkeypatch)
    file = OsVfs().create(str(tmp_path / "f"))
    piece = bytes(WRITEBACK_BYTES // 4 + 1)
    for number in range(10):
        file.write_at(number * len(piece), (piece,))
    step = 4 * len(piece)
    assert ranges == [(0, step), (step, 2 * step)], "each byte once, in pieces worth a call"
    file.sync()
    file.write_at(2 * step, (bytes(2 * WRITEBACK_BYTES),))
    file.close()
    assert len(ranges) == 2, "from its first sync on a file is like any other"


def test_a_file_that_was_there_is_left_to_its_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"")
    ranges = handed_over(monkeypatch)
    file = OsVfs().open(str(tmp_path / "f"), write=True)
    file.write_at(0, (bytes(4 * WRITEBACK_BYTES),))
    file.close()
    assert ranges == []


def test_a_system_that_cannot_begin_early_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not os_vfs.start_writeback(-1, 0, 1)
    monkeypatch.setattr(os_vfs, "_system_call", None)
    file = OsVfs().create(str(tmp_path / "f"))
    data = os.urandom(2 * WRITEBACK_BYTES)
    file.write_at(0, (data,))
    file.sync()
    assert file.read_at(0, len(data)) == data
    file.close()
