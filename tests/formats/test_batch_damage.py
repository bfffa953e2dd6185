"""Damaged batches: nothing but the same batch or ``CorruptData`` comes out of any bytes."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.flips import check_damage, golden, whole
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.batch import (
    HEADER_BYTES,
    decode_batch,
    encode_entries,
    encode_puts,
    encode_values,
)
from tidelog.formats.batch_layout import _ascending
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import Entry, Kind
from tidelog.limits import BATCH_ENTRIES_MAX, KEY_BYTES_MAX

DENSE = [
    Entry(Kind.PUT, b"first", b"k1", 3, 2**70, 5, (1, 2)),
    Entry(Kind.DELETE, b"", b"k2", 4, 8, 6),
]
EXAMPLES = {
    "batch_values.bin": (encode_values([b"one", b"", b"three"], timestamp_us=1_700_000), 7),
    "batch_puts.bin": (encode_puts([b"a", b"bb"], [b"1", b""], timestamp_us=-1, storage_id=9), 1),
    "batch_all_columns.bin": (encode_entries(DENSE, rewritten=True), 2**40),
    "batch_sparse.bin": (encode_entries(DENSE, llsns=[100, 103]), 100),
    "batch_control.bin": (encode_entries([Entry(Kind.CONTROL)] * 3), 12),
}


def reseal(data: bytes) -> bytes:
    """The same bytes with good checksums and body length, as a faulty writer would leave them."""
    body = data[HEADER_BYTES:]
    rest = struct.pack("<II", crc32c(body), len(body)) + data[16:HEADER_BYTES]
    return data[:4] + struct.pack("<I", crc32c(rest)) + rest + body


def look(data: bytes) -> object:
    """All that a batch says."""
    batch = decode_batch(data)
    place = (batch.stream, batch.term, batch.producer, batch.sequence, batch.flags)
    return place, list(batch.llsns()), batch.entries(), bytes(batch.data)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_flip_and_every_cut_is_noticed(name: str) -> None:
    body, first_llsn = EXAMPLES[name]
    data = whole(body, first_llsn)
    flips, cuts = 8 * len(data), len(data)
    # Bytes behind the batch are somebody else's, so the extensions are not damage.
    assert check_damage(data, look) == flips + cuts


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden_batches_are_read_and_written_the_same(name: str) -> None:
    body, first_llsn = EXAMPLES[name]
    data = whole(body, first_llsn, producer=21, sequence=22)
    assert data == golden(name)
    assert look(golden(name)) == look(data)


def use(data: bytes) -> None:
    """Decode and use; nothing but ``CorruptData`` may come out of any bytes."""
    for verify in (True, False):
        try:
            batch = decode_batch(data, verify=verify)
        except CorruptData:
            continue
        if verify:
            entries = batch.entries()
            assert len(entries) == batch.count
            assert [batch.entry(i) for i in range(min(batch.count, 20))] == entries[:20]
            again = decode_batch(batch.select(range(0, batch.count, 2)))
            assert again.entries() == entries[::2]


@given(st.binary(max_size=200), st.sampled_from([b"", b"TLB\x01", b"TLB\x02"]))
def test_any_bytes_are_decoded_or_refused(data: bytes, magic: bytes) -> None:
    use(magic + data)
    if len(data) >= HEADER_BYTES:
        use(reseal(b"TLB\x01" + data))


@given(
    st.sampled_from(sorted(EXAMPLES)),
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), min_size=1, max_size=3),
    st.integers(-24, 24),
)
@settings(max_examples=400)
def test_bytes_with_good_checksums_but_bad_structure_are_refused_or_usable(
    name: str, changes: list[tuple[int, int]], longer: int
) -> None:
    data = bytearray(golden(name))
    for place, byte in changes:
        data[place % len(data)] = byte
    data[:4] = b"TLB\x01"
    changed = bytes(data) + bytes(max(longer, 0))
    use(reseal(changed[: max(len(changed) + min(longer, 0), HEADER_BYTES)]))


@pytest.mark.parametrize(
    ("name", "place", "change", "words"),
    [
        ("batch_values.bin", 16, struct.pack("<I", 0), "0 entries"),
        ("batch_values.bin", 16, struct.pack("<I", BATCH_ENTRIES_MAX + 1), "1048577 entries"),
        ("batch_values.bin", 16, struct.pack("<I", 2), "B3: the padding"),
        ("batch_values.bin", 22, b"\x07", "kind 7"),
        ("batch_values.bin", 22, b"\x02", "kind 2"),
        ("batch_puts.bin", 22, b"\x04", "kind 4"),
        ("batch_values.bin", 40, struct.pack("<Q", 0), "first LLSN is 0"),
        ("batch_values.bin", 48, struct.pack("<Q", 99), "do not end at 99"),
        ("batch_all_columns.bin", 56, b"\x01", "repeats a column"),
        ("batch_values.bin", 88, b"\x01", "ascend from 0"),
        ("batch_values.bin", 92, struct.pack("<I", 9), "does not ascend"),
        ("batch_values.bin", 92, struct.pack("<I", 2**31), "does not ascend"),
        ("batch_values.bin", 100, struct.pack("<I", 17), "B4"),
        ("batch_values.bin", 100, struct.pack("<I", 2**32 - 1), "B4"),
        ("batch_puts.bin", 92, struct.pack("<I", 0), "does not ascend"),
        ("batch_sparse.bin", 88, struct.pack("<I", 1), "LLSNs do not ascend"),
        ("batch_sparse.bin", 92, struct.pack("<I", 0), "do not end"),
        ("batch_all_columns.bin", 88, b"\x06", "kind does not exist"),
        ("batch_all_columns.bin", 90, b"\x01", "padding"),
    ],
)
def test_a_contradiction_behind_good_checksums_is_named(
    name: str, place: int, change: bytes, words: str
) -> None:
    data = golden(name)
    with pytest.raises(CorruptData, match=words):
        decode_batch(reseal(data[:place] + change + data[place + len(change) :]))


@pytest.mark.parametrize(("place", "change"), [(21, b"\x02"), (23, b"\x01")])
def test_unknown_flags_are_a_newer_version(place: int, change: bytes) -> None:
    data = golden("batch_values.bin")
    with pytest.raises(UnsupportedVersion):
        decode_batch(reseal(data[:place] + change + data[place + 1 :]))
    with pytest.raises(UnsupportedVersion, match="format version 2"):
        decode_batch(b"TLB\x02" + data[4:])


def test_an_item_over_its_limit_is_refused_on_reading() -> None:
    keys = [bytes([1]) * KEY_BYTES_MAX, b"k" * 9]
    data = bytearray(whole(encode_puts(keys, [b"", b""], timestamp_us=1)))
    assert decode_batch(data).keys() == keys  # type: ignore[arg-type]
    data[92:96] = struct.pack("<I", KEY_BYTES_MAX + 1)
    with pytest.raises(CorruptData, match="larger than 65535"):
        decode_batch(reseal(bytes(data)))


@pytest.mark.parametrize("count", [2, 255, 256, 257, 10_000])
def test_one_offset_out_of_order_is_noticed_wherever_it_is(count: int) -> None:
    data = whole(encode_values([b"xyz"] * count, timestamp_us=1))
    for i in (1, count // 2, count - 1):
        place = HEADER_BYTES + 4 * i
        for wrong in (3 * (i + 1) + 1, 3 * (i - 1) - 1 if i > 1 else 2**31 + 1):
            bad = data[:place] + struct.pack("<I", wrong) + data[place + 4 :]
            with pytest.raises(CorruptData, match="does not ascend"):
                decode_batch(reseal(bad))


@pytest.mark.parametrize("offset", [-1, 1, 100, 10**9])
def test_an_offset_without_a_batch_is_refused(offset: int) -> None:
    with pytest.raises(CorruptData):
        decode_batch(whole(encode_values([b"v"], timestamp_us=1)), offset)


def test_unverified_bytes_are_still_bounded_by_their_batch() -> None:
    data = bytearray(golden("batch_values.bin"))
    data[-1] ^= 1
    with pytest.raises(CorruptData, match="checksum"):
        decode_batch(bytes(data))
    assert decode_batch(bytes(data), verify=False).count == 3


# -- long columns, which are looked at in another way ---------------------------------------------

LONG = 5000


def with_key_offset(keys: Sequence[bytes], place: int, offset: int) -> bytes:
    """A batch of PUTs one of whose key offsets was changed before it was sealed."""
    data = bytearray(whole(encode_puts(keys, [b""] * len(keys), timestamp_us=1), 1))
    struct.pack_into("<I", data, HEADER_BYTES + 4 * place, offset)
    return reseal(bytes(data))


@pytest.mark.parametrize(
    ("place", "offset"),
    [(0, 1), (1, 0), (2, 1), (LONG // 2, LONG // 2 - 1), (LONG - 1, LONG), (9, 2**31 + 9),
     (LONG - 1, 2**31 - 1), (LONG - 1, 2**32 - 1)],
)  # fmt: skip
def test_long_offsets_that_do_not_ascend_are_noticed(place: int, offset: int) -> None:
    """Every key has one byte, so each offset has only one value that is right."""
    keys = [b"k"] * LONG
    assert decode_batch(with_key_offset(keys, place, place)).keys() == keys
    with pytest.raises(CorruptData, match="does not ascend"):
        decode_batch(with_key_offset(keys, place, offset))


def test_one_item_of_a_long_column_that_is_too_large_is_noticed() -> None:
    keys = [*[b"k"] * (LONG - 2), b"kk", bytes(KEY_BYTES_MAX)]
    assert decode_batch(with_key_offset(keys, LONG - 1, LONG)).keys() == keys
    with pytest.raises(CorruptData, match="larger than"):
        decode_batch(with_key_offset(keys, LONG - 1, LONG - 1))


@pytest.mark.parametrize("count", [3, 255, 256, 257, 300])
@pytest.mark.parametrize("step", [0, 1])
def test_short_and_long_columns_ascend_by_the_same_rule(count: int, step: int) -> None:
    def ascends(items: list[int]) -> bool:
        return _ascending(memoryview(array("I", items)), step)

    top = (1 << 31) - count
    assert ascends(list(range(top, top + count)))
    assert not ascends(list(range(top + 1, top + count + 1)))
    assert ascends([7] * count) == (step == 0)
    for place in (0, count // 2, count - 2):
        items = list(range(0, 2 * count, 2))
        items[place] = items[place + 1] + 1
        assert not ascends(items)
        items[place] = items[place + 1]
        assert ascends(items) == (step == 0)
