"""What a WAL file holds of a stream in memory: order, keys, truncation."""

from __future__ import annotations

import pytest

from tests.storage.streams import delete, delete_storage, put, value, values
from tidelog.formats.batch import encode_entries, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.invariants import InvariantViolation
from tidelog.storage.memtable import KeyedWrite, Memtable, StoredBatch, greater


def stored(entries: list[Entry], first: int, llsns: list[int] | None = None) -> StoredBatch:
    body = encode_entries(entries, llsns=llsns)
    header = seal_batch(body, stream=1, term=1, first_llsn=first)
    end = (llsns[-1] if llsns else first + len(entries) - 1) + 1
    return StoredBatch(first, end, header + body.data)


def table_of(*batches: StoredBatch, ordered: int | None = None) -> Memtable:
    table = Memtable(1)
    for batch in batches:
        table.add(batch)
    end = table.end_llsn if ordered is None else ordered
    if end > table.first_llsn:
        table.runs.append(table.first_llsn, 100 + table.first_llsn, end - table.first_llsn)
    return table


def llsns(table: Memtable) -> list[int]:
    return [llsn for batch in table.batches for llsn in batch.view().llsns()]


def test_batches_must_ascend() -> None:
    table = table_of(stored(values(3), 5))
    assert (table.first_llsn, table.end_llsn) == (5, 8)
    with pytest.raises(InvariantViolation, match="M1"):
        table.add(stored(values(1), 7))
    table.add(stored(values(1), 8))
    assert table.size == sum(batch.size for batch in table.batches)


def test_the_batches_of_a_range_are_those_that_overlap_it() -> None:
    table = table_of(stored(values(3), 1), stored(values(3), 4), stored(values(2), 10))
    found = {
        (begin, end): [batch.first_llsn for batch in table.batches_between(begin, end)]
        for begin, end in ((1, 99), (3, 4), (4, 5), (3, 5), (7, 10), (7, 11), (12, 99), (0, 1))
    }
    assert found == {
        (1, 99): [1, 4, 10],
        (3, 4): [1],
        (4, 5): [4],
        (3, 5): [1, 4],
        (7, 10): [],
        (7, 11): [10],
        (12, 99): [],
        (0, 1): [],
    }


def test_a_truncation_makes_a_new_table_and_leaves_the_old_one_to_its_readers() -> None:
    table = table_of(stored(values(3), 1), stored(values(3), 4), ordered=3)
    for end in range(1, 8):
        shorter = table.truncated(end)
        assert llsns(shorter) == list(range(1, end))
        assert shorter.runs.llsn_end == (min(end, 3) if end > 1 else 0)
        assert shorter.wal_file == 1
    assert llsns(table) == [1, 2, 3, 4, 5, 6]


def test_a_truncation_inside_a_sparse_batch_keeps_what_lies_below() -> None:
    table = table_of(stored(values(3), 2, [2, 5, 9]))
    assert llsns(table.truncated(9)) == [2, 5]
    assert llsns(table.truncated(4)) == [2]
    assert table.truncated(2).batches == []


def test_of_several_writes_of_a_key_the_greatest_version_is_found() -> None:
    table = table_of(
        stored([put("k", "a"), put("l", "b")], 1),
        stored([put("k", "c"), delete("l")], 3),
    )
    assert table.find_key(0, b"k") == KeyedWrite(103, 3, Kind.PUT)
    assert table.find_key(0, b"l") == KeyedWrite(104, 4, Kind.DELETE)
    assert table.find_key(1, b"k") is None
    assert table.find_key(0, b"m") is None


def test_explicit_versions_decide_and_not_the_place() -> None:
    table = table_of(
        stored([put("k", "new", version=9), put("k", "old", version=4)], 1),
        stored([put("k", "same", version=9)], 3),
    )
    assert table.find_key(0, b"k") == KeyedWrite(9, 3, Kind.PUT)


def test_a_key_is_found_only_once_its_entry_is_ordered() -> None:
    table = table_of(stored([put("k", "a")], 1), stored([put("k", "b")], 2), ordered=2)
    assert table.find_key(0, b"k") == KeyedWrite(101, 1, Kind.PUT)
    table.runs.append(2, 200, 1)
    assert table.find_key(0, b"k") == KeyedWrite(200, 2, Kind.PUT)


def test_storage_deletes_are_found_by_their_storage() -> None:
    table = table_of(stored([delete_storage(7), put("k", storage=7)], 1))
    table.add(stored([delete_storage(7)], 3))
    table.runs.append(3, 300, 1)
    assert table.storage_delete(7) == KeyedWrite(300, 3, Kind.DELETE_STORAGE)
    assert table.storage_delete(8) is None


def test_plain_values_have_no_keys() -> None:
    table = table_of(stored([value("a"), Entry(Kind.APPEND, b"b", b"k")], 1))
    assert table.find_key(0, b"k") is None


def test_the_greater_of_two_writes() -> None:
    low, high = KeyedWrite(1, 9, Kind.PUT), KeyedWrite(2, 1, Kind.DELETE)
    tie = KeyedWrite(2, 3, Kind.PUT)
    assert greater(None, None) is None
    assert greater(low, None) is greater(None, low) is low
    assert greater(low, high) is greater(high, low) is high
    assert greater(high, tie) is greater(tie, high) is tie
