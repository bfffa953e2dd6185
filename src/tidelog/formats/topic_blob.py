"""BLOBs of a topic, as they lie in the two topics that go with it.  No state.

``<topic>.blobs`` has the description of each BLOB, under its id; ``<topic>.blobs.parts`` has its
bytes, in parts, under the id and the number of the part.

DESCRIPTION  an envelope (``TLBD``): id, size, parts, bytes of a part, CRC of the whole, state
PART         magic 4 bytes, CRC-32C of the key and of the bytes behind it (u32), bytes

D1  what lies under another key than its own, or has a flipped bit, is CorruptData
D2  the parts of a complete BLOB have its size together, and all but the last are equally long
D3  of a BLOB that is not complete there are at most as many parts as its description says
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from tidelog.errors import BadOption, CorruptData
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.formats.envelope import seal, unseal
from tidelog.limits import (
    BLOB_BYTES_END,
    BLOB_PART_BYTES,
    KIB,
    TOPIC_NAME_CHARS_MAX,
    VALUE_BYTES_MAX,
)

TOPIC_BLOB_END: Final = 1 << 63
"""Ids of BLOBs of topics: they fit into a long of Spark."""
DESCRIPTIONS_SUFFIX: Final = ".blobs"
PARTS_SUFFIX: Final = ".blobs.parts"

_ID: Final = Struct(">Q")
_PART_KEY: Final = Struct(">QQ")
_PART_START: Final = Struct("<4sI")
_PART_MAGIC: Final = b"TLBP"
_MAGIC: Final = b"TLBD"
_VERSION: Final = 1
_BODY: Final = Struct("<QQQIIB")


class BlobState(IntEnum):
    """How far the life of a BLOB is."""

    UPLOADING = 1
    COMPLETE = 2
    DELETING = 3


class BlobDescription(msgspec.Struct, frozen=True, gc=False):
    """What is known of a BLOB; ``size`` and ``crc`` count once it is complete."""

    blob: int
    parts: int
    state: BlobState = BlobState.UPLOADING
    size: int = 0
    crc: int = 0
    part_bytes: int = BLOB_PART_BYTES

    def part_size(self, number: int) -> int:
        """How many bytes this part of a complete BLOB has (D2)."""
        return min(self.part_bytes, self.size - number * self.part_bytes)


def topics_of_blobs(topic: str) -> tuple[str, str]:
    """The topics that have the descriptions and the parts of a topic's BLOBs."""
    if topic.endswith((DESCRIPTIONS_SUFFIX, PARTS_SUFFIX)):
        raise BadOption(f"topic {topic!r} has the BLOBs of another one, and none of its own")
    if len(topic) + len(PARTS_SUFFIX) > TOPIC_NAME_CHARS_MAX:
        raise BadOption(
            f"the name of topic {topic!r} is too long for BLOBs: {PARTS_SUFFIX!r} is added to it"
        )
    return topic + DESCRIPTIONS_SUFFIX, topic + PARTS_SUFFIX


def parts_in(size: int, part_bytes: int = BLOB_PART_BYTES) -> int:
    """How many parts a BLOB of ``size`` bytes has."""
    return -(-size // part_bytes)


# -- keys ----------------------------------------------------------------------------------------


def blob_key(blob: int) -> bytes:
    """Where the description of a BLOB is."""
    return _ID.pack(blob)


def blob_of_key(key: bytes) -> int | None:
    """Whose description lies there; None if nobody's."""
    return _ID.unpack(key)[0] if len(key) == _ID.size else None


def part_key(blob: int, number: int) -> bytes:
    """Where a part of a BLOB is."""
    return _PART_KEY.pack(blob, number)


# -- values --------------------------------------------------------------------------------------


def encode_part(blob: int, number: int, data: Buffer) -> bytes:
    """The value for the key of this part."""
    crc = crc32c(data, crc32c(part_key(blob, number)))
    return b"".join((_PART_START.pack(_PART_MAGIC, crc), data))


def decode_part(description: BlobDescription, number: int, value: bytes) -> memoryview:
    """The bytes of a part; CorruptData unless they are those that were put there (D1)."""
    data = memoryview(value)[_PART_START.size :]
    wanted = description.part_size(number)
    if len(value) != _PART_START.size + wanted:
        raise CorruptData(f"{_part_name(description, number)} has not the {wanted} bytes it should")
    magic, crc = _PART_START.unpack_from(value)
    if magic != _PART_MAGIC or crc != crc32c(data, crc32c(part_key(description.blob, number))):
        raise CorruptData(f"{_part_name(description, number)} does not match its checksum")
    return data


def encode_description(description: BlobDescription) -> bytes:
    """The value for the key of this BLOB."""
    body = _BODY.pack(
        description.blob,
        description.size,
        description.parts,
        description.part_bytes,
        description.crc,
        description.state,
    )
    return seal(_MAGIC, _VERSION, body)


def decode_description(blob: int, value: bytes) -> BlobDescription:
    """The description of a BLOB; CorruptData if these bytes are none, or that of another (D1)."""
    what = f"the description of BLOB {blob}"
    body = unseal(_MAGIC, _VERSION, value, what=what, max_length=KIB)
    if len(body) != _BODY.size:
        raise CorruptData(f"{what} has {len(body)} bytes instead of {_BODY.size}")
    found, size, parts, part_bytes, crc, state = _BODY.unpack(body)
    try:
        described = BlobDescription(found, parts, BlobState(state), size, crc, part_bytes)
    except ValueError as error:
        raise CorruptData(f"{what}: {error}") from error
    if fault := _fault(described, blob):
        raise CorruptData(f"{what}: {fault}")
    return described


def _fault(described: BlobDescription, blob: int) -> str | None:
    if described.blob != blob:
        return f"D1: it is that of BLOB {described.blob}"
    if not 0 < described.part_bytes <= VALUE_BYTES_MAX - _PART_START.size:
        return f"a part cannot have {described.part_bytes} bytes"
    if described.size >= BLOB_BYTES_END or described.parts > parts_in(BLOB_BYTES_END):
        return f"{described.size} bytes in {described.parts} parts are too many"
    whole = described.parts == parts_in(described.size, described.part_bytes)
    if described.state is BlobState.COMPLETE and not whole:
        return f"D2: {described.size} bytes are not {described.parts} parts"
    return None


def _part_name(description: BlobDescription, number: int) -> str:
    return f"part {number} of BLOB {description.blob}"
