"""The write-ahead log as it writes: rolling, spares, frames of any size, a disk without room."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest

from tests.storage.watched import Calls, WatchedVfs
from tidelog.errors import DiskFull, StorageFailed
from tidelog.formats.wal import (
    FILE_HEADER_BYTES,
    DecodedRecord,
    Frame,
    Record,
    RecordType,
    decode_file_header,
)
from tidelog.invariants import InvariantViolation
from tidelog.limits import KIB, MIB, WAL_SPARE_FILES_MAX
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.wal import Wal, wal_numbers, wal_path
from tidelog.storage.wal_recovery import WalTail, replay_wal
from tidelog.testing.disk import Choice, Op, SimDisk

LOG_ID = bytes(range(16))
DIRECTORY = "/wal"
FILE_BYTES = 4 * KIB


def new_wal(disk: SimDisk, *, file_bytes: int = FILE_BYTES, start: bool = True) -> Wal:
    disk.vfs().make_dir(DIRECTORY)
    disk.vfs().sync_dir("/")
    wal = Wal(FailStopVfs(disk.vfs()), DIRECTORY, log_id=LOG_ID, file_bytes=file_bytes)
    if start:
        wal.start()
    return wal


@dataclass(slots=True)
class TornAway:
    """Ends the thread's work before the call of this number."""

    at: int
    calls: int = 0

    def __call__(self, operation: Op, path: str) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt


def records(text: str, count: int = 1) -> list[Record]:
    return [Record(RecordType.BATCH, 1, number, (text.encode(),)) for number in range(count)]


def read_back(
    disk: SimDisk, *, first_file: int = 1, durable: int = 1
) -> tuple[list[tuple[int, int, bytes]], WalTail]:
    """(file, sequence, text of the first record) of all frames, and the tail."""
    found: list[tuple[int, int, bytes]] = []

    def note(number: int, frame: Frame) -> None:
        record: DecodedRecord = frame.records[0]
        found.append((number, frame.sequence, bytes(record.payload).rstrip(b"\0")))

    tail = replay_wal(
        disk.vfs(),
        DIRECTORY,
        log_id=LOG_ID,
        first_file=first_file,
        durable_sequence=durable,
        replay=note,
    )
    return found, tail


def resumed(disk: SimDisk, tail: WalTail) -> Wal:
    wal = new_wal(disk, start=False)
    wal.resume(
        number=tail.number,
        salt=tail.salt,
        frame_offset=tail.frame_offset,
        offset=tail.offset,
        sequence=tail.next_sequence,
    )
    return wal


def names(disk: SimDisk, suffix: str) -> list[str]:
    return [name for name in disk.vfs().list_dir(DIRECTORY) if name.endswith(suffix)]


def salt_of(disk: SimDisk, number: int) -> int:
    return decode_file_header(disk.files()[wal_path(DIRECTORY, number)]).salt


def test_a_frame_is_durable_when_append_returns() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    for number in range(5):
        wal.append(records(f"frame {number}"))
        found, tail = read_back(disk.after_crash(Choice.LOST))
        assert [text for _, _, text in found] == [b"frame %d" % i for i in range(number + 1)]
        assert tail.next_sequence == wal.sequence == number + 2
    assert (wal.frames, tail.torn) == (5, False)


def test_one_append_is_one_write_and_one_sync() -> None:
    disk, calls = SimDisk(), Calls()
    disk.vfs().make_dir(DIRECTORY)
    watched = WatchedVfs(disk.vfs(), calls)
    wal = Wal(FailStopVfs(watched), DIRECTORY, log_id=LOG_ID, file_bytes=FILE_BYTES)
    wal.start()
    calls.counts.clear()
    wal.append(records("several in one group", 50))
    assert calls.counts == {Op.WRITE: 1, Op.SYNC: 1}


def test_sequences_run_on_over_a_roll() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("a"))
    wal.append(records("b"))
    wal.roll()
    wal.append(records("c"))
    assert read_back(disk.after_crash())[0] == [(1, 1, b"a"), (1, 2, b"b"), (2, 3, b"c")]


def test_a_new_file_is_filled_with_zeros_before_use() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    (data,) = (disk.files()[path] for path in disk.files() if path.endswith(".wal"))
    assert len(data) == FILE_BYTES
    assert not any(data[FILE_HEADER_BYTES:])
    wal.append(records("a"))
    assert len(disk.files()[wal_path(DIRECTORY, 1)]) == FILE_BYTES


def test_a_roll_fills_no_more_than_eight_megabytes_while_an_append_waits() -> None:
    disk = SimDisk()
    new_wal(disk, file_bytes=9 * MIB)
    assert len(disk.files()[wal_path(DIRECTORY, 1)]) == 8 * MIB


