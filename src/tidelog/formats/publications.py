"""What publications on a cluster look like in the internal topic that notes them.  No state.

Everything is a key of one log stream: for each writer what it published last or is about to; the
writers whose publication is not finished; up to where stages have expired; and, for topics with
explicit versions, how far their GC boundary may move.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from xxhash import xxh3_64_intdigest

from tidelog.errors import CorruptData
from tidelog.formats.messages import STAGES_MAX

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

UNFINISHED_KEY: Final = b"unfinished"
EXPIRED_KEY: Final = b"expired"


class Intent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last publication of a writer: what it is to append, or what it has.

    The part of its stage number ``i`` for a log stream is appended under the writer's producer with
    the sequence ``first_sequence + i``: so whoever goes on with it appends nothing twice.
    """

    topic: Natural
    batch: Natural
    first_sequence: Natural
    stages: Annotated[tuple[Natural, ...], msgspec.Meta(max_length=STAGES_MAX)]
    entries: Natural = 0
    """How many were appended, once it is done."""
    is_done: bool = False

    @property
    def next_sequence(self) -> int:
        """Where the writer's next publication begins."""
        return self.first_sequence + len(self.stages)


_ENCODER: Final = msgspec.msgpack.Encoder()
_INTENTS: Final = msgspec.msgpack.Decoder(Intent)
_KEYS: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])
_NUMBERS: Final = msgspec.msgpack.Decoder(Natural)


def writer_key(topic: int, writer: str) -> bytes:
    """Under which key it is noted what a writer published into a topic."""
    return b"writer %d %s" % (topic, writer.encode())


def boundary_key(topic: int) -> bytes:
    return b"boundary %d" % topic


def producer_of(key: bytes) -> int:
    """The producer that stands for a writer in the log streams that it publishes to."""
    return xxh3_64_intdigest(b"~publish " + key) or 1


def encode_intent(intent: Intent) -> bytes:
    return _ENCODER.encode(intent)


def decode_intent(value: bytes) -> Intent:
    try:
        return _INTENTS.decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"a publication cannot be read: {error}") from error


def encode_keys(keys: tuple[bytes, ...]) -> bytes:
    return _ENCODER.encode(keys)


def decode_keys(value: bytes | None) -> tuple[bytes, ...]:
    try:
        return () if value is None else _KEYS.decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"the unfinished publications cannot be read: {error}") from error


def encode_number(number: int) -> bytes:
    return _ENCODER.encode(number)


def decode_number(value: bytes | None) -> int:
    """0 if it was never noted."""
    try:
        return 0 if value is None else _NUMBERS.decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"a noted number cannot be read: {error}") from error


def encode_boundary(version: int) -> bytes:
    return version.to_bytes(16)


def decode_boundary(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value)
