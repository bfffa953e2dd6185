"""What named positions look like in the internal topic that keeps them.  No state."""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.errors import BadOption, CorruptData, RevisionConflict
from tidelog.formats.messages import NamedPosition
from tidelog.limits import ORDER_NUMBER_END

POSITIONS_TOPIC: Final = "~positions"
NO_POSITION: Final = NamedPosition(0, 0)
_NAME_CHARS_MAX: Final = 4096


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    glsn: int
    revision: int


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Stored)


def position_key(topic: int, name: str) -> bytes:
    """Under which key a topic's position of this name is kept."""
    if not 1 <= len(name) <= _NAME_CHARS_MAX:
        raise BadOption(f"the name of a position has 1 to {_NAME_CHARS_MAX} characters")
    return b"%d %s" % (topic, name.encode())


def next_position(name: str, known: NamedPosition, glsn: int, expected: int) -> NamedPosition:
    """What follows on what is known; RevisionConflict unless that is what was expected."""
    if known.revision != expected:
        raise RevisionConflict(
            f"position {name!r} is at revision {known.revision}, not {expected}: look at it again"
        )
    if glsn < 1:
        raise BadOption(f"GLSNs start at 1, not {glsn}")
    if glsn >= ORDER_NUMBER_END:
        raise BadOption(f"a GLSN has 63 bits, not {glsn}")
    return NamedPosition(glsn, known.revision + 1)


def encode_position(position: NamedPosition) -> bytes:
    return _ENCODER.encode(_Stored(position.glsn, position.revision))


def decode_position(value: bytes | memoryview) -> NamedPosition:
    """CorruptData if it is none."""
    try:
        stored = _DECODER.decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"a stored position cannot be read: {error}") from error
    return NamedPosition(stored.glsn, stored.revision)
