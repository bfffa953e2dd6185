"""Key rows and their pages: against plain Python, and with every bit flipped."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_intdigest

from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.batch import Batch, decode_batch, encode_entries, encode_puts, seal_batch
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_index import (
    PAGE_MAGIC,
    KeyPage,
    KeyRows,
    build_rows,
    concat_rows,
    encode_key_pages,
    hash_key,
    is_sorted,
    no_rows,
    rows_from_batches,
    rows_of_pages,
    sort_rows,
)
from tidelog.formats.key_rows import constant
from tidelog.formats.segment import SpecialEntry
from tidelog.invariants import InvariantViolation
from tidelog.limits import KEY_PAGE_ROWS

SEED = 77
RUNS = GlsnRuns([(1, 1001, 50), (51, 2000, 10_000)])


def sealed(entries: list[Entry], first_llsn: int, llsns: list[int] | None = None) -> Batch:
    body = encode_entries(entries, llsns=llsns)
    return decode_batch(seal_batch(body, stream=1, term=1, first_llsn=first_llsn) + body.data)


def versioned(entries: list[Entry], versions: list[int]) -> list[Entry]:
    return [
        Entry(e.kind, e.value, e.key, e.storage_id, version, e.timestamp_us)
        for e, version in zip(entries, versions, strict=True)
    ]


def make_entry(kind: Kind, key: bytes, value: bytes, storage: int, timestamp: int) -> Entry:
    has_key = kind in (Kind.PUT, Kind.DELETE)
    return Entry(kind, value, key if has_key else b"", storage, None, timestamp)


ENTRIES = st.lists(
    st.builds(
        make_entry,
        st.sampled_from(Kind),
        st.sampled_from([b"a", b"bb", b"ccc"]),
        st.binary(max_size=5),
        st.sampled_from([0, 0, 3, 2**64 - 1]),
        st.integers(-5, 5),
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Batches in ascending order: dense or sparse, with versions or without."""
    result = []
    llsn = 1
    for entries in draw(st.lists(ENTRIES, min_size=1, max_size=5)):
        llsn += draw(st.integers(0, 2))
        if draw(st.booleans()):
            number = st.integers(0, 2**128 - 1)
            versions = draw(st.lists(number, min_size=len(entries), max_size=len(entries)))
            entries = versioned(entries, versions)  # noqa: PLW2901
        llsns = None
        if draw(st.booleans()):
            llsns = [llsn + 2 * i for i in range(len(entries))]
        result.append(sealed(entries, llsn, llsns))
        llsn = result[-1].end_llsn
    return result


def plain_rows(given_batches: list[Batch]) -> list[tuple[int, ...]]:
    """The expected rows, in sorted order, one tuple each."""
    rows = []
    for batch in given_batches:
        for llsn, entry in zip(batch.llsns(), batch.entries(), strict=True):
            if entry.kind in (Kind.PUT, Kind.DELETE):
                version = entry.write_version
                version = RUNS.glsn_of(llsn) if version is None else version
                hashed = hash_key(entry.storage_id, entry.key, SEED)
                size = len(entry.key) + len(entry.value)
                rows.append((*hashed, version, llsn, entry.storage_id, int(entry.kind), size))
    return sorted(rows)


def as_tuples(rows: KeyRows) -> list[tuple[int, ...]]:
    return [
        (
            int(rows.hash_hi[i]),
            int(rows.hash_lo[i]),
            rows.version_at(i),
            int(rows.llsn[i]),
            int(rows.storage[i]),
            int(rows.kind[i]),
            int(rows.size[i]),
        )
        for i in range(len(rows))
    ]


def test_the_hash_is_that_of_the_storage_id_and_the_key() -> None:
    high, low = hash_key(5, b"key", SEED)
    assert high << 64 | low == xxh3_128_intdigest(b"\5\0\0\0\0\0\0\0key", SEED)
    assert hash_key(5, b"key", SEED) != hash_key(6, b"key", SEED)
    assert hash_key(5, b"key", SEED) != hash_key(5, b"key", SEED + 1)


