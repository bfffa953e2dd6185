"""BLOBs: whole under their names or not there at all, whatever stops the process."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tidelog.errors import BadOption, CorruptData, DiskFull, LogClosed, StorageFailed, WrongState
from tidelog.storage import blob_store
from tidelog.storage.blob_store import BlobStore
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import Vfs
from tidelog.testing.crash import Journal, enumerate_crashes
from tidelog.testing.disk import Choice, Op, SimDisk, SimVfs

PATH = "/data"
LARGEST = (1 << 64) - 1


def open_blobs(vfs: Vfs) -> BlobStore:
    vfs.make_dir(PATH)
    vfs.sync_dir("/")
    return BlobStore(FailStopVfs(vfs), PATH)


def store(blobs: BlobStore, blob: int, *parts: bytes) -> None:
    offset = 0
    with blobs.begin(blob, sum(map(len, parts))) as writer:
        for part in parts:
            writer.write(offset, memoryview(part))
            offset += len(part)
        writer.finish()


def content(blobs: BlobStore, blob: int) -> bytes:
    with blobs.open(blob) as reader:
        return reader.read_at(0, reader.size)


def temporaries(disk: SimDisk) -> list[str]:
    return [path for path in disk.files() if path.endswith(".tmp")]


def test_a_blob_is_read_as_it_was_written() -> None:
    blobs = open_blobs(SimDisk().vfs())
    store(blobs, 7, b"first, ", b"second")
    assert (blobs.size(7), content(blobs, 7)) == (13, b"first, second")
    with blobs.open(7) as reader:
        assert reader.read_at(7, 100) == b"second"


def test_no_sync_of_a_large_blob_waits_for_more_than_a_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever sends a BLOB waits for the answer to its last part no longer than for any other."""
    monkeypatch.setattr(blob_store, "BLOB_SYNC_BYTES", 100)
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    with blobs.begin(1, 1000) as writer:
        for offset in range(0, 1000, 50):
            writer.write(offset, bytes(50))
            assert sum(effect.length for effect in disk.pending_effects()) < 100
        writer.finish()
    assert content(blobs, 1) == bytes(1000)


def test_once_closed_no_name_comes_or_goes() -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    store(blobs, 1, b"one")
    with blobs.begin(2, 3) as writer:
        writer.write(0, b"two")
        blobs.close()
        with pytest.raises(LogClosed):
            writer.finish()
    for call in (
        lambda: blobs.delete(1),
        lambda: blobs.link(3, 1),
        lambda: blobs.begin(4, 1),
    ):
        with pytest.raises(LogClosed):
            call()
    assert open_blobs(disk.vfs()).ids() == [1]


def test_a_blob_lies_where_its_number_says() -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    store(blobs, 0x0123456789ABCDEF, b"x")
    store(blobs, LARGEST, b"y")
    assert [path.removeprefix("/") for path in sorted(disk.files())] == [
        "data/blobs/ef/0123456789abcdef.blob",
        "data/blobs/ff/ffffffffffffffff.blob",
    ]


def test_an_empty_blob_is_a_blob() -> None:
    blobs = open_blobs(SimDisk().vfs())
    store(blobs, 3)
    assert (blobs.size(3), content(blobs, 3)) == (0, b"")


def test_numbers_go_on_behind_the_highest_that_is_there() -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    assert [blobs.next_id(), blobs.next_id()] == [1, 2]
    store(blobs, 41, b"from a master")
    assert blobs.next_id() == 42
    assert open_blobs(disk.vfs()).next_id() == 42
    assert open_blobs(disk.vfs()).ids() == [41]


def test_there_is_no_number_behind_the_last() -> None:
    blobs = open_blobs(SimDisk().vfs())
    store(blobs, LARGEST, b"x")
    with pytest.raises(StorageFailed, match="no further numbers"):
        blobs.next_id()


@pytest.mark.parametrize("blob", [-1, LARGEST + 1])
def test_a_number_that_has_more_than_64_bits_is_refused(blob: int) -> None:
    blobs = open_blobs(SimDisk().vfs())
    for call in (lambda: blobs.begin(blob, 1), lambda: blobs.size(blob), lambda: blobs.open(blob)):
        with pytest.raises(BadOption, match="number of a BLOB"):
            call()


