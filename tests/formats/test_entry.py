"""Which entries are well formed, and what the errors say about the others."""

from __future__ import annotations

import pytest

from tidelog.errors import BadEntry, KeyTooLarge, ValueTooLarge
from tidelog.formats.entry import Entry, Kind, check_entry
from tidelog.limits import ENTRY_BLOBS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX


@pytest.mark.parametrize(
    "entry",
    [
        Entry(Kind.APPEND),
        Entry(Kind.APPEND, b"v"),
        Entry(Kind.APPEND, b"v", b"k"),
        Entry(Kind.PUT, b"", b"k"),
        Entry(Kind.DELETE, key=b"k" * KEY_BYTES_MAX),
        Entry(Kind.DELETE_STORAGE, storage_id=2**64 - 1),
        Entry(Kind.CONTROL, b"x", write_version=2**128 - 1),
        Entry(Kind.APPEND, timestamp_us=-(2**63)),
        Entry(Kind.APPEND, timestamp_us=2**63 - 1),
        Entry(Kind.APPEND, blobs=(2**64 - 1,) * ENTRY_BLOBS_MAX),
    ],
)
def test_a_well_formed_entry_passes(entry: Entry) -> None:
    check_entry(entry)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry(Kind.PUT, b"v"), "PUT entry needs a key"),
        (Entry(Kind.DELETE), "DELETE entry needs a key"),
        (Entry(Kind.DELETE_STORAGE, key=b"k"), "DELETE_STORAGE entry has no key"),
        (Entry(Kind.CONTROL, key=b"k"), "CONTROL entry has no key"),
        (Entry(9), "kind 9 does not exist"),  # type: ignore[arg-type]
        (Entry("PUT"), "kind 'PUT' does not exist"),  # type: ignore[arg-type]
        (Entry(Kind.APPEND, "v"), "value is a str"),  # type: ignore[arg-type]
        (Entry(Kind.PUT, b"v", "k"), "key is a str"),  # type: ignore[arg-type]
        (Entry(Kind.APPEND, storage_id=-1), "storage id -1 is out of range"),
        (Entry(Kind.APPEND, storage_id=2**64), "storage id"),
        (Entry(Kind.APPEND, storage_id="1"), "storage id is a str"),  # type: ignore[arg-type]
        (Entry(Kind.APPEND, write_version=2**128), "write version"),
        (Entry(Kind.APPEND, write_version=-1), "write version -1"),
        (Entry(Kind.APPEND, timestamp_us=2**63), "timestamp"),
        (Entry(Kind.APPEND, blobs=(1,) * (ENTRY_BLOBS_MAX + 1)), "1025 BLOBs, the limit is 1024"),
        (Entry(Kind.APPEND, blobs=(-1,)), "BLOB id -1"),
    ],
)
def test_a_bad_entry_is_refused_with_words_that_name_the_fault(entry: Entry, words: str) -> None:
    with pytest.raises(BadEntry, match=words):
        check_entry(entry)


def test_a_large_key_is_refused_with_its_size_and_the_limit() -> None:
    with pytest.raises(KeyTooLarge, match="65536 bytes, the limit is 65535: use a digest"):
        check_entry(Entry(Kind.PUT, key=bytes(KEY_BYTES_MAX + 1)))


def test_a_large_value_is_refused_with_its_size_and_the_limit() -> None:
    with pytest.raises(ValueTooLarge, match="16777217 bytes, the limit is 16777216: store it"):
        check_entry(Entry(Kind.APPEND, bytes(VALUE_BYTES_MAX + 1)))
