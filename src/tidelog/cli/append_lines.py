"""What the lines of an append mean: values, puts, deletes, or entries in JSON.  No state."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Protocol, TypeVar, Unpack

from tidelog.errors import BadEntry
from tidelog.formats.entry import Entry, Kind, check_entry
from tidelog.interface.appends import AppendOptions
from tidelog.interface.handles import TopicHandle
from tidelog.interface.records import Receipt
from tidelog.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX

ItemT = TypeVar("ItemT")

PLAIN_LINE_BYTES_MAX: Final = KEY_BYTES_MAX + VALUE_BYTES_MAX + 64
JSON_LINE_BYTES_MAX: Final = 6 * PLAIN_LINE_BYTES_MAX
"""A byte takes up to six characters in JSON (``\\u0000``)."""

_KINDS: Final = {
    "append": Kind.APPEND,
    "put": Kind.PUT,
    "delete": Kind.DELETE,
    "delete_storage": Kind.DELETE_STORAGE,
}
_FIELDS: Final = frozenset(
    ("key", "key_b64", "value", "value_b64", "kind", "storage_id", "write_version", "blobs")
)
_PLACE_FIELDS: Final = frozenset(("topic", "glsn", "llsn", "stream", "timestamp_us", "rewritten"))
"""What `tail` prints of a record's place in its log; a copy gets a place of its own."""


