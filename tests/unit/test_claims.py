"""Claims that entries are dead (P1 to P5), against the plain rule for the rows that are there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_live import Columns, Row, columns
from tidelog.core.compaction.claims import SortedKeys, hiding
from tidelog.core.compaction.explain import (
    KIND_DELETE,
    KIND_PUT,
    KeyRow,
    StorageDelete,
    explain_rows,
)

# Few hashes, so that keys share the upper word of theirs.
ROWS = st.lists(
    st.tuples(
        st.sampled_from((KIND_PUT, KIND_DELETE)),
        st.integers(0, 6) | st.integers(1 << 64, (1 << 64) + 3),
        st.integers(0, 1),
        st.tuples(st.integers(0, 2), st.integers(0, 1)),
    ),
    max_size=25,
).map(
    lambda drawn: [
        Row(llsn, version, kind, storage, key)
        for llsn, (kind, version, storage, key) in enumerate(drawn, 1)
    ]
)
DELETES = st.lists(
    st.builds(StorageDelete, st.integers(0, 1), st.integers(0, 6), st.integers(30, 40)), max_size=2
)
BOUNDARIES = st.integers(0, 7) | st.integers(1 << 64, (1 << 64) + 4)


def founded(
    rows: Sequence[Row], claims: set[int], boundary: int, deletes: Sequence[StorageDelete]
) -> tuple[set[int], set[int], set[int]]:
    """The LLSNs of claims that are founded, in doubt, and unfounded."""
    claimed = [row for row in rows if row.llsn in claims]
    kept = SortedKeys.of(columns([row for row in rows if row.llsn not in claims]), boundary)
    verdict = kept.judge(columns(claimed), deletes)
    is_open = [row for row, settled in zip(claimed, verdict.open, strict=True) if settled]
    candidates = SortedKeys.of(columns(is_open), boundary)
    at, known = candidates.find(columns(is_open))
    assert known.all()
    hides = hiding(candidates, columns(rows))[at]
    by_rule = llsns(columns(claimed), verdict.founded)
    alone = llsns(columns(is_open), ~hides)
    return (
        by_rule | alone,
        llsns(columns(is_open), hides),
        llsns(columns(claimed), verdict.unfounded),
    )


def llsns(rows: Columns, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> set[int]:
    return set(rows.llsn[mask].tolist())


def dead_by_the_plain_rule(
    rows: Sequence[Row], boundary: int, deletes: Sequence[StorageDelete]
) -> set[int]:
    dead: set[int] = set()
    for key in {(row.storage, row.key) for row in rows}:
        mine = [
            KeyRow(row.llsn, row.version, row.kind, row.storage)
            for row in rows
            if (row.storage, row.key) == key
        ]
        dead |= {each.llsn for each in explain_rows(mine, boundary, deletes, 1) if not each.live}
    return dead


@given(ROWS, BOUNDARIES, DELETES)
def test_all_that_is_dead_may_be_claimed(
    rows: list[Row], boundary: int, deletes: list[StorageDelete]
) -> None:
    dead = dead_by_the_plain_rule(rows, boundary, deletes)
    assert founded(rows, dead, boundary, deletes) == (dead, set(), set())


@given(ROWS, BOUNDARIES, DELETES, st.sets(st.integers(1, 25)))
def test_nothing_that_is_live_is_ever_founded(
    rows: list[Row], boundary: int, deletes: list[StorageDelete], claims: set[int]
) -> None:
    dead = dead_by_the_plain_rule(rows, boundary, deletes)
    good, doubtful, bad = founded(rows, claims, boundary, deletes)
    assert good <= dead
    assert good | doubtful | bad == claims & {row.llsn for row in rows}
