"""The envelope around whole files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.flips import check_damage, damaged, golden
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.envelope import HEADER_BYTES, seal, unseal

MAGIC = b"TEST"


def open_envelope(data: bytes | memoryview) -> bytes:
    return unseal(MAGIC, 3, data, what="test file", max_length=1000)


@given(st.binary(max_size=1000))
def test_a_sealed_body_comes_back(body: bytes) -> None:
    sealed = seal(MAGIC, 3, body)
    assert len(sealed) == HEADER_BYTES + len(body)
    assert open_envelope(sealed) == open_envelope(memoryview(sealed)) == body


@pytest.mark.parametrize("body", [b"", b"x", b"some bytes of a body"])
def test_all_damage_is_noticed(body: bytes) -> None:
    sealed = seal(MAGIC, 3, body)
    assert check_damage(sealed, open_envelope) == sum(1 for _ in damaged(sealed))


@given(st.binary(max_size=64))
def test_any_bytes_are_opened_or_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        open_envelope(data)
    with pytest.raises(CorruptData):
        open_envelope(MAGIC + data)


def test_a_newer_version_is_told_apart_from_damage() -> None:
    with pytest.raises(UnsupportedVersion, match="test file: format version 4"):
        open_envelope(seal(MAGIC, 4, b"body"))
    flipped = bytearray(seal(MAGIC, 3, b"body"))
    flipped[4] ^= 7
    with pytest.raises(CorruptData, match="checksum") as caught:
        open_envelope(bytes(flipped))
    assert not isinstance(caught.value, UnsupportedVersion)


def test_a_body_over_the_limit_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(CorruptData, match="1001 bytes, the limit is 1000"):
        open_envelope(seal(MAGIC, 3, bytes(1001)))


def test_another_magic_is_refused() -> None:
    with pytest.raises(CorruptData, match="begins with b'ELSE'"):
        open_envelope(seal(b"ELSE", 3, b"body"))


def test_the_golden_envelope_is_read_and_written_the_same() -> None:
    assert seal(MAGIC, 3, b"the body of an envelope") == golden("envelope.bin")
    assert open_envelope(golden("envelope.bin")) == b"the body of an envelope"
