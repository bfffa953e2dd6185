"""Which publications are written down and not done: the list in ``~publish``.  No state."""

from __future__ import annotations

from tidelog.formats.publications import (
    UNFINISHED_KEY,
    Intent,
    decode_intent,
    decode_keys,
    encode_keys,
)
from tidelog.runtime.gateway.cells import Lookup


def unfinished(look: Lookup) -> list[Intent]:
    """All publications that are written down and not done."""
    values = [look(key) for key in decode_keys(look(UNFINISHED_KEY))]
    intents = [decode_intent(value) for value in values if value is not None]
    return [intent for intent in intents if not intent.is_done]


def with_key(look: Lookup, key: bytes) -> bytes:
    """The list of those that are not done, with this one as the last."""
    others = [other for other in decode_keys(look(UNFINISHED_KEY)) if other != key]
    return encode_keys((*others, key))


def without_key(look: Lookup, key: bytes) -> bytes:
    """The list of those that are not done, without this one."""
    keys = decode_keys(look(UNFINISHED_KEY))
    return encode_keys(tuple([other for other in keys if other != key]))
