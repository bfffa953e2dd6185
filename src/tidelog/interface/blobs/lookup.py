"""From the record under a BLOB's id to what may be done with it, and what deletes it.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from tidelog.errors import LogError, PartlyAppended, UnknownBlob
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.topic_blob import (
    TOPIC_BLOB_END,
    BlobDescription,
    BlobState,
    blob_key,
    decode_description,
    encode_description,
    part_key,
)
from tidelog.interface.records import Record

_DELETES_MAX: Final = 1000
"""Parts that are deleted by one append."""


def key_of(blob: int) -> bytes:
    """Where the description is; UnknownBlob if no BLOB can have this id."""
    if not isinstance(blob, int) or not 0 < blob < TOPIC_BLOB_END:
        raise UnknownBlob(f"{blob!r} is not the id of a BLOB")
    return blob_key(blob)


def to_read(blob: int, record: Record | None) -> BlobDescription:
    """The description of a complete BLOB."""
    found = _found(blob, record)
    if found.state is not BlobState.COMPLETE:
        raise unknown(blob)
    return found


def to_delete(blob: int, record: Record | None) -> BlobDescription:
    """The description of a BLOB that is complete, or whose deletion broke off."""
    found = _found(blob, record)
    if found.state is BlobState.UPLOADING:
        raise unknown(blob)
    return found


def mark_of(description: BlobDescription) -> bytes | None:
    """What hides a BLOB that is about to be deleted; None if that was put before."""
    if description.state is BlobState.DELETING:
        return None
    return encode_description(replace(description, state=BlobState.DELETING))


def deletes_of(description: BlobDescription) -> Iterator[list[Entry]]:
    """What deletes the parts of a BLOB, a bounded number at a time."""
    for begin in range(0, description.parts, _DELETES_MAX):
        numbers = range(begin, min(begin + _DELETES_MAX, description.parts))
        keys = [part_key(description.blob, number) for number in numbers]
        yield [Entry(Kind.DELETE, b"", key) for key in keys]


@contextmanager
def deleted_in_part(blob: int) -> Iterator[None]:
    """While a BLOB that is hidden is being deleted: no error says that nothing was done."""
    try:
        yield
    except LogError as error:
        if not error.definite:
            raise
        raise PartlyAppended(
            f"BLOB {blob} is not to be read any more, but not all of it is deleted: {error}; "
            "delete it again"
        ) from error


def unknown(blob: int) -> UnknownBlob:
    return UnknownBlob(f"there is no BLOB {blob}: it was never put as a whole, or was deleted")


def _found(blob: int, record: Record | None) -> BlobDescription:
    if record is None:
        raise unknown(blob)
    return decode_description(blob, record.value)
