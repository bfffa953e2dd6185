"""Liveness of keyed entries (L1 to L9): directed cases, and fast code against plain rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from tidelog.core.compaction.explain import (
    KIND_DELETE,
    KIND_PUT,
    Explanation,
    KeyRow,
    Reason,
    StorageDelete,
    explain_rows,
)
from tidelog.core.compaction.live import (
    LiveRows,
    check_dead_stays_dead,
    live_rows,
    live_storage_deletes,
    silent_storage_deletes,
)
from tidelog.invariants import InvariantViolation

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Columns:
    hash_hi: U64
    hash_lo: U64
    storage: U64
    version_hi: U64
    version_lo: U64
    llsn: U64
    kind: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """A write of the key (hash_hi, hash_lo) in a storage."""

    llsn: int
    version: int
    kind: int = KIND_PUT
    storage: int = 0
    key: tuple[int, int] = (1, 1)


def columns(rows: Sequence[Row]) -> Columns:
    def u64(values: list[int]) -> U64:
        return np.array(values, dtype=np.uint64)

    return Columns(
        u64([row.key[0] for row in rows]),
        u64([row.key[1] for row in rows]),
        u64([row.storage for row in rows]),
        u64([row.version >> 64 for row in rows]),
        u64([row.version & (2**64 - 1) for row in rows]),
        u64([row.llsn for row in rows]),
        np.array([row.kind for row in rows], dtype=np.uint8),
    )


def live(
    rows: Sequence[Row],
    boundary: int,
    deletes: Sequence[StorageDelete] = (),
    trim: int = 1,
) -> list[int]:
    mask = live_rows(columns(rows), boundary, deletes, trim).mask
    return sorted(row.llsn for row, is_live in zip(rows, mask, strict=True) if is_live)


def silent(
    rows: Sequence[Row],
    boundary: int,
    deletes: Sequence[StorageDelete] = (),
    trim: int = 1,
) -> list[int]:
    mask = live_rows(columns(rows), boundary, deletes, trim).silent
    return sorted(row.llsn for row, is_silent in zip(rows, mask, strict=True) if is_silent)


def explain(
    rows: Sequence[Row],
    boundary: int,
    deletes: Sequence[StorageDelete] = (),
    trim: int = 1,
) -> list[Explanation]:
    """Explain rows of any keys, each key by itself, in the order given."""
    by_key: dict[tuple[tuple[int, int], int], list[KeyRow]] = {}
    for row in rows:
        key_row = KeyRow(row.llsn, row.version, row.kind, row.storage)
        by_key.setdefault((row.key, row.storage), []).append(key_row)
    found = {
        explanation.llsn: explanation
        for key_rows in by_key.values()
        for explanation in explain_rows(key_rows, boundary, deletes, trim)
    }
    return [found[row.llsn] for row in rows]


def reasons(
    rows: Sequence[Row], boundary: int, deletes: Sequence[StorageDelete] = (), trim: int = 1
) -> list[Reason]:
    explanations = explain(rows, boundary, deletes, trim)
    assert sorted(e.llsn for e in explanations if e.live) == live(rows, boundary, deletes, trim)
    return [explanation.reason for explanation in explanations]


def test_the_newest_write_at_or_below_the_boundary_and_all_above_it_are_live() -> None:
    rows = [Row(llsn, version) for llsn, version in ((1, 10), (2, 20), (3, 30), (4, 40))]
    assert live(rows, 9) == [1, 2, 3, 4]
    assert live(rows, 20) == [2, 3, 4]
    assert live(rows, 29) == [2, 3, 4]
    assert live(rows, 99) == [4]
    assert reasons(rows, 30) == [
        Reason.SUPERSEDED,
        Reason.SUPERSEDED,
        Reason.NEWEST,
        Reason.ABOVE_BOUNDARY,
    ]


def test_the_version_decides_and_not_the_place_in_the_log() -> None:
    assert live([Row(1, 30), Row(2, 10), Row(3, 20)], 99) == [1]


def test_of_equal_versions_the_later_one_wins() -> None:
    """A rewritten copy carries the version of its original, which dies by it."""
    rows = [Row(3, 10), Row(70, 10), Row(5, 4)]
    assert live(rows, 99) == [70]
    assert live(rows, 9) == [3, 5, 70]


def test_a_delete_is_live_while_something_older_is_present() -> None:
    rows = [Row(1, 10), Row(2, 20, KIND_DELETE)]
    assert reasons(rows, 99) == [Reason.SUPERSEDED, Reason.SHADOWS]
    assert reasons(rows[1:], 99) == [Reason.SHADOWS_NOTHING]
    assert reasons(rows[1:], 19) == [Reason.ABOVE_BOUNDARY]


def test_a_delete_before_a_newer_write_is_dead() -> None:
    assert live([Row(1, 10), Row(2, 20, KIND_DELETE), Row(3, 30)], 99) == [3]


def test_keys_do_not_touch_one_another() -> None:
    rows = [
        Row(1, 10, key=(1, 1)),
        Row(2, 20, key=(1, 2)),
        Row(3, 30, KIND_DELETE, key=(2, 1)),
        Row(4, 40, storage=7, key=(1, 1)),
    ]
    assert live(rows, 99) == [1, 2, 4]


def test_versions_are_compared_over_all_128_bits() -> None:
    high = 1 << 64
    rows = [Row(1, high + 1), Row(2, high - 1), Row(3, high)]
    assert live(rows, high) == [1, 3]
    assert live(rows, high - 1) == [1, 2, 3]
    assert live(rows, 2**128 - 1) == [1]


def test_a_storage_delete_kills_what_is_smaller_in_its_storage_only() -> None:
    delete = StorageDelete(storage=5, version=20, llsn=4)
    rows = [
        Row(1, 10, storage=5, key=(1, 1)),
        Row(2, 20, storage=5, key=(2, 1)),
        Row(5, 20, storage=5, key=(3, 1)),
        Row(6, 21, storage=5, key=(4, 1)),
        Row(3, 10, storage=6, key=(5, 1)),
    ]
    assert live(rows, 99, [delete]) == [3, 5, 6]
    assert reasons(rows, 20, [delete])[0] is Reason.STORAGE_DELETED


def test_a_storage_delete_above_the_boundary_is_not_in_force_yet() -> None:
    delete = StorageDelete(storage=0, version=20, llsn=4)
    assert live([Row(1, 10)], 19, [delete]) == [1]
    assert live([Row(1, 10)], 20, [delete]) == []


def test_the_greatest_storage_delete_in_force_decides() -> None:
    deletes = [StorageDelete(0, version, 100 + version) for version in (30, 10, 20, 50)]
    rows = [Row(version, version, key=(version, 1)) for version in (5, 15, 25, 35)]
    assert live(rows, 29, deletes) == [25, 35]
    assert live(rows, 49, deletes) == [35]


def test_a_storage_delete_is_needed_while_a_smaller_row_is_present() -> None:
    deletes = [
        StorageDelete(storage=5, version=20, llsn=4),
        StorageDelete(storage=5, version=9, llsn=3),
        StorageDelete(storage=6, version=99, llsn=5),
        StorageDelete(storage=5, version=90, llsn=6),
    ]
    result = live_rows(columns([Row(1, 10, storage=5), Row(2, 99, storage=6)]), 50, deletes, 1)
    assert result.shadowed.tolist() == [True, False, True, True]
    none = np.zeros(4, dtype=np.bool_)
    assert live_storage_deletes(deletes, 50, result.shadowed, 1).tolist() == [
        True,
        False,
        True,
        True,
    ]
    assert live_storage_deletes(deletes, 50, none, 1).tolist() == [False, False, True, True]
    assert live_storage_deletes(deletes, 50, none, 6).tolist() == [False, False, False, True]


def test_a_delete_with_nothing_older_and_nothing_newer_dies_silently() -> None:
    gone = Row(2, 20, KIND_DELETE)
    assert silent([gone], 99) == [2]
    assert silent([Row(1, 10), gone], 99) == []
    assert silent([gone], 19) == []


def test_a_delete_that_something_newer_tells_of_is_not_silent() -> None:
    gone = Row(2, 20, KIND_DELETE)
    assert silent([gone, Row(3, 30)], 99) == []
    assert silent([gone, Row(3, 30, KIND_DELETE)], 99) == []
    assert silent([gone, Row(3, 30)], 25) == []
    assert silent([gone], 99, [StorageDelete(storage=0, version=30, llsn=3)]) == []
    # Older, or of another storage, it tells nothing.
    assert silent([gone], 99, [StorageDelete(storage=0, version=10, llsn=3)]) == [2]
    assert silent([gone], 99, [StorageDelete(storage=1, version=30, llsn=3)]) == [2]


def test_a_trimmed_delete_is_not_silent() -> None:
    """Whoever has not read it cannot read on without being told."""
    assert silent([Row(2, 20, KIND_DELETE)], 99, trim=3) == []


def test_a_dead_storage_delete_is_silent_unless_a_greater_one_of_its_storage_is_live() -> None:
    deletes = [
        StorageDelete(storage=5, version=20, llsn=4),
        StorageDelete(storage=5, version=9, llsn=8),
        StorageDelete(storage=6, version=7, llsn=5),
        StorageDelete(storage=6, version=7, llsn=6),
    ]
    none = np.zeros(4, dtype=np.bool_)
    assert silent_storage_deletes(deletes, none).tolist() == [True] * 4
    assert silent_storage_deletes(deletes, ~none).tolist() == [False] * 4
    some = np.array([True, False, False, False])
    assert silent_storage_deletes(deletes, some).tolist() == [False, False, True, True]
    some = np.array([False, True, True, False])
    assert silent_storage_deletes(deletes, some).tolist() == [True, False, False, True]
    assert silent_storage_deletes([], none[:0]).tolist() == []


def test_a_trimmed_row_is_dead() -> None:
    rows = [Row(1, 10, key=(1, 1)), Row(2, 20, key=(2, 1))]
    assert live(rows, 99, trim=2) == [2]
    assert reasons(rows, 5, trim=2)[0] is Reason.TRIMMED


def test_a_trimmed_row_still_keeps_smaller_ones_dead() -> None:
    rows = [Row(1, 30), Row(2, 20), Row(3, 10)]
    assert live(rows, 99) == [1]
    assert live(rows, 99, trim=2) == []


def test_what_was_dead_is_noticed_when_a_trim_took_the_row_that_killed_it() -> None:
    assert live([Row(2, 20)], 99, trim=2) == [2]
    with pytest.raises(InvariantViolation, match="L8: LLSN 2 "):
        check_dead_stays_dead(BitMap64([1]), 5, BitMap64([2, 9]))


def test_an_entry_that_comes_back_to_life_is_named() -> None:
    previous = BitMap64([1, 5, 9])
    check_dead_stays_dead(previous, 10, BitMap64([5, 9, 11, 12]))
    check_dead_stays_dead(previous, 10, BitMap64())
    check_dead_stays_dead(BitMap64(), 0, BitMap64([1]))
    with pytest.raises(InvariantViolation, match="LLSN 10 was dead at snapshot index 10"):
        check_dead_stays_dead(previous, 10, BitMap64([5, 10]))


def test_explanations_read_as_sentences() -> None:
    rows = [Row(1, 10), Row(2, 20, KIND_DELETE)]
    assert [explanation.text for explanation in explain(rows, 99)] == [
        "PUT at LLSN 1 (version 10) is dead: LLSN 2 (version 20) replaced it",
        "DELETE at LLSN 2 (version 20) is live: it hides 1 older write(s), LLSN 1 among them",
    ]


def test_no_rows_have_no_answer() -> None:
    result = live_rows(columns([]), 5, [StorageDelete(1, 1, 1)], 1)
    assert result.mask.tolist() == []
    assert result.shadowed.tolist() == [False]


def test_rows_of_another_kind_and_ragged_columns_are_a_bug() -> None:
    with pytest.raises(InvariantViolation, match="L7"):
        live_rows(columns([Row(1, 1, kind=1)]), 5, [], 1)
    with pytest.raises(InvariantViolation, match="L1"):
        explain_rows([KeyRow(1, 1, 5)], 5, [], 1)
    good = columns([Row(1, 1)])
    none = np.zeros(0, dtype=np.uint64)
    with pytest.raises(InvariantViolation, match="L7"):
        live_rows(Columns(none, none, none, none, none, good.llsn, good.kind), 5, [], 1)
    with pytest.raises(InvariantViolation, match="boundary"):
        live_rows(good, 2**128, [], 1)


def test_many_storage_deletes_cost_no_pass_each() -> None:
    """Ten thousand deletes over as many storages: minutes if each looked at all rows."""
    count = 200_000
    llsn = np.arange(1, count + 1, dtype=np.uint64)
    zeros = np.zeros(count, dtype=np.uint64)
    storage = llsn % np.uint64(20_000)
    kind = np.full(count, KIND_PUT, dtype=np.uint8)
    rows = Columns(llsn, zeros, storage, zeros, llsn, llsn, kind)
    deletes = [StorageDelete(number, count // 2, count // 2) for number in range(10_000)]
    result = live_rows(rows, count, deletes, 1)
    killed = (storage < 10_000) & (llsn < count // 2)
    assert np.array_equal(result.mask, ~killed)
    assert result.shadowed.all()


versions = st.one_of(st.integers(1, 6), st.sampled_from([2**64 - 1, 2**64, 2**64 + 1]))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Row], int, list[StorageDelete], int]:
    """Few keys and versions, so that ties are the rule; rows come in any order."""
    count = draw(st.integers(1, 14))
    llsns = draw(st.permutations(range(1, count + 5)))
    row = st.builds(
        Row,
        st.just(0),
        versions,
        st.sampled_from([KIND_PUT, KIND_PUT, KIND_DELETE]),
        st.integers(0, 2),
        st.sampled_from([(1, 1), (1, 2), (2, 1)]),
    )
    rows = [
        Row(llsns[i], r.version, r.kind, r.storage, r.key)
        for i, r in enumerate(draw(st.lists(row, min_size=count, max_size=count)))
    ]
    deletes = [
        StorageDelete(draw(st.integers(0, 3)), draw(versions), llsn)
        for llsn in llsns[count : count + draw(st.integers(0, 4))]
    ]
    return rows, draw(st.one_of(st.just(0), versions)), deletes, draw(st.integers(0, 6))


@settings(max_examples=300, deadline=None)
@given(histories())
def test_the_fast_code_agrees_with_the_plain_rule(
    history: tuple[list[Row], int, list[StorageDelete], int],
) -> None:
    rows, boundary, deletes, trim = history
    result: LiveRows = live_rows(columns(rows), boundary, deletes, trim)
    assert result.mask.tolist() == [
        explanation.live for explanation in explain(rows, boundary, deletes, trim)
    ]
    assert result.silent.tolist() == [
        explanation.reason is Reason.SHADOWS_NOTHING
        and not any(
            (other.key, other.storage) == (row.key, row.storage)
            and (other.version, other.llsn) > (row.version, row.llsn)
            for other in rows
        )
        for row, explanation in zip(rows, explain(rows, boundary, deletes, trim), strict=True)
    ]
    assert result.shadowed.tolist() == [
        any(
            row.storage == delete.storage
            and (row.version, row.llsn) < (delete.version, delete.llsn)
            for row in rows
        )
        for delete in deletes
    ]


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(0, 14))
def test_rows_may_be_folded_to_the_live_ones_and_the_witnesses(
    history: tuple[list[Row], int, list[StorageDelete], int], split: int
) -> None:
    """A key with more rows than fit into memory is looked at in portions."""
    rows, boundary, deletes, trim = history
    first = live_rows(columns(rows[:split]), boundary, deletes, trim)
    kept = (first.mask | first.witnesses).tolist()
    folded = [row for row, keep in zip(rows[:split], kept, strict=True) if keep] + rows[split:]
    assert live(folded, boundary, deletes, trim) == live(rows, boundary, deletes, trim)
    assert silent(folded, boundary, deletes, trim) == silent(rows, boundary, deletes, trim)
    rest = live_rows(columns(folded), boundary, deletes, trim)
    whole = live_rows(columns(rows), boundary, deletes, trim)
    assert rest.shadowed.tolist() == whole.shadowed.tolist()


def readable(rows: Sequence[Row], deletes: Sequence[StorageDelete], at: int) -> dict[object, int]:
    """What a reader at version ``at`` sees: the LLSN of the value of every key."""
    found: dict[object, Row] = {}
    for row in sorted(rows, key=lambda row: (row.version, row.llsn)):
        if row.version <= at:
            found[row.key, row.storage] = row
    return {
        key: row.llsn
        for key, row in found.items()
        if row.kind == KIND_PUT
        and not any(
            delete.storage == row.storage
            and delete.version <= at
            and (row.version, row.llsn) < (delete.version, delete.llsn)
            for delete in deletes
        )
    }


@settings(max_examples=150, deadline=None)
@given(histories(), st.data())
def test_dropping_dead_rows_in_any_portions_changes_no_read_and_revives_nothing(
    history: tuple[list[Row], int, list[StorageDelete], int], data: st.DataObject
) -> None:
    """Compaction drops some of the dead, the boundary grows, and so on until all are gone."""
    rows, boundary, deletes, _ = history
    all_rows, all_deletes = rows, deletes
    dead: set[int] = set()
    for _ in range(4):
        result = live_rows(columns(rows), boundary, deletes, 1)
        kept_deletes = live_storage_deletes(deletes, boundary, result.shadowed, 1)
        now_live = {row.llsn for row, alive in zip(rows, result.mask, strict=True) if alive}
        now_live |= {d.llsn for d, alive in zip(deletes, kept_deletes, strict=True) if alive}
        assert not now_live & dead
        present = [row.llsn for row in rows] + [delete.llsn for delete in deletes]
        dead |= {llsn for llsn in present if llsn not in now_live}
        gone = {llsn for llsn in sorted(dead) if data.draw(st.booleans())}
        rows = [row for row in rows if row.llsn not in gone]
        deletes = [delete for delete in deletes if delete.llsn not in gone]
        for at in (boundary, boundary + 1, 2**65):
            assert readable(rows, deletes, at) == readable(all_rows, all_deletes, at)
        boundary = max(boundary, data.draw(versions))
