"""Entries to the bytes of a columnar batch.  No state.

A batch is a header of 88 bytes and a body of columns.  The body does not depend on the place
that the batch gets in the log, so it is made first (``encode_*``), outside any lock; the header
follows when the place is known (``seal_batch``).  ``batch`` reads what this module writes.

  B1  the header's CRC covers all of the header behind it, the body's CRC among it
  B2  a column that is the same for all entries is left out; the header holds its value
  B3  every section starts at a multiple of 8 and is padded to one with zeros
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from struct import Struct
from typing import Final

import msgspec

from tidelog.errors import BadEntry, BatchTooLarge
from tidelog.formats.batch_layout import (
    HAS_BLOBS,
    HAS_KEYS,
    HAS_KINDS,
    HAS_LLSNS,
    HAS_STORAGE_IDS,
    HAS_TIMESTAMPS,
    HAS_VALUES,
    HAS_VERSIONS,
    HEADER,
    MAGIC,
    PADDING,
    REWRITTEN,
    SPARSE_SPAN_END,
    Part,
    add_section,
)
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import (
    KINDS,
    TIMESTAMP_END,
    TIMESTAMP_MIN,
    WITH_KEY,
    WITHOUT_KEY,
    Entry,
    Kind,
    check_entry,
    key_too_large,
    value_too_large,
)
from tidelog.invariants import check
from tidelog.limits import (
    BATCH_BODY_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    ENTRY_BLOBS_MAX,
    KEY_BYTES_MAX,
    STORAGE_ID_END,
    VALUE_BYTES_MAX,
)

_START: Final = Struct("<4sI")
_REST: Final = Struct("<IIIHBBQQQQqQQQ")
_UNIFORM_END: Final = 4096
"""Offsets of items of one length are kept for batches of fewer entries than this."""
_PAIR: Final = Struct("<II")
_VERSION: Final = Struct("<QQ")
_U32: Final = Struct("<I")
_LOW_64: Final = (1 << 64) - 1
_LAST_FLAGS: Final = (HAS_VERSIONS, HAS_KEYS, HAS_VALUES, HAS_BLOBS)
_BAD_PAIRS: Final = frozenset(
    [(kind, False) for kind in WITH_KEY] + [(kind, True) for kind in WITHOUT_KEY]
)

check(HEADER.size == _START.size + _REST.size, "B1: the header is in two parts")


class BatchBody(msgspec.Struct, frozen=True, gc=False):
    """The columns of a batch that has no place in a log yet."""

    data: bytes | memoryview
    count: int
    flags: int
    kind: int
    storage_id: int
    timestamp_us: int
    crc: int


def seal_batch(
    body: BatchBody,
    *,
    stream: int,
    term: int,
    first_llsn: int,
    producer: int = 0,
    sequence: int = 0,
) -> bytes:
    """The header that gives ``body`` its place; the batch is this followed by ``body.data``."""
    check(first_llsn >= 1, "LLSNs start at 1")
    span = body.count
    if body.flags & HAS_LLSNS:
        span = _U32.unpack_from(body.data, 4 * (body.count - 1))[0] + 1
    rest = _REST.pack(
        body.crc,
        len(body.data),
        body.count,
        body.flags,
        body.kind,
        0,
        stream,
        term,
        first_llsn,
        first_llsn + span,
        body.timestamp_us,
        body.storage_id,
        producer,
        sequence,
    )
    return _START.pack(MAGIC, crc32c(rest)) + rest


def encode_values(values: Sequence[bytes], *, timestamp_us: int) -> BatchBody:
    """The body of un-keyed APPEND entries with these values."""
    count = len(values)
    _check_timestamp(timestamp_us)
    if count == 1 and type(values[0]) is bytes:
        return encode_value(values, timestamp_us=timestamp_us)
    check_count(count)
    parts: list[Part] = []
    try:
        size = _add_values(parts, values, 0)
        data = _join(parts, size)
    except TypeError as error:
        raise BadEntry(f"a value is not bytes ({error}): encode it to bytes") from error
    flags = HAS_VALUES if data else 0
    return BatchBody(data, count, flags, 1, 0, timestamp_us, crc32c(data))


def encode_value(pieces: Sequence[bytes | memoryview], *, timestamp_us: int) -> BatchBody:
    """The body of one un-keyed APPEND entry; its value is the pieces, one behind the other."""
    size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
    if size > VALUE_BYTES_MAX:
        raise value_too_large(size)
    data = b"".join((_PAIR.pack(0, size), *pieces, PADDING[-size & 7])) if size else b""
    return BatchBody(data, 1, HAS_VALUES if size else 0, 1, 0, timestamp_us, crc32c(data))


def encode_puts(
    keys: Sequence[bytes], values: Sequence[bytes], *, timestamp_us: int, storage_id: int = 0
) -> BatchBody:
    """The body of PUT entries; ``values[i]`` belongs to ``keys[i]``."""
    count = len(keys)
    check_count(count)
    if len(values) != count:
        raise BadEntry(f"there are {count} keys but {len(values)} values: give one for each")
    if count == 1 and type(keys[0]) is type(values[0]) is bytes:
        entry = Entry(Kind.PUT, values[0], keys[0], storage_id, None, timestamp_us)
        return _encode_one(entry, 0)
    _check_timestamp(timestamp_us)
    if not 0 <= storage_id < STORAGE_ID_END:
        raise BadEntry(f"the storage id {storage_id} is out of range: use 0 to 2**64 - 1")
    if not all(keys):
        raise BadEntry("a PUT entry needs a key of at least one byte: one of the keys is empty")
    parts: list[Part] = []
    try:
        size = _add_keys(parts, keys, 0)
        keys_size = size
        size = _add_values(parts, values, size)
        data = _join(parts, size)
    except TypeError as error:
        raise BadEntry(f"a key or value is not bytes ({error}): encode it to bytes") from error
    flags = HAS_KEYS | HAS_VALUES if size > keys_size else HAS_KEYS
    return BatchBody(data, count, flags, 2, storage_id, timestamp_us, crc32c(data))


def encode_entries(
    entries: Sequence[Entry], *, rewritten: bool = False, llsns: Sequence[int] | None = None
) -> BatchBody:
    """The body of any entries; ``llsns`` (ascending) makes a sparse batch of them.

    Either all of the entries have a write version or none has.
    """
    check_count(len(entries))
    if len(entries) == 1 and llsns is None:
        return _encode_one(entries[0], REWRITTEN if rewritten else 0)
    try:
        return _encode_columns(entries, REWRITTEN if rewritten else 0, llsns)
    except (TypeError, ValueError, OverflowError) as error:
        # The columns were refused as a whole; look for the entry so that the message names it.
        for entry in entries:
            check_entry(entry)
        raise BadEntry(f"the entries do not fit into columns: {error}") from error


def check_count(count: int) -> None:
    """Raise unless a batch may have this many entries."""
    if count < 1:
        raise BadEntry("the batch has no entries: append at least one")
    if count > BATCH_ENTRIES_MAX:
        raise BatchTooLarge(
            f"the batch has {count} entries, the limit is {BATCH_ENTRIES_MAX}: append it in parts"
        )


def sparse_column(llsns: Sequence[int]) -> array[int]:
    """The LLSNS column: the distance of each LLSN from the first."""
    first = llsns[0]
    check(first >= 1, "LLSNs start at 1")
    check(llsns[-1] - first < SPARSE_SPAN_END, "a sparse batch spans less than 2**31 LLSNs")
    column = array("I", [llsn - first for llsn in llsns])
    check(column.tolist() == sorted(set(column)), "LLSNs ascend inside a batch")
    return column


def _encode_one(entry: Entry, flags: int) -> BatchBody:
    """What ``_encode_columns`` gives for a single entry, in a third of the time."""
    check_entry(entry)
    parts: list[Part] = []
    version = entry.write_version
    if version is not None:
        flags |= HAS_VERSIONS
        parts.append(_VERSION.pack(version & _LOW_64, version >> 64))
    if size := len(entry.key):
        flags |= HAS_KEYS
        parts += (_PAIR.pack(0, size), entry.key, PADDING[-size & 7])
    if size := len(entry.value):
        flags |= HAS_VALUES
        parts += (_PAIR.pack(0, size), entry.value, PADDING[-size & 7])
    if size := len(entry.blobs):
        flags |= HAS_BLOBS
        parts += (_PAIR.pack(0, size), array("Q", entry.blobs))
    data = b"".join(parts)
    return BatchBody(data, 1, flags, entry.kind, entry.storage_id, entry.timestamp_us, crc32c(data))


def _encode_columns(entries: Sequence[Entry], flags: int, llsns: Sequence[int] | None) -> BatchBody:
    count = len(entries)
    parts: list[Part] = []
    size = 0
    if llsns is not None:
        check(len(llsns) == count, "every entry of a sparse batch has its LLSN")
        flags |= HAS_LLSNS
        size = add_section(parts, sparse_column(llsns), size)
    kinds = bytes([entry.kind for entry in entries])
    keys = [entry.key for entry in entries]
    _check_kinds(kinds, keys)
    kind, timestamp, storage_id = kinds[0], entries[0].timestamp_us, entries[0].storage_id
    if count > 1:
        if kinds.count(kind) != count:
            flags, kind = flags | HAS_KINDS, 0
            size = add_section(parts, array("B", kinds), size)
        timestamps = [entry.timestamp_us for entry in entries]
        if timestamps.count(timestamp) != count:
            flags, timestamp = flags | HAS_TIMESTAMPS, 0
            size = add_section(parts, array("q", timestamps), size)
        storage_ids = [entry.storage_id for entry in entries]
        if storage_ids.count(storage_id) != count:
            flags, storage_id = flags | HAS_STORAGE_IDS, 0
            size = add_section(parts, array("Q", storage_ids), size)
    if not (0 <= storage_id < STORAGE_ID_END and TIMESTAMP_MIN <= timestamp < TIMESTAMP_END):
        raise OverflowError("a number is out of range")
    sizes = [size]
    sizes.append(_add_versions(parts, entries, sizes[-1]))
    sizes.append(_add_keys(parts, keys, sizes[-1]))
    sizes.append(_add_values(parts, [entry.value for entry in entries], sizes[-1]))
    sizes.append(_add_blobs(parts, entries, sizes[-1]))
    for flag, before, after in zip(_LAST_FLAGS, sizes, sizes[1:], strict=False):
        if after > before:
            flags |= flag
    data = _join(parts, sizes[-1])
    return BatchBody(data, count, flags, kind, storage_id, timestamp, crc32c(data))


def _check_kinds(kinds: bytes, keys: list[bytes]) -> None:
    pairs = zip(kinds, map(bool, keys), strict=True)
    if not KINDS.issuperset(kinds) or not _BAD_PAIRS.isdisjoint(pairs):
        raise ValueError("E1: a kind is unknown or does not go with its key")


def _add_versions(parts: list[Part], entries: Sequence[Entry], size: int) -> int:
    versions = [entry.write_version for entry in entries]
    given = [version for version in versions if version is not None]
    if not given:
        return size
    if len(given) != len(versions):
        raise BadEntry(
            f"{len(given)} of {len(versions)} entries have a write version: "
            "give one to all entries of a batch or to none"
        )
    size = add_section(parts, array("Q", [version & _LOW_64 for version in given]), size)
    return add_section(parts, array("Q", [version >> 64 for version in given]), size)


def _add_blobs(parts: list[Part], entries: Sequence[Entry], size: int) -> int:
    blobs = [entry.blobs for entry in entries]
    if not any(blobs):
        return size
    if max(map(len, blobs)) > ENTRY_BLOBS_MAX:
        raise ValueError("an entry refers to too many BLOBs")
    offsets = list(accumulate(map(len, blobs), initial=0))
    check_body_size(size + 8 * offsets[-1])
    size = add_section(parts, array("I", offsets), size)
    return add_section(parts, array("Q", chain.from_iterable(blobs)), size)


def _add_keys(parts: list[Part], keys: Sequence[bytes], size: int) -> int:
    return _add_bytes(parts, keys, KEY_BYTES_MAX, key_too_large, size)


def _add_values(parts: list[Part], values: Sequence[bytes], size: int) -> int:
    return _add_bytes(parts, values, VALUE_BYTES_MAX, value_too_large, size)


def _add_bytes(
    parts: list[Part],
    items: Sequence[bytes],
    limit: int,
    too_large: Callable[[int], BadEntry],
    size: int,
) -> int:
    """Append offsets and items; nothing when all items are empty."""
    lengths = list(map(len, items))
    count, first = len(lengths), lengths[0]
    if count < _UNIFORM_END and first <= KEY_BYTES_MAX and lengths.count(first) == count:
        length = count * first
        places = None
    else:
        places = list(accumulate(lengths, initial=0))
        length = places[-1]
        # No item can be too long when all of them together are not.
        if length > limit and (longest := max(lengths)) > limit:
            raise too_large(longest)
    if not length:
        return size
    check_body_size(size + 4 * count + length)
    if places is None:
        offsets = _uniform_offsets(first, 1 << count.bit_length())[: count + 1]
    else:
        offsets = array("I", places)
    size = add_section(parts, offsets, size)
    parts += items
    parts.append(PADDING[-length & 7])
    return size + length + (-length & 7)


@lru_cache(maxsize=64)
def _uniform_offsets(length: int, count: int) -> array[int]:
    """The offsets of items of one length: common, and adding them up takes a third of the time."""
    return array("I", range(0, length * count + 1, length))


def _join(parts: list[Part], size: int) -> bytes:
    check_body_size(size)
    data = b"".join(parts)
    if len(data) != size:
        raise TypeError("its length in items is not its length in bytes")
    return data


def check_body_size(size: int) -> None:
    """Raise unless a batch's body may have this many bytes."""
    if size > BATCH_BODY_BYTES_MAX:
        raise BatchTooLarge(
            f"the batch needs {size} bytes, the limit is {BATCH_BODY_BYTES_MAX}: append it in parts"
        )


def _check_timestamp(timestamp_us: int) -> None:
    if not TIMESTAMP_MIN <= timestamp_us < TIMESTAMP_END:
        raise BadEntry(f"the timestamp {timestamp_us} is out of range: use a signed 64 bit number")


check((int(Kind.APPEND), int(Kind.PUT)) == (1, 2), "the fast paths write these kinds as numbers")
