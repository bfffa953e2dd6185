"""The columnar batch: round trips, views, selection and limits."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.flips import whole
from tidelog.errors import (
    BadEntry,
    BatchTooLarge,
    KeyTooLarge,
    ValueTooLarge,
)
from tidelog.formats.batch import (
    HEADER_BYTES,
    Batch,
    Column,
    decode_batch,
    encode_entries,
    encode_puts,
    encode_values,
    seal_batch,
)
from tidelog.formats.batch_layout import may_concern_keys
from tidelog.formats.entry import Entry, Kind
from tidelog.invariants import InvariantViolation
from tidelog.limits import (
    BATCH_BODY_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
)

u64 = st.integers(0, 2**64 - 1) | st.integers(0, 3)


@st.composite
def entry_lists(draw: st.DrawFn) -> list[Entry]:
    """Entries with any combination of constant and varying columns."""
    count = draw(st.integers(1, 9))
    kinds = draw(st.sampled_from([[kind] for kind in Kind] + [list(Kind)]))
    stamps = draw(st.sampled_from([st.just(5), st.integers(-(2**63), 2**63 - 1)]))
    storages = draw(st.sampled_from([st.just(0), st.just(8), u64]))
    values = draw(st.sampled_from([st.just(b""), st.binary(max_size=20), st.just(b"same")]))
    keys = draw(st.sampled_from([st.just(b""), st.binary(max_size=9)]))
    versions: st.SearchStrategy[int | None] = draw(
        st.sampled_from([st.none(), st.integers(0, 2**128 - 1)])
    )
    blobs = draw(st.sampled_from([st.just([]), st.lists(u64, max_size=3)]))
    entries = []
    for _ in range(count):
        kind = draw(st.sampled_from(kinds))
        key = draw(keys)
        if kind in (Kind.PUT, Kind.DELETE):
            key = key or b"k"
        elif kind is not Kind.APPEND:
            key = b""
        entries.append(
            Entry(
                kind,
                draw(values),
                key,
                draw(storages),
                draw(versions),
                draw(stamps),
                tuple(draw(blobs)),
            )
        )
    return entries


def check_view(batch: Batch, entries: Sequence[Entry], llsns: Sequence[int]) -> None:
    """Every way to look at the batch shows these entries."""
    count = len(entries)
    assert batch.count == count
    assert (batch.first_llsn, batch.end_llsn) == (llsns[0], llsns[-1] + 1)
    assert batch.entries() == list(entries)
    assert [batch.entry(i) for i in range(count)] == list(entries)
    assert batch.entries(count // 2) == list(entries[count // 2 :])
    assert batch.entries(0, count // 2) == list(entries[: count // 2])
    assert batch.entries(count // 3, count // 2) == list(entries[count // 3 : count // 2])
    assert list(batch.llsns()) == list(llsns)
    assert [batch.llsn_at(i) for i in range(count)] == list(llsns)
    for llsn in range(max(llsns[0] - 2, 0), llsns[-1] + 3):
        assert batch.position(llsn) == sum(other < llsn for other in llsns)
    assert batch.kinds() == bytes(entry.kind for entry in entries)
    assert batch.keys() == [entry.key for entry in entries]
    assert batch.values() == [entry.value for entry in entries]
    assert batch.is_keyed == any(entry.kind in (Kind.PUT, Kind.DELETE) for entry in entries)
    sizes = [len(entry.key) + len(entry.value) for entry in entries]
    assert [batch.entry_bytes(i) for i in range(count)] == sizes


# --- round trips -----------------------------------------------------------------------------


@given(entry_lists(), st.booleans(), st.integers(1, 2**60), u64, u64)
def test_entries_come_back(
    entries: list[Entry], rewritten: bool, first_llsn: int, producer: int, sequence: int
) -> None:
    data = whole(encode_entries(entries, rewritten=rewritten), first_llsn, producer, sequence)
    assert len(data) % 8 == 0
    for verify in (True, False):
        batch = decode_batch(b"before--" + data + b"behind", 8, verify=verify)
        check_view(batch, entries, range(first_llsn, first_llsn + len(entries)))
        assert (batch.stream, batch.term) == (3, 2)
        assert (batch.producer, batch.sequence) == (producer, sequence)
        assert batch.rewritten == rewritten
        assert batch.dense
        assert batch.length == len(data)
        assert bytes(batch.data) == data


@given(entry_lists(), st.data())
def test_sparse_entries_come_back(entries: list[Entry], data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(1, 5), min_size=len(entries), max_size=len(entries)))
    llsns = list(accumulate(steps))
    batch = decode_batch(whole(encode_entries(entries, llsns=llsns), llsns[0]))
    check_view(batch, entries, llsns)
    assert not batch.dense


@given(st.lists(st.binary(max_size=30), min_size=1) | st.lists(st.just(b"four"), min_size=1))
def test_the_fast_path_for_values_writes_the_same_bytes(values: list[bytes]) -> None:
    entries = [Entry(Kind.APPEND, value, timestamp_us=-9) for value in values]
    assert encode_values(values, timestamp_us=-9) == encode_entries(entries)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=9)), min_size=1))
def test_the_fast_path_for_puts_writes_the_same_bytes(pairs: list[tuple[bytes, bytes]]) -> None:
    entries = [Entry(Kind.PUT, v, k, storage_id=4, timestamp_us=6) for k, v in pairs]
    keys, values = zip(*pairs, strict=True)
    assert encode_puts(keys, values, timestamp_us=6, storage_id=4) == encode_entries(entries)


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 5000, 20_000])
@pytest.mark.parametrize("step", [0, 1])
def test_many_entries_come_back(count: int, step: int) -> None:
    values = [b"x" * (3 + step * (i % 5)) for i in range(count)]
    batch = decode_batch(whole(encode_values(values, timestamp_us=1)))
    assert batch.values() == values


def test_bytes_like_values_are_taken() -> None:
    values = [bytearray(b"ab"), memoryview(b"cde")]
    body = encode_values(values, timestamp_us=1)  # type: ignore[arg-type]
    assert decode_batch(whole(body)).values() == [b"ab", b"cde"]


# --- layout ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100])
def test_a_single_small_entry_costs_little(size: int) -> None:
    data = whole(encode_entries([Entry(Kind.APPEND, bytes(size), timestamp_us=10**15)]))
    assert len(data) <= 88 + 8 + (size + 7) // 8 * 8
    assert size or len(data) == 88


def test_constant_columns_are_left_out() -> None:
    entries = [Entry(Kind.DELETE_STORAGE, storage_id=9, timestamp_us=5)] * 1000
    assert len(whole(encode_entries(entries))) == 88
    assert decode_batch(whole(encode_entries(entries))).entries() == entries


def test_columns_are_typed_and_aligned_views_of_the_batch() -> None:
    entries = [
        Entry(Kind.PUT, b"one", b"k1", 5, 2**64 + 1, -3, (7,)),
        Entry(Kind.APPEND, b"", b"", 6, 2, 4, (8, 9)),
        Entry(Kind.DELETE, b"three", b"key", 7, 3, 5, ()),
    ]
    data = whole(encode_entries(entries, llsns=[7, 9, 10]))
    batch = decode_batch(data)
    expected: dict[Column, tuple[str, Sequence[int]]] = {
        Column.LLSNS: ("I", [0, 2, 3]),
        Column.KINDS: ("B", [2, 1, 3]),
        Column.TIMESTAMPS: ("q", [-3, 4, 5]),
        Column.STORAGE_IDS: ("Q", [5, 6, 7]),
        Column.VERSIONS_LOW: ("Q", [1, 2, 3]),
        Column.VERSIONS_HIGH: ("Q", [1, 0, 0]),
        Column.KEY_OFFSETS: ("I", [0, 2, 2, 5]),
        Column.KEY_BYTES: ("B", b"k1key"),
        Column.VALUE_OFFSETS: ("I", [0, 3, 3, 8]),
        Column.VALUE_BYTES: ("B", b"onethree"),
        Column.BLOB_OFFSETS: ("I", [0, 1, 3, 3]),
        Column.BLOB_IDS: ("Q", [7, 8, 9]),
    }
    assert list(expected) == list(Column)
    at = HEADER_BYTES
    for column, (item, content) in expected.items():
        view = batch.column(column)
        assert view is not None
        assert view.format == item
        assert view.tolist() == list(content)
        assert view.obj is data
        assert at % 8 == 0
        assert data[at : at + view.nbytes] == view.tobytes()
        at += (view.nbytes + 7) // 8 * 8
    assert at == len(data)


def test_columns_that_were_left_out_are_none() -> None:
    batch = decode_batch(whole(encode_values([b"a", b"b"], timestamp_us=1)))
    present = {column for column in Column if batch.column(column) is not None}
    assert present == {Column.VALUE_OFFSETS, Column.VALUE_BYTES}
    assert batch.kind_at(1) is Kind.APPEND
    assert batch.version_at(1) is None
    assert (batch.timestamp_at(0), batch.storage_id_at(0), batch.blobs_at(0)) == (1, 0, ())


@pytest.mark.parametrize("i", [-1, 2])
def test_an_index_outside_the_batch_is_an_error(i: int) -> None:
    batch = decode_batch(whole(encode_values([b"a", b"b"], timestamp_us=1)))
    for look in (batch.entry, batch.value_at, batch.key_at, batch.llsn_at, batch.version_at):
        with pytest.raises(IndexError):
            look(i)
    with pytest.raises(InvariantViolation):
        batch.entries(0, 3)


# --- selection -------------------------------------------------------------------------------


@given(entry_lists(), st.data())
def test_a_selection_holds_exactly_the_chosen_entries(
    entries: list[Entry], data: st.DataObject
) -> None:
    count = len(entries)
    chosen = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    source = whole(encode_entries(entries, rewritten=True), 50, 11, 12)
    batch = decode_batch(decode_batch(source).select(chosen))
    check_view(batch, [entries[i] for i in chosen], [50 + i for i in chosen])
    assert (batch.stream, batch.term, batch.rewritten) == (3, 2, True)
    assert batch.dense == (chosen[-1] - chosen[0] + 1 == len(chosen))
    kept = (11, 12) if len(chosen) == count else (0, 0)
    assert (batch.producer, batch.sequence) == kept

    again = sorted(data.draw(st.sets(st.sampled_from(range(len(chosen))), min_size=1)))
    second = decode_batch(batch.select(again))
    positions = [chosen[i] for i in again]
    check_view(second, [entries[i] for i in positions], [50 + i for i in positions])


def test_a_selection_of_all_entries_is_the_batch_itself() -> None:
    data = whole(encode_values([b"a", b"b", b"c"], timestamp_us=1), 5, 1, 2)
    assert decode_batch(data).select(range(3)) == data


@pytest.mark.parametrize("positions", [[], [1, 0], [0, 0], [-1, 1], [1, 3]])
def test_a_selection_that_does_not_ascend_inside_the_batch_is_a_bug(positions: list[int]) -> None:
    batch = decode_batch(whole(encode_values([b"a", b"b", b"c"], timestamp_us=1)))
    with pytest.raises(InvariantViolation):
        batch.select(positions)


def test_a_selection_of_the_largest_batch_can_be_read_back() -> None:
    count = BATCH_ENTRIES_MAX
    room = BATCH_BODY_BYTES_MAX - 4 * (count + 2)
    values = [b"0123456789abcdefghijklm"] * (count - 1)
    values.append(bytes(room - sum(map(len, values))))
    body = encode_values(values, timestamp_us=1)
    assert len(body.data) == BATCH_BODY_BYTES_MAX
    batch = decode_batch(decode_batch(whole(body)).select([*range(1000), *range(1001, count)]))
    assert batch.length > BATCH_BODY_BYTES_MAX + HEADER_BYTES
    assert (batch.count, batch.llsn_at(1000), batch.value_at(1000)) == (count - 1, 1008, values[0])


# --- limits ----------------------------------------------------------------------------------


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(BadEntry, match="no entries"):
        encode_entries([])
    with pytest.raises(BadEntry, match="no entries"):
        encode_values([], timestamp_us=1)
    with pytest.raises(BadEntry, match="no entries"):
        encode_puts([], [], timestamp_us=1)


def test_too_many_entries_are_refused() -> None:
    values = [b""] * (BATCH_ENTRIES_MAX + 1)
    with pytest.raises(BatchTooLarge, match="1048577 entries, the limit is 1048576: append"):
        encode_values(values, timestamp_us=1)


def test_too_many_bytes_are_refused() -> None:
    chunk = bytes(KEY_BYTES_MAX)
    for values in ([chunk] * 600, [*[chunk] * 600, b"x"], [bytes(VALUE_BYTES_MAX)] * 2):
        with pytest.raises(BatchTooLarge, match=r"needs \d+ bytes, the limit is 33554432: append"):
            encode_values(values, timestamp_us=1)
        with pytest.raises(BatchTooLarge):
            encode_entries([Entry(Kind.APPEND, value) for value in values])


@pytest.mark.parametrize("others", [0, 3])
def test_a_large_value_or_key_is_refused(others: int) -> None:
    large_value, large_key = bytes(VALUE_BYTES_MAX + 1), bytes(KEY_BYTES_MAX + 1)
    fill = [b"x"] * others
    with pytest.raises(ValueTooLarge, match="16777217"):
        encode_values([*fill, large_value], timestamp_us=1)
    with pytest.raises(ValueTooLarge):
        encode_puts([*fill, b"k"], [*fill, large_value], timestamp_us=1)
    with pytest.raises(KeyTooLarge, match="65536"):
        encode_puts([*fill, large_key], [*fill, b"v"], timestamp_us=1)
    with pytest.raises(KeyTooLarge):
        encode_entries([*[Entry(Kind.APPEND)] * others, Entry(Kind.PUT, b"v", large_key)])
    with pytest.raises(KeyTooLarge):
        encode_puts([large_key] * (others + 1), [b"v"] * (others + 1), timestamp_us=1)


def test_the_largest_value_and_key_fit() -> None:
    entry = Entry(Kind.PUT, bytes(VALUE_BYTES_MAX), bytes(KEY_BYTES_MAX))
    assert decode_batch(whole(encode_entries([entry]))).entry(0) == entry


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize(
    "bad",
    [
        Entry(Kind.PUT, b"v"),
        Entry(Kind.CONTROL, b"v", b"k"),
        Entry(9),  # type: ignore[arg-type]
        Entry(300),  # type: ignore[arg-type]
        Entry(Kind.APPEND, "text"),  # type: ignore[arg-type]
        Entry(Kind.APPEND, 5),  # type: ignore[arg-type]
        Entry(Kind.APPEND, b"", b"", 2**64),
        Entry(Kind.APPEND, b"", b"", -1),
        Entry(Kind.APPEND, timestamp_us=2**63),
        Entry(Kind.APPEND, blobs=(2**64,)),
        Entry(Kind.APPEND, blobs=(1,) * 1025),
    ],
)
def test_a_bad_entry_is_refused_among_good_ones(bad: Entry, others: int) -> None:
    with pytest.raises(BadEntry):
        encode_entries([*[Entry(Kind.APPEND, b"good")] * others, bad])
    with pytest.raises(BadEntry):
        encode_entries([bad] * (others + 1))


@pytest.mark.parametrize("version", [-1, 2**128])
def test_a_version_out_of_range_is_refused(version: int) -> None:
    for count in (1, 3):
        with pytest.raises(BadEntry, match="write version"):
            encode_entries([Entry(Kind.APPEND, write_version=version)] * count)


def test_versions_are_given_to_all_entries_or_to_none() -> None:
    with pytest.raises(BadEntry, match="1 of 2 entries have a write version"):
        encode_entries([Entry(Kind.APPEND), Entry(Kind.APPEND, write_version=0)])


def test_the_fast_paths_refuse_what_does_not_belong_there() -> None:
    for values in (["text"], [b"x", "text"], [b"x", array("I", [1])], [1, 2]):
        with pytest.raises(BadEntry, match="bytes"):
            encode_values(values, timestamp_us=1)  # type: ignore[arg-type]
        with pytest.raises(BadEntry, match="bytes"):
            encode_puts([b"k"] * len(values), values, timestamp_us=1)  # type: ignore[arg-type]
    with pytest.raises(BadEntry, match="2 keys but 1 values"):
        encode_puts([b"a", b"b"], [b"v"], timestamp_us=1)
    for keys in ([b""], [b"a", b""]):
        with pytest.raises(BadEntry, match="needs a key"):
            encode_puts(keys, [b"v"] * len(keys), timestamp_us=1)
    for count in (1, 2):
        with pytest.raises(BadEntry, match="timestamp"):
            encode_values([b"v"] * count, timestamp_us=2**63)
        with pytest.raises(BadEntry, match="storage id"):
            encode_puts([b"k"] * count, [b"v"] * count, timestamp_us=1, storage_id=2**64)


def test_llsns_that_do_not_ascend_are_a_bug() -> None:
    entries = [Entry(Kind.APPEND)] * 3
    for llsns in ([1, 2], [1, 3, 2], [1, 1, 2], [0, 1, 2], [1, 2, 2**31 + 1]):
        with pytest.raises((InvariantViolation, BadEntry)):
            encode_entries(entries, llsns=llsns)
    with pytest.raises(InvariantViolation):
        whole(encode_entries(entries), first_llsn=0)


def test_a_header_tells_whether_a_batch_may_concern_keys() -> None:
    append = Entry(Kind.APPEND, b"v", b"label")
    put = Entry(Kind.PUT, b"v", b"k")
    delete = Entry(Kind.DELETE_STORAGE, storage_id=3)

    def told(*entries: Entry) -> bool:
        header = seal_batch(encode_entries(entries), stream=1, term=1, first_llsn=1)
        return may_concern_keys(header)

    assert not told(append)
    assert not told(append, append)
    assert told(put)
    assert told(delete)
    assert told(append, put)
