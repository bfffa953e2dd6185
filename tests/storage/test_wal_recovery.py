"""Every rule by which a WAL is read back, broken once."""

from __future__ import annotations

import pytest

from tests.storage.test_wal import DIRECTORY, LOG_ID, new_wal, read_back, records, salt_of
from tidelog.errors import CorruptData
from tidelog.formats.wal import FILE_HEADER_BYTES, encode_file_header
from tidelog.storage.wal import wal_numbers, wal_path
from tidelog.storage.wal_recovery import holds_any_frame
from tidelog.testing.disk import SimDisk


def three_files() -> tuple[SimDisk, dict[int, list[int]]]:
    """Three files of two frames each, and where those begin."""
    disk = SimDisk()
    wal = new_wal(disk)
    offsets: dict[int, list[int]] = {}
    for number in (1, 2, 3):
        offsets[number] = []
        for frame in range(2):
            offsets[number].append(wal._offset)
            wal.append(records(f"{number} {frame}"))
        if number < 3:
            wal.roll()
    return disk, offsets


def overwrite(disk: SimDisk, number: int, offset: int, data: bytes) -> None:
    file = disk.vfs().open(wal_path(DIRECTORY, number), write=True)
    file.write_at(offset, (data,))
    file.sync()


def refused(disk: SimDisk, message: str, *, first_file: int = 1, durable: int = 1) -> None:
    files = disk.files()
    with pytest.raises(CorruptData, match=message):
        read_back(disk, first_file=first_file, durable=durable)
    assert disk.files() == files


def test_whole_files_are_read_in_order_and_nothing_is_written() -> None:
    disk, offsets = three_files()
    operations = disk.operations
    found, tail = read_back(disk, durable=7)
    assert [(number, sequence) for number, sequence, _ in found] == [
        (1, 1),
        (1, 2),
        (2, 3),
        (2, 4),
        (3, 5),
        (3, 6),
    ]
    assert (tail.number, tail.next_sequence, tail.frame_offset) == (3, 7, offsets[3][1])
    assert disk.operations == operations


def test_rule_1_a_file_is_missing_in_the_middle() -> None:
    disk, _ = three_files()
    disk.vfs().unlink(wal_path(DIRECTORY, 2))
    refused(disk, "have a gap")


def test_rule_1_the_first_file_that_is_needed_is_missing() -> None:
    disk, _ = three_files()
    disk.vfs().unlink(wal_path(DIRECTORY, 1))
    refused(disk, "have a gap")
    assert len(read_back(disk, first_file=2)[0]) == 4


def test_rule_1_files_below_the_first_that_is_needed_do_not_matter() -> None:
    disk, _ = three_files()
    overwrite(disk, 1, 0, b"\xff" * 200)
    assert len(read_back(disk, first_file=2)[0]) == 4


def test_rule_1_a_frame_in_the_middle_of_a_file_is_damaged() -> None:
    disk, offsets = three_files()
    for number in (1, 2, 3):
        broken = disk.copy()
        broken.flip_bit(wal_path(DIRECTORY, number), offsets[number][0] + 50, 0)
        refused(broken, f"{number:016d}.wal.*is whole")


def test_rule_1_a_frame_of_another_sequence_stands_in_its_place() -> None:
    disk, offsets = three_files()
    data = disk.files()[wal_path(DIRECTORY, 3)]
    first, second = offsets[3]
    length = second - first
    overwrite(disk, 3, first, data[second : second + length])
    refused(disk, "frame 6 at offset 64 where 5 was due")


def test_rule_2_the_end_of_a_file_that_is_not_the_last_is_damaged() -> None:
    disk, offsets = three_files()
    for number in (1, 2):
        broken = disk.copy()
        broken.flip_bit(wal_path(DIRECTORY, number), offsets[number][1] + 50, 0)
        refused(broken, f"{number:016d}.wal: damaged at offset {offsets[number][1]}")


