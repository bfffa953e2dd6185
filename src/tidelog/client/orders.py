"""What a call wants to have appended, before anybody waits for it.  For any thread.

One entry is kept as it is, so that it can share a batch with others.  All else is encoded at once,
in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from tidelog.client.known_topics import KnownTopic
from tidelog.client.lanes import ENTRY_OVERHEAD
from tidelog.errors import BadEntry, BadOption, BatchTooLarge
from tidelog.formats.batch import HEADER_BYTES
from tidelog.formats.entry import Entry, Kind, check_entry, value_too_large
from tidelog.interface.appends import Append, AppendOptions, Appends, Part, ack_of, check_names
from tidelog.interface.records import Ack
from tidelog.limits import ATTACHMENT_BYTES_MAX, VALUE_BYTES_MAX


class OneEntry(msgspec.Struct, frozen=True, gc=False):
    """A checked entry for a log stream."""

    stream: int
    size: int
    content: bytes | Entry
    """The value, if the entry has nothing else."""
    version: int | None = None
    """Its write version, if the topic wants one."""
    ack: Ack = Ack.ORDERED


Order: TypeAlias = OneEntry | Append


class Orders:
    """The orders for one topic."""

    def __init__(self, known: KnownTopic) -> None:
        self._known = known
        self.many: Final = Appends(lambda: known.manifest, lambda: known.sealed)

    def has_choice(self, key: bytes, stream: int | None, options: AppendOptions) -> bool:
        """Whether an append that a sealed log stream refused can go to another one."""
        is_bound = bool(key) or stream is not None or _is_numbered(options)
        return not is_bound and self._known.has_open_streams

    def append(
        self,
        value: bytes,
        key: bytes,
        stream: int | None,
        options: AppendOptions,
        blobs: tuple[int, ...] = (),
    ) -> Order:
        if _is_numbered(options):
            return self.many.append(value, key, stream, options, blobs)
        return _acknowledged(self.one_append(value, key, stream, blobs), options)

    def write(self, entry: Entry, options: AppendOptions) -> Order:
        if _is_numbered(options):
            return self.many.write([entry], options)
        return _acknowledged(self.one_write(entry), options)

    def one_append(
        self, value: bytes, key: bytes, stream: int | None, blobs: tuple[int, ...] = ()
    ) -> OneEntry:
        if type(value) is not bytes:
            value = _as_bytes(value)
        if stream is not None:
            _check_stream(stream)
        place = self.many.place(stream, key, {})
        if key or blobs:
            return self._one(place, Entry(Kind.APPEND, value, key, blobs=blobs))
        if len(value) > VALUE_BYTES_MAX:
            raise value_too_large(len(value))
        return OneEntry(place, ENTRY_OVERHEAD + len(value), value)

    def one_write(self, entry: Entry) -> OneEntry:
        check_entry(entry)
        self.many.check_version(entry)
        return self._one(self.many.place(None, entry.key, {}), entry)

    def _one(self, stream: int, entry: Entry) -> OneEntry:
        check_entry(entry)
        size = ENTRY_OVERHEAD + len(entry.key) + len(entry.value) + 8 * len(entry.blobs)
        return OneEntry(stream, size, entry, entry.write_version)


def _as_bytes(value: bytes | bytearray | memoryview) -> bytes:
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise BadEntry(f"the value is a {type(value).__name__}: encode it to bytes") from None


def _check_stream(stream: int) -> None:
    """What only equals a number of a log stream is found among them, but no node would read it."""
    if type(stream) is not int:
        raise BadOption(f"a log stream has an int for a number, not {stream!r}")


def _acknowledged(order: OneEntry, options: AppendOptions) -> OneEntry:
    if not options:
        return order
    check_names(options)
    return replace(order, ack=ack_of(options))


def _is_numbered(options: AppendOptions) -> bool:
    """Whether the caller is a producer that numbers its appends itself."""
    return bool(options) and ("producer" in options or "sequence" in options)


def checked_size(parts: Sequence[Part]) -> int:
    """The bytes of an append; raises if no frame can hold it."""
    for part in parts:
        _check_stream(part.stream)
    size = sum([HEADER_BYTES + len(part.body.data) for part in parts])
    if size > ATTACHMENT_BYTES_MAX:
        raise BatchTooLarge(
            f"the append has {size} bytes, the limit is {ATTACHMENT_BYTES_MAX}: send it in parts"
        )
    return size