class LineMode(Protocol[ItemT]):
    """How to read one line, and how to append many of what was read."""

    line_bytes_max: int

    def parse(self, line: bytes) -> ItemT | None:
        """The item of a line, None when there is nothing in it; raises BadEntry."""
        ...

    def calls(self, items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
        """The items in pieces that one append can take, in order."""
        ...

    def send(
        self, topic: TopicHandle, items: Sequence[ItemT], **options: Unpack[AppendOptions]
    ) -> Sequence[Receipt]: ...

    def check(self, item: ItemT) -> None:
        """Raise what is wrong with one item; used to find the line of a refused append."""
        ...


class ValueLines:
    """A line is a value."""

    line_bytes_max = PLAIN_LINE_BYTES_MAX

    def parse(self, line: bytes) -> bytes:
        return line

    def calls(self, items: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        yield items

    def send(
        self, topic: TopicHandle, items: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> Sequence[Receipt]:
        return (topic.append_batch(items, **options),)

    def check(self, item: bytes) -> None:
        check_entry(Entry(Kind.APPEND, item))


class PutLines:
    """A line is a key and a value."""

    line_bytes_max = PLAIN_LINE_BYTES_MAX

    def __init__(self, separator: bytes) -> None:
        self._separator = separator

    def parse(self, line: bytes) -> tuple[bytes, bytes]:
        key, found, value = line.partition(self._separator)
        if not found:
            raise BadEntry(f"there is no {self._separator!r} between key and value")
        if not key:
            raise BadEntry("the key is empty")
        return key, value

    def calls(
        self, items: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[Sequence[tuple[bytes, bytes]]]:
        yield items

    def send(
        self,
        topic: TopicHandle,
        items: Sequence[tuple[bytes, bytes]],
        **options: Unpack[AppendOptions],
    ) -> Sequence[Receipt]:
        return topic.put_batch(items, **options)

    def check(self, item: tuple[bytes, bytes]) -> None:
        check_entry(Entry(Kind.PUT, item[1], item[0]))


class DeleteLines:
    """A line is a key."""

    line_bytes_max = PLAIN_LINE_BYTES_MAX

    def parse(self, line: bytes) -> bytes:
        if not line:
            raise BadEntry("the key is empty")
        return line

    def calls(self, items: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        yield items

    def send(
        self, topic: TopicHandle, items: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> Sequence[Receipt]:
        return topic.write([Entry(Kind.DELETE, b"", key) for key in items], **options)

    def check(self, item: bytes) -> None:
        check_entry(Entry(Kind.DELETE, b"", item))


class JsonLines:
    """A line is an entry of any kind in JSON; blank lines are passed over."""

    line_bytes_max = JSON_LINE_BYTES_MAX

    def __init__(self, *, log_versions: bool) -> None:
        self._log_versions = log_versions

    def parse(self, line: bytes) -> Entry | None:
        if not line.strip():
            return None
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadEntry(f"it is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise BadEntry('it is not a JSON object such as {"key": "k", "value": "v"}')
        unknown = sorted(fields.keys() - _FIELDS - _PLACE_FIELDS)
        if unknown:
            raise BadEntry(f"there is no field {unknown[0]!r}; known: {', '.join(sorted(_FIELDS))}")
        entry = self._entry(fields)
        check_entry(entry)
        if entry.kind is Kind.APPEND and not entry.key and _has_more_than_a_value(entry):
            raise BadEntry("an append without a key has a value, and BLOBs at most")
        if entry.kind is Kind.DELETE_STORAGE and (entry.value or entry.blobs):
            raise BadEntry("a delete_storage has neither a value nor BLOBs")
        return entry

    def _entry(self, fields: dict[str, Any]) -> Entry:
        key = _bytes_of(fields, "key")
        name = fields.get("kind", "put" if key else "append")
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise BadEntry(f"the kind {name!r} does not exist; known: {', '.join(_KINDS)}")
        version = fields.get("write_version")
        if version is not None:
            version = _int_of(fields, "write_version")
        if "glsn" in fields and (self._log_versions or (kind is Kind.APPEND and not key)):
            version = None  # It was the GLSN of the original; the copy's is its own.
        blobs = fields.get("blobs") or []
        if not isinstance(blobs, list) or not all(type(blob) is int for blob in blobs):
            raise BadEntry("blobs is not a list of whole numbers")
        return Entry(
            kind,
            _bytes_of(fields, "value"),
            key,
            _int_of(fields, "storage_id"),
            version,
            blobs=tuple(blobs),
        )

    def calls(self, items: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        for _, run in groupby(enumerate(items), _call_of):
            yield [entry for _, entry in run]

    def send(
        self, topic: TopicHandle, items: Sequence[Entry], **options: Unpack[AppendOptions]
    ) -> Sequence[Receipt]:
        first = items[0]
        if first.key:
            return topic.write(items, **options)
        if first.kind is Kind.DELETE_STORAGE:
            return topic.delete_storage(
                first.storage_id, write_version=first.write_version, **options
            )
        if first.blobs:
            return (topic.append(first.value, blobs=first.blobs, **options),)
        return (topic.append_batch([entry.value for entry in items], **options),)

    def check(self, item: Entry) -> None:
        check_entry(item)


def _call_of(numbered: tuple[int, Entry]) -> int:
    """Equal for neighbours that one append can take; 0 or below, or the item's own number."""
    number, entry = numbered
    if entry.key:
        return 0
    is_alone = entry.kind is Kind.DELETE_STORAGE or bool(entry.blobs)
    return number + 1 if is_alone else -1


def _has_more_than_a_value(entry: Entry) -> bool:
    return bool(entry.storage_id) or entry.write_version is not None


def _bytes_of(fields: dict[str, Any], name: str) -> bytes:
    text, encoded = fields.get(name), fields.get(f"{name}_b64")
    if text is not None and encoded is not None:
        raise BadEntry(f"there are both {name} and {name}_b64")
    given = text if encoded is None else encoded
    if given is None:
        return b""
    if not isinstance(given, str):
        raise BadEntry(f"{name} is not a text")
    try:
        return given.encode() if encoded is None else b64decode(given, validate=True)
    except ValueError as error:
        raise BadEntry(f"{name} is not {'base64' if encoded else 'UTF-8'}: {error}") from error


def _int_of(fields: dict[str, Any], name: str) -> int:
    number = fields.get(name, 0)
    if type(number) is not int:  # Neither a fraction nor true.
        raise BadEntry(f"{name} is not a whole number")
    return number