def test_rule_2_a_file_that_is_not_the_last_was_cut_at_the_border_of_a_frame() -> None:
    disk, offsets = three_files()
    disk.truncate(wal_path(DIRECTORY, 1), offsets[1][1])
    refused(disk, "it ends before frame 2, the next file begins at 3")


def test_rule_2_the_end_of_the_last_file_is_torn() -> None:
    disk, offsets = three_files()
    disk.flip_bit(wal_path(DIRECTORY, 3), offsets[3][1] + 50, 0)
    found, tail = read_back(disk)
    assert [sequence for _, sequence, _ in found] == [1, 2, 3, 4, 5]
    assert (tail.torn, tail.next_sequence, tail.offset) == (True, 6, offsets[3][1])


def test_rule_3_a_last_file_that_never_held_a_frame_is_dropped() -> None:
    disk, offsets = three_files()
    for header in (b"", b"TLW", bytes(64), b"\xff" * 64):
        broken = disk.copy()
        file = broken.vfs().create(wal_path(DIRECTORY, 4))
        file.write_at(0, (header + bytes(500),))
        found, tail = read_back(broken, durable=7)
        assert len(found) == 6
        assert (tail.number, tail.frame_offset) == (3, offsets[3][1])
        assert wal_numbers(broken.vfs(), DIRECTORY) == [1, 2, 3]


def test_rule_3_a_last_file_that_holds_a_frame_had_a_header_once() -> None:
    disk, _ = three_files()
    overwrite(disk, 3, 0, bytes(64))
    refused(disk, "0003.wal: WAL file header")


def test_rule_3_a_file_in_the_middle_has_no_header() -> None:
    disk, _ = three_files()
    overwrite(disk, 2, 0, bytes(64))
    refused(disk, "0002.wal: WAL file header")


def test_rule_3_the_only_file_is_not_dropped_when_it_was_known_to_be_there() -> None:
    disk = SimDisk()
    new_wal(disk)
    overwrite(disk, 1, 0, bytes(64))
    refused(disk, "0001.wal: WAL file header")


def test_rule_4_frames_that_were_durable_are_missing_at_the_end() -> None:
    disk, offsets = three_files()
    disk.truncate(wal_path(DIRECTORY, 3), offsets[3][1])
    assert len(read_back(disk)[0]) == 5
    refused(disk, "the WAL ends before frame 6, but frames below 7 were durable", durable=7)


def test_rule_4_the_last_file_is_gone() -> None:
    disk, _ = three_files()
    disk.vfs().unlink(wal_path(DIRECTORY, 3))
    refused(disk, "frames below 7 were durable", durable=7)


def test_a_file_of_another_log_is_refused() -> None:
    disk, _ = three_files()
    overwrite(disk, 2, 0, encode_file_header(2, salt_of(disk, 2), bytes(16), 3))
    refused(disk, "belongs to another log")


def test_a_file_under_the_name_of_another_is_refused() -> None:
    disk, _ = three_files()
    disk.vfs().rename(wal_path(DIRECTORY, 1), wal_path(DIRECTORY, 2))
    refused(disk, "says that it is file 1", first_file=2)


def test_a_header_that_begins_with_another_frame_is_refused() -> None:
    disk, _ = three_files()
    overwrite(disk, 2, 0, encode_file_header(2, salt_of(disk, 2), LOG_ID, 4))
    refused(disk, "it ends before frame 3, the next file begins at 4")


def test_whether_a_file_holds_a_frame_is_seen_without_its_header() -> None:
    disk, _ = three_files()
    path = wal_path(DIRECTORY, 1)
    assert holds_any_frame(disk.vfs(), path)
    overwrite(disk, 1, 0, bytes(FILE_HEADER_BYTES))
    assert holds_any_frame(disk.vfs(), path)
    overwrite(disk, 1, 0, bytes(FILE_HEADER_BYTES + 40))
    assert not holds_any_frame(disk.vfs(), path)
    disk.truncate(path, 70)
    assert not holds_any_frame(disk.vfs(), path)
