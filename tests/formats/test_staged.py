"""What a stage looks like, inline and in a file, and the WAL record that refers to one."""

from __future__ import annotations

import pytest

from tidelog.errors import CorruptData, LogError
from tidelog.formats.batch import decode_batch, encode_values, seal_batch
from tidelog.formats.staged import (
    StagedHeader,
    batch_pieces,
    body_of,
    decode_batches,
    decode_staged,
    decode_staged_header,
    named_pieces,
    staged_pieces,
)
from tidelog.formats.wal_payloads import BodyPlace, decode_staged_batch, encode_staged_batch

BODY = encode_values([b"one", b"two"], timestamp_us=7)
OTHER = encode_values([b"three"], timestamp_us=8)
PARTS = [(3, BODY), (4, OTHER)]
HEADER = seal_batch(BODY, stream=3, term=2, first_llsn=11)
PLACE = BodyPlace(5, 88)


def joined(pieces: list[bytes | memoryview]) -> memoryview:
    return memoryview(b"".join(pieces))


def test_a_stage_comes_back_from_its_value() -> None:
    header, batches = decode_staged(joined(staged_pieces(9, PARTS)))
    assert header == StagedHeader(9, (3, 4))
    assert [body_of(batch) for batch in batches] == [BODY, OTHER]


def test_a_stage_comes_back_from_its_file() -> None:
    data = joined(batch_pieces(PARTS))
    value = joined(named_pieces(9, PARTS, 5, len(data)))
    header, end = decode_staged_header(value)
    assert (header, end) == (StagedHeader(9, (3, 4), 5, len(data)), len(value))
    batches = decode_batches(header, data, verify=True)
    assert [body_of(batch) for batch in batches] == [BODY, OTHER]
    with pytest.raises(CorruptData, match="file 5"):
        decode_staged(value)


@pytest.mark.parametrize("streams", [(3,), (3, 4, 4), (4, 3), ()])
def test_batches_that_the_header_does_not_name_are_damage(streams: tuple[int, ...]) -> None:
    data = joined(batch_pieces(PARTS))
    with pytest.raises(CorruptData):
        decode_batches(StagedHeader(9, streams, 5, len(data)), data, verify=True)


def test_a_record_that_refers_to_a_batch_gives_it_its_place() -> None:
    found = decode_staged_batch(encode_staged_batch(PLACE, HEADER))
    assert (found.place, found.body_bytes, found.count) == (PLACE, len(BODY.data), 2)
    batch = decode_batch(found.header + bytes(BODY.data))
    assert (batch.stream, batch.term, batch.first_llsn, batch.end_llsn) == (3, 2, 11, 13)


def test_bytes_of_a_record_are_as_they_were() -> None:
    assert encode_staged_batch(PLACE, HEADER) == bytes([5, *bytes(7), 88, *bytes(7)]) + HEADER


def test_every_flipped_bit_of_the_header_and_every_other_length_is_seen() -> None:
    record = encode_staged_batch(PLACE, HEADER)
    for bit in range(8 * 16, 8 * len(record)):
        flipped = bytearray(record)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LogError):
            decode_staged_batch(flipped)
    for length in [*range(len(record)), len(record) + 8]:
        with pytest.raises(CorruptData):
            decode_staged_batch((record + bytes(8))[:length])