@pytest.mark.parametrize("size", [-1, 1 << 63])
def test_a_size_that_no_file_has_is_refused(size: int) -> None:
    with pytest.raises(BadOption, match="bytes"):
        open_blobs(SimDisk().vfs()).begin(1, size)


def test_parts_that_do_not_follow_one_another_are_refused() -> None:
    blobs = open_blobs(SimDisk().vfs())
    writer = blobs.begin(1, 6)
    writer.write(0, b"abc")
    with pytest.raises(WrongState, match="those at 3 come next"):
        writer.write(4, b"x")
    with pytest.raises(WrongState, match="more than the 6"):
        writer.write(3, b"defg")
    with pytest.raises(WrongState, match="3 of 6 bytes"):
        writer.finish()
    writer.write(3, b"def")
    writer.finish()
    assert content(blobs, 1) == b"abcdef"
    for call in (writer.finish, lambda: writer.write(6, b"x")):
        with pytest.raises(WrongState, match="finished or discarded"):
            call()


def test_what_is_not_finished_leaves_nothing() -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    with blobs.begin(1, 3) as writer:
        writer.write(0, b"ab")
    assert (blobs.size(1), blobs.ids(), temporaries(disk)) == (None, [], [])


def test_temporary_files_of_an_earlier_process_go_at_the_start() -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    store(blobs, 1, b"whole")
    blobs.begin(2, 3).write(0, b"ab")
    assert len(temporaries(disk)) == 1
    again = open_blobs(disk.after_crash(Choice.KEPT).vfs())
    assert again.ids() == [1]
    assert again.size(2) is None


def test_two_writers_of_one_blob_do_not_meet() -> None:
    blobs = open_blobs(SimDisk().vfs())
    one, other = blobs.begin(1, 3), blobs.begin(1, 3)
    one.write(0, b"abc")
    other.write(0, b"ab")
    one.finish()
    other.discard()
    assert content(blobs, 1) == b"abc"


def test_a_reader_keeps_a_blob_that_is_deleted_or_replaced() -> None:
    blobs = open_blobs(SimDisk().vfs())
    store(blobs, 1, b"old")
    with blobs.open(1) as reader:
        store(blobs, 1, b"newer")
        assert reader.read_at(0, 9) == b"old"
        blobs.delete(1)
        assert reader.read_at(0, 9) == b"old"
    assert blobs.size(1) is None
    blobs.delete(1)
    with pytest.raises(CorruptData, match="BLOB 1 is missing"):
        blobs.open(1)


def test_a_second_number_is_as_good_as_the_first() -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    store(blobs, 1, b"shared")
    blobs.link(2, 1)
    blobs.delete(1)
    again = open_blobs(disk.after_crash(Choice.LOST).vfs())
    assert content(again, 2) == b"shared"
    assert temporaries(disk) == []
    with pytest.raises(CorruptData, match="BLOB 5 is missing"):
        blobs.link(3, 5)


def test_a_blob_may_be_linked_to_itself() -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    store(blobs, 1, b"same")
    blobs.link(1, 1)
    assert content(blobs, 1) == b"same"
    assert temporaries(disk) == []