@given(batches())
def test_rows_special_entries_and_statistics_are_those_of_the_entries(
    given_batches: list[Batch],
) -> None:
    rows, special, stats = build_rows(iter(given_batches), RUNS, SEED)
    expected = plain_rows(given_batches)
    assert (rows is None) == (not expected)
    assert as_tuples(rows if rows is not None else no_rows()) == expected
    found = rows_from_batches(given_batches, RUNS.glsns, SEED)
    assert as_tuples(sort_rows(found)) == expected
    assert found.llsn.tolist() == sorted(found.llsn.tolist())
    every = [
        (llsn, entry)
        for batch in given_batches
        for llsn, entry in zip(batch.llsns(), batch.entries(), strict=True)
    ]
    assert special == [
        SpecialEntry(
            llsn,
            entry.kind,
            entry.storage_id,
            RUNS.glsn_of(llsn) if entry.write_version is None else entry.write_version,
            entry.write_version is None,
        )
        for llsn, entry in every
        if entry.kind in (Kind.DELETE_STORAGE, Kind.CONTROL)
    ]
    assert stats.entries == len(every)
    assert stats.keyed == len(expected)
    assert stats.data_bytes == sum(len(e.key) + len(e.value) for _, e in every)
    assert stats.min_timestamp_us == min(e.timestamp_us for _, e in every)
    assert stats.max_timestamp_us == max(e.timestamp_us for _, e in every)
    versions = [row[2] for row in expected]
    versions += [s.version for s in special if s.is_storage_delete]
    assert stats.max_version == max(versions, default=0)


def test_an_entry_without_a_glsn_has_no_row() -> None:
    batch = sealed([Entry(Kind.PUT, b"v", b"k")], 20_000)
    with pytest.raises(InvariantViolation):
        rows_from_batches([batch], RUNS.glsns, SEED)