def test_a_roll_takes_a_spare_and_gives_it_a_salt_of_its_own() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    for number in range(3):
        wal.append(records(f"{number}"))
    old = salt_of(disk, 1)
    wal.roll()
    wal.append(records("in the second file"))
    wal.retire_below(2)
    assert names(disk, ".spare") == [f"{1:016d}.spare"]
    wal.roll()
    assert names(disk, ".spare") == []
    assert salt_of(disk, 3) != old
    # The old frames are still in the file, and they are none of ours.
    assert b"2" in disk.files()[wal_path(DIRECTORY, 3)]
    found, tail = read_back(disk.after_crash(), first_file=2)
    assert found == [(2, 4, b"in the second file")]
    assert (tail.number, tail.offset, tail.torn) == (3, FILE_HEADER_BYTES, False)
    wal.append(records("x"))
    assert read_back(disk.after_crash(), first_file=2)[0][-1] == (3, 5, b"x")


def test_frames_of_an_earlier_use_of_a_file_are_never_taken() -> None:
    """Frames of the same lengths at the same places, of the file's last use, follow each frame."""
    disk = SimDisk()
    wal = new_wal(disk)
    for number in range(5):
        wal.append(records(f"old {number}"))
    wal.roll()
    wal.retire_below(2)
    wal.roll()
    for number in range(4):
        wal.append(records(f"new {number}"))
        found, tail = read_back(disk.after_crash(), first_file=2)
        assert [text for _, _, text in found] == [b"new %d" % i for i in range(number + 1)]
        assert not tail.torn


def test_a_spare_has_lost_its_old_name_for_good_before_it_is_used_again() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("a"))
    wal.roll()
    wal.append(records("b"))
    wal.retire_below(2)
    assert disk.pending_effects() == []
    wal.roll()
    wal.append(records("c"))
    for choice in (Choice.LOST, Choice.KEPT):
        after = disk.after_crash(choice)
        assert wal_numbers(after.vfs(), DIRECTORY) == [2, 3]
        assert read_back(after, first_file=2)[0] == [(2, 2, b"b"), (3, 3, b"c")]


def test_a_few_retired_files_become_spares_and_the_rest_go() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    for _ in range(5):
        wal.append(records("a"))
        wal.roll()
    wal.retire_below(6)
    assert wal_numbers(disk.vfs(), DIRECTORY) == [6]
    assert len(names(disk, ".spare")) == WAL_SPARE_FILES_MAX
    assert read_back(disk.after_crash(), first_file=6, durable=6)[1].next_sequence == 6


def test_the_current_file_is_never_retired() -> None:
    wal = new_wal(SimDisk())
    with pytest.raises(InvariantViolation, match="W3"):
        wal.retire_below(2)


def test_a_spare_is_prepared_once_and_at_full_size() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    assert wal.prepare_spare()
    assert not wal.prepare_spare()
    (name,) = names(disk, ".spare")
    assert disk.files()[f"{DIRECTORY}/{name}"] == bytes(FILE_BYTES)
    before = disk.operations
    wal.roll()
    # Header, sync, rename, sync of the directory: no zeros were written.
    assert disk.operations - before == 4
    wal.append(records("a"))
    assert read_back(disk.after_crash())[0] == [(2, 1, b"a")]


def test_half_a_prepared_spare_is_not_taken() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    disk.fail(Op.WRITE, ".spare.tmp", errno.ENOSPC, partial=True)
    with pytest.raises(DiskFull):
        wal.prepare_spare()
    assert names(disk, ".spare") == names(disk, ".tmp") == []
    assert wal.prepare_spare()


def test_a_frame_larger_than_a_file_makes_its_file_grow() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("small"))
    large = "x" * (3 * FILE_BYTES)
    assert not wal.has_room(len(large))
    wal.roll()
    assert wal.has_room(len(large))
    wal.append(records(large))
    assert not wal.has_room(1)
    wal.roll()
    wal.append(records("after"))
    found, _ = read_back(disk.after_crash())
    assert found == [(1, 1, b"small"), (2, 2, large.encode()), (3, 3, b"after")]


def test_the_file_of_a_large_frame_serves_as_a_spare() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("x" * (3 * FILE_BYTES)))
    wal.roll()
    wal.retire_below(2)
    wal.roll()
    wal.append(records("in the large file"))
    found, tail = read_back(disk.after_crash(), first_file=2)
    assert found == [(3, 2, b"in the large file")]
    resumed(disk, tail).append(records("and on"))
    assert read_back(disk.after_crash(), first_file=2)[0][-1] == (3, 3, b"and on")


@pytest.mark.parametrize("keep", [Choice.LOST, Choice.KEPT, Choice.TORN, Choice.TORN_TAIL])
def test_a_torn_frame_is_written_over_after_a_start(keep: Choice) -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("first"))
    disk.crash_after(1, cut=True)
    with pytest.raises(BaseException, match="went down"):
        wal.append(records("y" * 1500))
    after = disk.after_crash([keep])
    found, tail = read_back(after)
    survived = keep is Choice.KEPT
    assert (len(found), tail.torn) == (2 if survived else 1, keep.name.startswith("TORN"))
    going_on = resumed(after, tail)
    # Shorter than what was torn, so that the rest of that still follows.
    going_on.append(records("next"))
    going_on.append(records("and next"))
    texts = [text for _, _, text in read_back(after.after_crash())[0]]
    assert texts[:1] == [b"first"]
    assert texts[-2:] == [b"next", b"and next"]
    assert len(texts) == 3 + survived


