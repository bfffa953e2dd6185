"""The trailer of a BLOB: damage of any bit shows, and so does a file that was cut or added to."""

from __future__ import annotations

import pytest

from tests.formats.flips import damaged
from tidelog.errors import CorruptData
from tidelog.formats.blob import TRAILER_BYTES, check_blob, decode_trailer, encode_trailer
from tidelog.formats.checksum import crc32c


def file_of(data: bytes) -> bytes:
    return data + encode_trailer(len(data), crc32c(data))


def read(file: bytes) -> bytes:
    """What a reader of the whole file gets."""
    size, known = decode_trailer(file[-TRAILER_BYTES:], len(file))
    check_blob(size, crc32c(file[:size]), known)
    return file[:size]


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(40))])
def test_a_blob_reads_back_and_all_damage_of_its_file_is_found(data: bytes) -> None:
    file = file_of(data)
    assert read(file) == data
    for name, bad in damaged(file):
        with pytest.raises(CorruptData):
            pytest.fail(f"{name}: {read(bad)!r}")
