"""The manifest of an archive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.formats.flips import check_damage, damaged, golden
from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.archive_manifest import (
    ArchivedFile,
    ArchiveManifest,
    decode_archive_manifest,
    encode_archive_manifest,
)
from tidelog.formats.envelope import seal
from tidelog.invariants import InvariantViolation


def file_of(begin: int, end: int, *, rows: int | None = None, name: str = "") -> ArchivedFile:
    return ArchivedFile(
        name=name or f"{begin:020d}-a.parquet",
        glsn_begin=begin,
        glsn_end=end,
        rows=end - begin if rows is None else rows,
        size=1000 + begin,
        crc=~begin & 0xFFFFFFFF,
        data_bytes=5000,
        streams=(1, 4),
        first_keyed=begin,
        oldest_us=-3,
    )


EXAMPLE = ArchiveManifest(
    log_id="00112233445566778899aabbccddeeff",
    topic="orders é",
    glsn_begin=4,
    dropped_deletes=3,
    missed_before=9,
    files=(file_of(4, 10), file_of(10, 11, rows=0), file_of(11, 20, rows=5)),
)


@given(st.integers(1, 1 << 40), st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(0, 99))))
def test_a_manifest_comes_back(begin: int, lengths: list[tuple[int, int]]) -> None:
    files, position = [], begin
    for length, rows in lengths:
        files.append(file_of(position, position + length, rows=min(rows, length)))
        position += length
    manifest = replace(EXAMPLE, glsn_begin=begin, files=tuple(files))
    assert manifest.glsn_end == position
    assert decode_archive_manifest(encode_archive_manifest(manifest)) == manifest


def test_all_damage_is_noticed() -> None:
    data = encode_archive_manifest(replace(EXAMPLE, files=EXAMPLE.files[:1]))
    assert check_damage(data, decode_archive_manifest) == sum(1 for _ in damaged(data))


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for attempt in (data, seal(b"TLAM", 1, data)):
        with pytest.raises(CorruptData):
            decode_archive_manifest(attempt)


WRONG = {
    "A1: the first file": replace(EXAMPLE, glsn_begin=3),
    "does not begin where": replace(EXAMPLE, files=(file_of(4, 10), file_of(11, 20))),
    "A2: .* has 7 rows": replace(EXAMPLE, files=(file_of(4, 10, rows=7),)),
    "A2: .* has 0 rows": replace(EXAMPLE, files=(file_of(4, 4, rows=0),)),
    r"no name of a file": replace(EXAMPLE, files=(file_of(4, 10, name="../up.parquet"),)),
    r"'/etc/x.parquet' is no": replace(EXAMPLE, files=(file_of(4, 10, name="/etc/x.parquet"),)),
    "used twice": replace(EXAMPLE, files=(file_of(4, 5), file_of(5, 6, name=file_of(4, 5).name))),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_manifest_that_contradicts_itself_is_neither_written_nor_read(fault: str) -> None:
    with pytest.raises(InvariantViolation, match=fault):
        encode_archive_manifest(WRONG[fault])
    import msgspec

    sealed = seal(b"TLAM", 1, msgspec.json.encode(WRONG[fault]))
    with pytest.raises(CorruptData, match=fault):
        decode_archive_manifest(sealed)


def test_a_newer_version_is_told_apart() -> None:
    with pytest.raises(UnsupportedVersion, match="archive manifest: format version 2"):
        decode_archive_manifest(seal(b"TLAM", 2, b"{}"))


def test_the_golden_manifest_is_read_and_written_the_same() -> None:
    assert encode_archive_manifest(EXAMPLE) == golden("archive_manifest.bin")
    assert decode_archive_manifest(golden("archive_manifest.bin")) == EXAMPLE


@pytest.mark.parametrize(
    ("begin", "end", "first", "last"),
    [(4, 20, 0, 3), (1, 4, 0, 0), (9, 10, 0, 1), (10, 11, 1, 2), (10, 12, 1, 3), (20, 30, 3, 3)],
)
def test_the_files_of_a_range_are_found(begin: int, end: int, first: int, last: int) -> None:
    assert EXAMPLE.between(begin, end) == EXAMPLE.files[first:last]


def test_deletes_that_were_dropped_unread_are_noted_once() -> None:
    files = (file_of(20, 30),)
    assert EXAMPLE.extended(files, DeleteHorizon(20, 9)).missed_before == 9
    assert EXAMPLE.extended(files, DeleteHorizon(25, 3)).missed_before == 9
    missed = EXAMPLE.extended(files, DeleteHorizon(25, 4))
    assert (missed.missed_before, missed.dropped_deletes) == (25, 4)
    more = (file_of(30, 31),)
    assert missed.extended(more, DeleteHorizon(31, 4)).missed_before == 25
    assert missed.extended(more, DeleteHorizon(31, 5)).missed_before == 31