def test_only_some_sectors_of_the_last_frame_are_there() -> None:
    """The last frame spans many sectors; any of them may be missing after a power loss."""
    disk = SimDisk()
    wal = new_wal(disk, file_bytes=16 * KIB)
    wal.append(records("first"))
    begin = wal._offset
    wal.append(records("y" * 6000))
    path = wal_path(DIRECTORY, 1)
    whole = disk.files()[path]
    for missing in range(begin // 512, wal._offset // 512 + 1):
        broken = disk.copy()
        file = broken.vfs().open(path, write=True)
        offset = max(missing * 512, begin)
        file.write_at(offset, (bytes(min(512, len(whole) - offset)),))
        found, tail = read_back(broken)
        assert [text for _, _, text in found] == [b"first"]
        assert tail.torn or missing == begin // 512
        assert tail.offset == begin


def test_a_full_disk_refuses_a_roll_and_leaves_everything_as_it_was() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("a"))
    files = disk.files()
    disk.capacity_bytes = FILE_BYTES + 100
    for _ in range(2):
        with pytest.raises(DiskFull, match="free some space"):
            wal.roll()
        assert disk.files() == files
    wal.append(records("b"))
    disk.capacity_bytes = None
    wal.roll()
    wal.append(records("c"))
    assert [text for _, _, text in read_back(disk.after_crash())[0]] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("after", [0, 1])
def test_a_disk_that_fills_up_inside_a_roll_refuses_it_and_a_later_one_works(after: int) -> None:
    """The zeros do not fit, or the header does not."""
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("a"))
    disk.fail(Op.WRITE, ".wal", errno.ENOSPC, after=after)
    with pytest.raises(DiskFull):
        wal.roll()
    assert wal_numbers(disk.vfs(), DIRECTORY) == [1]
    wal.append(records("b"))
    wal.roll()
    wal.append(records("c"))
    assert read_back(disk.after_crash())[0] == [(1, 1, b"a"), (1, 2, b"b"), (2, 3, b"c")]


@pytest.mark.parametrize("has_spare", [False, True])
@pytest.mark.parametrize("keep", [Choice.LOST, Choice.KEPT])
def test_a_roll_that_is_torn_away_is_made_anew(has_spare: bool, keep: Choice) -> None:
    """Whoever interrupts (Ctrl-C) an append does so while a file is filled, more often than not."""
    for at in count(1):
        disk = SimDisk()
        wal = new_wal(disk)
        wal.append(records("a"))
        if has_spare:
            wal.prepare_spare()
        torn = TornAway(at)
        wal._vfs = FailStopVfs(WatchedVfs(disk.vfs(), torn))
        with suppress(KeyboardInterrupt):
            wal.roll()
        if torn.calls < at:
            break
        wal.append(records("b"))
        found = [text for _, _, text in read_back(disk.after_crash(keep))[0]]
        assert found == [b"a", b"b"]
        wal.roll()
        wal.append(records("c"))
        found = [text for _, _, text in read_back(disk.after_crash(keep))[0]]
        assert found == [b"a", b"b", b"c"]
    assert at > 5


def test_a_disk_that_fills_up_under_a_spare_keeps_the_spare() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("a"))
    wal.prepare_spare()
    disk.fail(Op.WRITE, ".spare", errno.ENOSPC)
    with pytest.raises(DiskFull):
        wal.roll()
    assert len(names(disk, ".spare")) == 1
    wal.append(records("b"))
    wal.roll()
    wal.append(records("c"))
    assert read_back(disk.after_crash())[0] == [(1, 1, b"a"), (1, 2, b"b"), (2, 3, b"c")]


def test_a_disk_that_fills_up_inside_a_frame_stops_the_log() -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("a"))
    disk.fail(Op.WRITE, ".wal", errno.ENOSPC, partial=True)
    with pytest.raises(StorageFailed, match="filled up inside a WAL frame"):
        wal.append(records("b" * 2000))
    with pytest.raises(StorageFailed, match="has stopped"):
        wal.append(records("c"))
    with pytest.raises(StorageFailed, match="has stopped"):
        wal.roll()
    found, tail = read_back(disk.after_crash(Choice.KEPT))
    assert [text for _, _, text in found] == [b"a"]
    assert tail.torn


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_stops_the_log_for_good(code: int) -> None:
    disk = SimDisk()
    wal = new_wal(disk)
    wal.append(records("a"))
    disk.fail(Op.SYNC, ".wal", code)
    with pytest.raises(StorageFailed, match="fsync"):
        wal.append(records("b"))
    # The next sync of the kernel would succeed, and that must not be believed.
    with pytest.raises(StorageFailed, match="has stopped"):
        wal.append(records("b"))
    assert [text for _, _, text in read_back(disk.after_crash(Choice.LOST))[0]] == [b"a"]


def test_a_closed_log_takes_no_frame() -> None:
    wal = new_wal(SimDisk())
    wal.close()
    wal.close()
    with pytest.raises(StorageFailed, match="closed"):
        wal.append(records("a"))
