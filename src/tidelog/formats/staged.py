"""What staged batches and publications look like in the internal topics.  No state.

A stage is a value: the length of a header (u32), the header in MessagePack, then one batch for each
part; the batches of a large one are in a file instead, and the header names it.  A publication is a
value too: how far it got.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as _StructError
from typing import Annotated, Final, TypeAlias

import msgspec

from tidelog.errors import CorruptData
from tidelog.formats.batch import (
    HEADER_BYTES,
    Batch,
    BatchBody,
    Column,
    decode_batch,
    seal_batch,
)
from tidelog.formats.batch_layout import HAS_VERSIONS, HEADER, read_columns

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

_LENGTH: Final = Struct("<I")


class StagedHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """For which topic, and the log stream of each batch."""

    topic: Natural
    streams: tuple[Natural, ...]
    file: Natural = 0
    """The number of the file that holds the batches; 0: they follow."""
    size: Natural = 0
    """How many bytes they have there."""


class Publication(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last batch that a writer published, or is about to."""

    topic: Natural
    batch: Natural
    entries: Natural
    """How many were copied so far."""
    stages: tuple[Natural, ...]
    """What is still to be copied."""


class Unfinished(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The writers, by key, whose publication has begun and not ended."""

    keys: tuple[bytes, ...]


_ENCODER: Final = msgspec.msgpack.Encoder()
_HEADERS: Final = msgspec.msgpack.Decoder(StagedHeader)
_PUBLICATIONS: Final = msgspec.msgpack.Decoder(Publication)
_UNFINISHED: Final = msgspec.msgpack.Decoder(Unfinished)


def staged_pieces(topic: int, parts: Sequence[tuple[int, BatchBody]]) -> list[bytes | memoryview]:
    """The value of a stage, in pieces: a batch body for each log stream."""
    header = StagedHeader(topic, tuple([stream for stream, _ in parts]))
    return [*_header_pieces(header), *batch_pieces(parts)]


def batch_pieces(parts: Sequence[tuple[int, BatchBody]]) -> list[bytes | memoryview]:
    """The batches of a stage, in pieces, one behind the other."""
    pieces: list[bytes | memoryview] = []
    for stream, body in parts:
        pieces += (seal_batch(body, stream=stream, term=1, first_llsn=1), body.data)
    return pieces


def named_pieces(
    topic: int, parts: Sequence[tuple[int, BatchBody]], file: int, size: int
) -> list[bytes | memoryview]:
    """The value of a stage whose batches are in a file."""
    return _header_pieces(StagedHeader(topic, tuple([stream for stream, _ in parts]), file, size))


def _header_pieces(header: StagedHeader) -> list[bytes | memoryview]:
    encoded = _ENCODER.encode(header)
    return [_LENGTH.pack(len(encoded)), encoded]


def decode_staged_header(value: memoryview) -> tuple[StagedHeader, int]:
    """The header at the beginning of a stage, and where it ends."""
    try:
        (length,) = _LENGTH.unpack_from(value)
        end = _LENGTH.size + length
        return _HEADERS.decode(value[_LENGTH.size : end]), end
    except (ValueError, TypeError, _StructError) as error:
        raise CorruptData(f"a stage has no header: {error}") from error


def decode_staged(value: memoryview) -> tuple[StagedHeader, list[Batch]]:
    """What ``staged_pieces`` are together; CorruptData if it is something else.

    The batches were verified before they were staged, and a checksum covers the whole value: so
    their bodies are not looked at again.
    """
    header, offset = decode_staged_header(value)
    if header.file:
        raise CorruptData(f"the batches of a stage are in file {header.file}, not in its value")
    return header, decode_batches(header, value[offset:], verify=False)


def decode_batches(header: StagedHeader, data: memoryview, *, verify: bool) -> list[Batch]:
    """The batches of a stage, which ``data`` holds and nothing else."""
    batches: list[Batch] = []
    offset = 0
    for stream in header.streams:
        batch = decode_batch(data, offset, verify=verify)
        if batch.stream != stream:
            raise CorruptData(f"a stage has a batch of stream {batch.stream} instead of {stream}")
        batches.append(batch)
        offset += batch.length
    if offset != len(data):
        raise CorruptData(f"a stage has {len(data) - offset} bytes too many")
    return batches


def encode_publication(publication: Publication) -> bytes:
    return _ENCODER.encode(publication)


def decode_publication(value: bytes) -> Publication:
    try:
        return _PUBLICATIONS.decode(value)
    except ValueError as error:
        raise CorruptData(f"a publication cannot be read: {error}") from error


def encode_unfinished(unfinished: Unfinished) -> bytes:
    return _ENCODER.encode(unfinished)


def decode_unfinished(value: bytes) -> Unfinished:
    try:
        return _UNFINISHED.decode(value)
    except ValueError as error:
        raise CorruptData(f"the unfinished publications cannot be read: {error}") from error


def body_of(batch: Batch) -> BatchBody:
    """The columns of a batch without its place; nothing is copied."""
    _, _, crc, _, count, flags, kind, _, _, _, _, _, timestamp_us, storage_id, _, _ = (
        HEADER.unpack_from(batch.data)
    )
    data = batch.data[HEADER_BYTES:]
    return BatchBody(data, count, flags, kind, storage_id, timestamp_us, crc)


def smallest_version(body: BatchBody) -> int | None:
    """The smallest write version in a body; None when GLSNs are the versions."""
    if not body.flags & HAS_VERSIONS:
        return None
    columns = read_columns(memoryview(body.data), body.flags, body.count, verify=False)
    low, high = columns[Column.VERSIONS_LOW], columns[Column.VERSIONS_HIGH]
    if low is None or high is None:
        return None
    if not any(high):
        return int(min(low))
    return min(a | b << 64 for a, b in zip(low, high, strict=True))
