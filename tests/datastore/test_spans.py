"""Timers: quantiles from buckets, in bounded memory."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.datastore.spans import Span, Spans, Timer, bucket_end, bucket_of, quantile_ns

DAY_NS = 24 * 3600 * 10**9


@given(st.integers(0, DAY_NS))
def test_a_bucket_is_at_most_a_sixteenth_too_long(duration: int) -> None:
    end = bucket_end(bucket_of(duration))
    assert duration < end <= duration + duration // 16 + 1


@given(st.integers(0, DAY_NS), st.integers(0, DAY_NS))
def test_longer_durations_have_no_earlier_bucket(one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert bucket_of(short) <= bucket_of(long)


@pytest.mark.parametrize("duration", [-5, 1 << 62, 1 << 63, 1 << 90])
def test_nonsense_of_a_replica_takes_no_memory(duration: int) -> None:
    timer = Timer()
    timer.add(duration)
    assert sum(count for _, count in timer.counts()) == 1


def test_quantiles_are_those_of_the_durations() -> None:
    timer = Timer()
    for microseconds in range(1, 1001):
        timer.add(microseconds * 1000)
    figures = timer.figures(Span.FSYNC)
    assert figures.count == 1000
    assert figures.total_us == 500_500
    assert 500 <= figures.p50_us <= 540
    assert 990 <= figures.p99_us <= 1060
    assert figures.longest_us == 1000
    assert figures.mean_us == 500.5


def test_a_span_that_never_ran_has_zeros() -> None:
    for figures in Spans().table():
        assert (figures.count, figures.p50_us, figures.p99_us, figures.mean_us) == (0, 0, 0, 0)
    assert quantile_ns([], 0.5) == 0


def test_no_duration_is_lost_between_threads() -> None:
    timer = Timer()

    def add() -> None:
        for _ in range(5_000):
            timer.add(1_000)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert timer.figures(Span.SEND).count == 20_000
    assert timer.total_ns == 20_000_000
