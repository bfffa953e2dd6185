"""One record as a value, and the rules that make it well formed.  No state.

E1  a PUT or DELETE has a key, a DELETE_STORAGE or CONTROL has none, an APPEND may have one
E2  an empty key is the same as no key
E3  no write version means that the entry's GLSN is its version
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from tidelog.errors import BadEntry, KeyTooLarge, ValueTooLarge
from tidelog.limits import (
    ENTRY_BLOBS_MAX,
    KEY_BYTES_MAX,
    STORAGE_ID_END,
    VALUE_BYTES_MAX,
    WRITE_VERSION_END,
)

TIMESTAMP_MIN: Final = -(1 << 63)
TIMESTAMP_END: Final = 1 << 63
BLOB_ID_END: Final = 1 << 64


class Kind(IntEnum):
    """What an entry does."""

    APPEND = 1
    PUT = 2
    DELETE = 3
    DELETE_STORAGE = 4
    CONTROL = 5


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One record of a log.  Building one checks nothing: see ``check_entry``."""

    kind: Kind
    value: bytes = b""
    key: bytes = b""
    storage_id: int = 0
    write_version: int | None = None
    timestamp_us: int = 0
    blobs: tuple[int, ...] = ()

    def at(self, timestamp_us: int) -> Entry:
        """The same entry with a timestamp."""
        return replace(self, timestamp_us=timestamp_us)


KINDS: Final = frozenset(int(kind) for kind in Kind)
WITH_KEY: Final = frozenset({int(Kind.PUT), int(Kind.DELETE)})
WITHOUT_KEY: Final = frozenset({int(Kind.DELETE_STORAGE), int(Kind.CONTROL)})


def check_entry(entry: Entry) -> None:
    """Raise ``BadEntry``, ``KeyTooLarge`` or ``ValueTooLarge`` unless the entry is well formed."""
    _check_payload(entry)
    _check_number("storage id", entry.storage_id, 0, STORAGE_ID_END)
    _check_number("timestamp", entry.timestamp_us, TIMESTAMP_MIN, TIMESTAMP_END)
    if entry.write_version is not None:
        _check_number("write version", entry.write_version, 0, WRITE_VERSION_END)
    if entry.blobs:
        if len(entry.blobs) > ENTRY_BLOBS_MAX:
            raise BadEntry(
                f"the entry refers to {len(entry.blobs)} BLOBs, the limit is {ENTRY_BLOBS_MAX}: "
                "spread them over several entries"
            )
        for blob in entry.blobs:
            _check_number("BLOB id", blob, 0, BLOB_ID_END)


def check_key(key: bytes, storage_id: int) -> None:
    """BadEntry unless there can be writes of such a key."""
    if not key:
        raise BadEntry("a key has at least one byte")
    _check_number("storage id", storage_id, 0, STORAGE_ID_END)


def key_too_large(size: int) -> KeyTooLarge:
    """The error for a key of ``size`` bytes."""
    return KeyTooLarge(
        f"the key has {size} bytes, the limit is {KEY_BYTES_MAX}: "
        "use a digest of it as the key and keep it in the value"
    )


def value_too_large(size: int) -> ValueTooLarge:
    """The error for a value of ``size`` bytes."""
    return ValueTooLarge(
        f"the value has {size} bytes, the limit is {VALUE_BYTES_MAX}: "
        "store it in parts or as a BLOB"
    )


def _check_payload(entry: Entry) -> None:
    kind, key, value = entry.kind, entry.key, entry.value
    if not isinstance(kind, int) or kind not in KINDS:
        raise BadEntry(
            f"the kind {kind!r} does not exist: use one of {', '.join(Kind.__members__)}"
        )
    if not isinstance(key, bytes):
        raise BadEntry(f"the key is a {type(key).__name__}: encode it to bytes")
    if not isinstance(value, bytes):
        raise BadEntry(f"the value is a {type(value).__name__}: encode it to bytes")
    if len(key) > KEY_BYTES_MAX:
        raise key_too_large(len(key))
    if len(value) > VALUE_BYTES_MAX:
        raise value_too_large(len(value))
    if key:
        if kind in WITHOUT_KEY:
            raise BadEntry(f"a {Kind(kind).name} entry has no key: leave the key empty")
    elif kind in WITH_KEY:
        raise BadEntry(f"a {Kind(kind).name} entry needs a key of at least one byte")


def _check_number(name: str, number: int, begin: int, end: int) -> None:
    if not isinstance(number, int):
        raise BadEntry(f"the {name} is a {type(number).__name__}: use an int")
    if not begin <= number < end:
        raise BadEntry(f"the {name} {number} is out of range: use one in [{begin}, {end})")