def random_rows(count: int, *, keys: int, seed: int = 1) -> KeyRows:
    rng = np.random.default_rng(seed)
    key = rng.integers(0, keys, count).astype(np.uint64)
    return KeyRows(
        hash_hi=key * np.uint64(2**58 // keys),
        hash_lo=key % np.uint64(3),
        storage=np.zeros(count, dtype=np.uint64),
        version_hi=rng.integers(0, 2, count).astype(np.uint64),
        version_lo=rng.integers(0, 5, count).astype(np.uint64),
        llsn=np.arange(1, count + 1, dtype=np.uint64),
        kind=rng.integers(2, 4, count).astype(np.uint8),
        size=rng.integers(0, 2**32, count).astype(np.uint32),
    )


@pytest.mark.parametrize("keys", [1, 7, 100, 2**40])
def test_sorting_orders_by_hash_version_and_llsn(keys: int) -> None:
    rows = random_rows(300, keys=keys)
    result = sort_rows(rows)
    assert is_sorted(result)
    assert as_tuples(result) == sorted(as_tuples(rows))
    assert not is_sorted(rows)
    assert is_sorted(no_rows())


@given(
    st.lists(st.tuples(*[st.integers(0, 1)] * 5), max_size=5),
    st.sets(st.sampled_from(["hash_hi", "hash_lo", "version_hi", "version_lo", "llsn"])),
)
def test_rows_are_sorted_if_no_row_is_below_the_one_before_it(
    found: list[tuple[int, ...]], constants: set[str]
) -> None:
    """Each column decides where those before it tie; one that never varies decides nothing."""
    names = ("hash_hi", "hash_lo", "version_hi", "version_lo", "llsn")
    count = len(found)
    columns = {
        name: constant(1, count, np.uint64)
        if name in constants
        else np.array([row[place] for row in found], dtype=np.uint64)
        for place, name in enumerate(names)
    }
    rows = KeyRows(
        storage=constant(0, count, np.uint64),
        kind=constant(2, count, np.uint8),
        size=constant(0, count, np.uint32),
        **columns,
    )
    places = list(zip(*(columns[name].tolist() for name in names), strict=True))
    assert is_sorted(rows) == (places == sorted(places))


def test_rows_can_be_sliced_filtered_and_joined() -> None:
    rows = sort_rows(random_rows(100, keys=10))
    assert rows[3:7].equals(rows[np.arange(3, 7)])
    puts = rows.filter(rows.kind == 2)
    deletes = rows[rows.kind == 3]
    assert len(puts) + len(deletes) == 100
    assert set(puts.kind.tolist()) == {2}
    assert sort_rows(concat_rows([puts, deletes])).equals(rows)
    assert len(concat_rows([])) == 0
    middle = int(rows.hash_hi[50])
    assert concat_rows([rows.between(0, middle), rows.between(middle, 2**64)]).equals(rows)
    assert int(rows.between(middle, 2**64).hash_hi[0]) == middle


@pytest.mark.parametrize("storage", [0, 9])
@pytest.mark.parametrize("implicit", [True, False])
@pytest.mark.parametrize("span", [1, 2**33])
def test_pages_come_back_in_every_shape(storage: int, implicit: bool, span: int) -> None:
    count = 2 * KEY_PAGE_ROWS + 5
    rows = random_rows(count, keys=40)
    llsn = rows.llsn.copy()
    llsn[-1] += np.uint64(span)
    runs = GlsnRuns([(1, 7, count), (count + span, count + 7 + span, 1)])
    rows = KeyRows(
        rows.hash_hi,
        rows.hash_lo,
        np.full(count, storage, dtype=np.uint64),
        np.zeros(count, dtype=np.uint64) if implicit else rows.version_hi,
        runs.glsns(llsn) if implicit else rows.version_lo,
        llsn,
        rows.kind,
        rows.size,
    )
    rows = sort_rows(rows)
    pages = list(encode_key_pages(rows, 1, runs))
    assert [page.rows for page in pages] == [KEY_PAGE_ROWS, KEY_PAGE_ROWS, 5]
    decoded = [KeyPage.decode(page.data, number=i, first_llsn=1) for i, page in enumerate(pages)]
    assert [page.hash_hi[0] for page in decoded] == [page.fence for page in pages]
    assert {page.implicit for page in decoded} == {implicit}
    assert all(len(page.data) % 8 == 0 for page in pages)
    data, lengths = b"".join(page.data for page in pages), [len(page.data) for page in pages]
    back, told_implicit = rows_of_pages(data, lengths, number=0, first_llsn=1)
    assert told_implicit is implicit
    last, _ = rows_of_pages(data[sum(lengths[:2]) :], lengths[2:], number=2, first_llsn=1)
    assert last.equals(back[2 * KEY_PAGE_ROWS :])
    zeros = np.zeros(count, dtype=np.uint64)
    if implicit:
        rows = KeyRows(
            rows.hash_hi, rows.hash_lo, rows.storage, zeros, zeros, rows.llsn, rows.kind, rows.size
        )
    assert back.equals(rows)
    tuples = as_tuples(rows)
    for number in (0, 1, 1023, 1024, 1500, count - 1):
        high, low = tuples[number][:2]
        hits = [hit for page in decoded for hit in page.find(high, low)]
        expected = [(t[3], t[2], t[5]) for t in tuples if t[:2] == (high, low)]
        assert [(hit.llsn, hit.version, int(hit.kind)) for hit in hits] == expected
        assert decoded[0].find(high, low + 5) == []


def test_versions_are_stored_unless_the_runs_tell_them_all() -> None:
    body = encode_puts([b"a", b"b"], [b"1", b"2"], timestamp_us=1)
    batch = decode_batch(seal_batch(body, stream=1, term=1, first_llsn=1) + body.data)
    rows, _, _ = build_rows([batch], RUNS, SEED)
    assert rows is not None
    for runs, implicit in ((RUNS, True), (None, False), (GlsnRuns([(1, 5, 9)]), False)):
        (page,) = encode_key_pages(rows, 1, runs)
        decoded = KeyPage.decode(page.data, number=0, first_llsn=1)
        assert decoded.implicit is implicit
        assert {hit.version for hit in decoded.find(*hash_key(0, b"b", SEED))} <= {0, 1002}


def test_unsorted_rows_are_not_encoded() -> None:
    with pytest.raises(InvariantViolation):
        list(encode_key_pages(random_rows(50, keys=10), 1))
    with pytest.raises(InvariantViolation):
        list(encode_key_pages(sort_rows(random_rows(50, keys=10)), 2))
    assert list(encode_key_pages(no_rows(), 1)) == []


def small_page() -> bytes:
    (page,) = encode_key_pages(sort_rows(random_rows(3, keys=3)), 1)
    return page.data


def read_page(data: bytes, number: int, first_llsn: int) -> None:
    KeyPage.decode(data, number=number, first_llsn=first_llsn)


def read_rows(data: bytes, number: int, first_llsn: int) -> None:
    rows_of_pages(data, [len(data)], number=number, first_llsn=first_llsn)


both_ways = pytest.mark.parametrize("read", [read_page, read_rows])
"""One page to look a key up in, and the rows of pages that lie behind one another."""


@both_ways
def test_every_bit_flip_and_truncation_of_a_page_is_seen(
    read: Callable[[bytes, int, int], None],
) -> None:
    data = small_page()
    for where in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[where // 8] ^= 1 << where % 8
        with pytest.raises(CorruptData):
            read(bytes(flipped), 0, 1)
    for length in range(len(data)):
        with pytest.raises(CorruptData):
            read(data[:length], 0, 1)
    with pytest.raises(CorruptData):
        read(data + bytes(8), 0, 1)


@both_ways
def test_a_page_passes_for_no_other_page(read: Callable[[bytes, int, int], None]) -> None:
    with pytest.raises(CorruptData, match="this is page 0 of 1"):
        read(small_page(), 1, 1)
    with pytest.raises(CorruptData, match="this is page 0 of 1"):
        read(small_page(), 0, 2)


def test_each_of_neighbouring_pages_is_checked() -> None:
    rows = sort_rows(random_rows(2 * KEY_PAGE_ROWS + 5, keys=900))
    pages = [page.data for page in encode_key_pages(rows, 1)]
    lengths = [len(page) for page in pages]

    def read(pages: list[bytes]) -> KeyRows:
        return rows_of_pages(b"".join(pages), lengths, number=0, first_llsn=1)[0]

    assert read(pages).equals(rows)
    with pytest.raises(CorruptData, match="key page 0: this is page 1"):
        read([pages[1], pages[0], pages[2]])
    for number in range(3):
        damaged = bytearray(pages[number])
        damaged[-1 - (lengths[number] // 2)] ^= 1
        with pytest.raises(CorruptData, match=f"key page {number}: checksum"):
            read([*pages[:number], bytes(damaged), *pages[number + 1 :]])
    by_glsn = replace(rows, version_hi=constant(0, len(rows), np.uint64), version_lo=rows.llsn)
    runs = GlsnRuns([(1, 1, 10_000)])
    without_versions = next(encode_key_pages(sort_rows(by_glsn), 1, runs)).data
    mixed = [without_versions, pages[1]]
    with pytest.raises(CorruptData, match="different columns"):
        rows_of_pages(b"".join(mixed), [len(page) for page in mixed], number=0, first_llsn=1)


@given(st.binary(max_size=150), st.booleans())
@both_ways
def test_any_bytes_are_a_page_or_corrupt(
    read: Callable[[bytes, int, int], None], data: bytes, checksummed: bool
) -> None:
    if checksummed:
        data = PAGE_MAGIC + crc32c(data).to_bytes(4, "little") + data
    try:
        read(data, 0, 1)
    except CorruptData:
        pass


def test_structure_is_checked_behind_a_valid_checksum() -> None:
    rng = random.Random(3)
    data = small_page()
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 2)):
            changed[rng.choice([*range(8, 32), *range(len(data) - 8, len(data))])] = rng.choice(
                [0, 1, 2, 3, 4, 7, 255]
            )
        changed[4:8] = crc32c(bytes(changed[8:])).to_bytes(4, "little")
        try:
            page = KeyPage.decode(bytes(changed), number=0, first_llsn=1)
        except CorruptData:
            with pytest.raises(CorruptData):
                read_rows(bytes(changed), 0, 1)
            continue
        read_rows(bytes(changed), 0, 1)
        page.find(page.hash_hi[0], page.hash_lo[0])
    changed = bytearray(data)
    changed[12] = 8
    changed[4:8] = crc32c(bytes(changed[8:])).to_bytes(4, "little")
    with pytest.raises(UnsupportedVersion):
        KeyPage.decode(bytes(changed), number=0, first_llsn=1)
