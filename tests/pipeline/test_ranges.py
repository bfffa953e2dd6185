"""The micro-batches of a log that is read without a streaming query."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest

import tidelog
from tidelog.embedded.log import Log
from tidelog.errors import Trimmed
from tidelog.pipeline.materialization.ranges import BatchLimits, log_ranges

NO_LIMITS = BatchLimits(records_max=0, bytes_max=0)
FEW = BatchLimits(records_max=10, bytes_max=0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with tidelog.open(tmp_path / "log") as opened:
        yield opened


def fill(log: Log, batches: int) -> None:
    for number in range(batches):
        log.append_batch([b"%d" % number] * 3)


def test_ranges_follow_one_another_and_end_where_the_log_ended(log: Log) -> None:
    fill(log, 20)
    ranges = log_ranges(log, 1, FEW, once=True)
    first = next(ranges)
    fill(log, 5)
    found = [first, *ranges]
    assert (found[0].glsn_begin, found[-1].glsn_end) == (1, 61)
    assert all(one.glsn_end == two.glsn_begin for one, two in pairwise(found))
    assert all(1 <= end - begin <= 10 for begin, end in found)


def test_a_range_ends_where_a_cut_ends(log: Log) -> None:
    fill(log, 20)
    assert all((end - 1) % 3 == 0 for _, end in log_ranges(log, 1, FEW, once=True))


def test_a_log_that_was_read_to_its_end_has_no_range(log: Log) -> None:
    fill(log, 2)
    assert list(log_ranges(log, 7, NO_LIMITS, once=True)) == []
    assert list(log_ranges(log, 4, NO_LIMITS, once=True)) == [(4, 7)]


def test_who_follows_a_log_gets_what_comes_later(log: Log) -> None:
    fill(log, 1)
    ranges = log_ranges(log, 1, NO_LIMITS, once=False)
    assert next(ranges) == (1, 4)
    fill(log, 1)
    assert list(islice(ranges, 1)) == [(4, 7)]


def test_what_was_trimmed_is_an_error(log: Log) -> None:
    fill(log, 5)
    log.trim(4)
    with pytest.raises(Trimmed):
        list(log_ranges(log, 1, NO_LIMITS, once=True))
