"""GLSN runs against a plain dictionary from LLSN to GLSN."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptData
from tidelog.formats.glsn_runs import GlsnRuns, Run
from tidelog.invariants import InvariantViolation

STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 4)), max_size=12)
POSITION = st.integers(0, 120)


def build(steps: list[tuple[int, int, int]], base: int = 1) -> tuple[GlsnRuns, dict[int, int]]:
    """Runs with these gaps before them, and the same as a dictionary."""
    runs, model = GlsnRuns(), {}
    llsn = glsn = base
    for llsn_gap, glsn_gap, length in steps:
        llsn, glsn = llsn + llsn_gap, glsn + glsn_gap
        runs.append(llsn, glsn, length)
        model.update({llsn + i: glsn + i for i in range(length)})
        llsn, glsn = llsn + length, glsn + length
    return runs, model


def flat(runs: list[Run] | GlsnRuns) -> dict[int, int]:
    return {llsn + i: glsn + i for llsn, glsn, length in runs for i in range(length)}


@given(STEPS)
def test_runs_hold_what_was_appended_and_merge_neighbours(
    steps: list[tuple[int, int, int]],
) -> None:
    runs, model = build(steps)
    assert flat(runs) == model
    listed = list(runs)
    for (llsn, glsn, length), after in itertools.pairwise(listed):
        assert (llsn + length, glsn + length) != after[:2]
    assert runs.llsn_begin == min(model, default=0)
    assert runs.llsn_end == max(model, default=-1) + 1
    assert runs.glsn_begin == min(model.values(), default=0)
    assert GlsnRuns(listed) == runs
    assert len(runs) == len(listed)
    columns = [memoryview(column).cast("Q") for column in runs.columns()]
    assert GlsnRuns.from_columns(*columns) == runs
    assert repr(runs) == f"GlsnRuns({listed})"


@given(STEPS, POSITION, POSITION)
def test_lookups_agree_with_the_dictionary(
    steps: list[tuple[int, int, int]], begin: int, end: int
) -> None:
    runs, model = build(steps)
    back = {glsn: llsn for llsn, glsn in model.items()}
    assert runs.glsn_of(begin) == model.get(begin, 0)
    later = [llsn for glsn, llsn in back.items() if glsn >= begin]
    assert runs.llsn_at_or_after(begin) == min(later, default=0)
    inside = {llsn: glsn for llsn, glsn in model.items() if begin <= llsn < end}
    assert flat(runs.slices(begin, end)) == inside
    assert flat(runs.restrict(begin, end)) == inside
    by_glsn = {llsn: glsn for llsn, glsn in model.items() if begin <= glsn < end}
    assert flat(runs.slices_by_glsn(begin, end)) == by_glsn


@pytest.mark.parametrize("base", [1, 2**63])
@given(steps=STEPS)
def test_bulk_lookup_agrees_with_the_dictionary(
    base: int, steps: list[tuple[int, int, int]]
) -> None:
    runs, model = build(steps, base)
    llsns = [*range(base - 1, base + 60), 0, 2**64 - 1]
    found = runs.glsns(np.array(llsns, dtype=np.uint64))
    assert found.dtype == np.uint64
    assert found.tolist() == [model.get(llsn, 0) for llsn in llsns]


@given(STEPS, POSITION, POSITION)
def test_a_range_is_covered_if_each_of_it_has_its_place(
    steps: list[tuple[int, int, int]], begin: int, end: int
) -> None:
    runs, glsns = build(steps)
    if begin < end:
        assert runs.covers(begin, end) == all(llsn in glsns for llsn in range(begin, end))


def test_runs_can_grow_while_a_bulk_answer_is_held() -> None:
    runs = GlsnRuns([(1, 10, 5)])
    found = runs.glsns(np.arange(1, 6, dtype=np.uint64))
    columns = runs.columns()
    runs.append(9, 30, 2)
    assert found.tolist() == [10, 11, 12, 13, 14]
    assert len(columns[0]) == 8


@pytest.mark.parametrize("run", [(5, 30, 1), (7, 12, 1), (0, 30, 1), (2**64 - 1, 30, 1)])
def test_a_run_out_of_order_breaks_an_invariant(run: Run) -> None:
    runs = GlsnRuns([(3, 10, 3)])
    with pytest.raises(InvariantViolation):
        runs.append(*run)


@pytest.mark.parametrize(
    "columns",
    [
        ([1], [1], []),
        ([1, 3], [1, 9], [3, 1]),
        ([1, 9], [1, 3], [3, 1]),
        ([0], [1], [1]),
        ([1], [0], [1]),
        ([1], [1], [0]),
        ([2**64 - 1], [1], [1]),
        ([5, 1], [1, 5], [1, 1]),
    ],
)
def test_columns_that_do_not_ascend_are_corrupt(columns: tuple[list[int], ...]) -> None:
    with pytest.raises(CorruptData):
        GlsnRuns.from_columns(*columns)


def test_runs_are_not_equal_to_other_things_nor_hashable() -> None:
    assert GlsnRuns() != []
    with pytest.raises(TypeError):
        hash(GlsnRuns())


def test_the_light_modules_do_not_import_numpy() -> None:
    program = (
        "import sys, tidelog.formats.wal, tidelog.formats.glsn_runs, tidelog.formats.segment;"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