def test_a_file_becomes_a_blob(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    source = tmp_path / "upload"
    source.write_bytes(b"u" * 5000)
    blobs = BlobStore(FailStopVfs(OsVfs()), str(tmp_path / "data"))
    blobs.adopt(4, str(source))
    assert not source.exists()
    assert content(blobs, 4) == b"u" * 5000


def test_a_file_of_another_disk_is_copied() -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    file = disk.vfs().create("/upload")
    file.write_at(0, (b"u" * 3_000_000,))
    disk.fail(Op.RENAME, "upload", errno.EXDEV)
    blobs.adopt(4, "/upload")
    assert content(blobs, 4) == b"u" * 3_000_000
    assert [path for path in disk.files() if "upload" in path] == []
    assert temporaries(disk) == []


def test_a_full_disk_refuses_a_blob_and_leaves_nothing() -> None:
    disk = SimDisk(capacity_bytes=1000)
    blobs = open_blobs(disk.vfs())
    with pytest.raises(DiskFull, match="BLOB 1 has 2000 bytes"):
        blobs.begin(1, 2000)
    with blobs.begin(2, 900) as writer:
        writer.write(0, b"x" * 500)
        disk.capacity_bytes = 600
        with pytest.raises(DiskFull):
            writer.write(500, b"x" * 400)
    assert blobs.ids() == []
    assert temporaries(disk) == []
    store(blobs, 3, b"fits")
    assert content(blobs, 3) == b"fits"


@pytest.mark.parametrize(
    ("operation", "path"),
    [(Op.SYNC, ".tmp"), (Op.SYNC_DIR, "blobs/02"), (Op.RENAME, "0002.blob")],
)
def test_a_failed_sync_or_rename_stops_the_store(operation: Op, path: str) -> None:
    disk = SimDisk()
    blobs = open_blobs(disk.vfs())
    store(blobs, 1, b"before")
    disk.fail(operation, path, errno.EIO)
    with pytest.raises(StorageFailed):
        store(blobs, 2, b"lost")
    with pytest.raises(StorageFailed):
        store(blobs, 3, b"after")


def test_a_blob_is_held_from_its_end_until_an_entry_refers_to_it() -> None:
    blobs = open_blobs(SimDisk().vfs())
    store(blobs, 1, b"x")
    assert not blobs.delete_unheld(1)
    blobs.pin((1,))
    blobs.pin((1,))
    blobs.referred([1])
    assert not blobs.delete_unheld(1)
    blobs.unpin((1,))
    assert not blobs.delete_unheld(1)
    blobs.unpin((1,))
    assert blobs.delete_unheld(1)
    assert blobs.ids() == []


def test_a_crash_leaves_finished_blobs_whole_and_nothing_of_others() -> None:
    def write(vfs: SimVfs, journal: Journal) -> None:
        blobs = open_blobs(vfs)
        for blob, size in ((1, 10), (258, 5000), (2, 0)):
            store(blobs, blob, b"a" * (size // 2), b"b" * (size - size // 2))
            journal.acknowledged.append((blob, size))
        blobs.link(3, 1)
        journal.acknowledged.append((3, 10))

    def check(vfs: SimVfs, journal: Journal) -> None:
        blobs = open_blobs(vfs)
        for blob, size in journal.acknowledged:
            assert content(blobs, blob) == b"a" * (size // 2) + b"b" * (size - size // 2)
        sizes = {1: 10, 258: 5000, 2: 0, 3: 10}
        assert all(blobs.size(blob) == sizes[blob] for blob in blobs.ids())
        assert not temporaries(vfs.disk)

    report = enumerate_crashes(write, check, outcomes_max=64)
    assert report.points > 20
    assert report.outcomes > report.points


@pytest.mark.parametrize("place", [0, 12, 13, 28])
def test_a_blob_whose_file_was_changed_is_found_when_all_of_it_is_read(
    tmp_path: Path, place: int
) -> None:
    blobs = BlobStore(FailStopVfs(OsVfs()), str(tmp_path))
    store(blobs, 7, b"first, ", b"second")
    with blobs.open(7) as reader:
        reader.check()
    file = tmp_path / "blobs" / "07" / f"{7:016x}.blob"
    data = bytearray(file.read_bytes())
    data[place] ^= 0x10
    file.write_bytes(data)
    with pytest.raises(CorruptData, match="BLOB 7"), blobs.open(7) as reader:
        reader.check()


def test_a_blob_whose_file_was_cut_cannot_be_opened(tmp_path: Path) -> None:
    blobs = BlobStore(FailStopVfs(OsVfs()), str(tmp_path))
    store(blobs, 7, b"first, ", b"second")
    file = tmp_path / "blobs" / "07" / f"{7:016x}.blob"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptData, match="BLOB 7"):
        blobs.open(7)


def test_a_file_that_was_adopted_has_its_checksum(tmp_path: Path) -> None:
    blobs = BlobStore(FailStopVfs(OsVfs()), str(tmp_path))
    (tmp_path / "given").write_bytes(b"from elsewhere")
    blobs.adopt(3, str(tmp_path / "given"))
    assert content(blobs, 3) == b"from elsewhere"
    with blobs.open(3) as reader:
        reader.check()
