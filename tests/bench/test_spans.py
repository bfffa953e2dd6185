"""Spans out of what nodes show on their pages."""

from __future__ import annotations

import pytest

from bench.report_spans import spans_section
from bench.scrape import histogram, pair, samples
from bench.spans import _spans

BEFORE = """\
# HELP tidelog_node_append_seconds How long appends took.
# TYPE tidelog_node_append_seconds histogram
tidelog_node_append_seconds_bucket{le="0.001",stage="stored"} 1.0
tidelog_node_append_seconds_bucket{le="0.002",stage="stored"} 1.0
tidelog_node_append_seconds_bucket{le="+Inf",stage="stored"} 1.0
tidelog_node_append_seconds_count{stage="stored"} 1.0
tidelog_node_append_seconds_sum{stage="stored"} 0.001
tidelog_raft_rounds_total 2.0
tidelog_raft_round_seconds_total 0.5
"""
AFTER = """\
tidelog_node_append_seconds_bucket{le="0.001",stage="stored"} 1.0
tidelog_node_append_seconds_bucket{le="0.002",stage="stored"} 5.0
tidelog_node_append_seconds_bucket{le="+Inf",stage="stored"} 5.0
tidelog_node_append_seconds_count{stage="stored"} 5.0
tidelog_node_append_seconds_sum{stage="stored"} 0.007
tidelog_node_append_seconds_count{stage="propagated"} 4.0
tidelog_node_append_seconds_sum{stage="propagated"} 0.008
tidelog_node_append_seconds_count{stage="ordered"} 4.0
tidelog_node_append_seconds_sum{stage="ordered"} 0.020
tidelog_node_order_seconds_count 4.0
tidelog_node_order_seconds_sum 0.012
tidelog_append_seconds_count 4.0
tidelog_append_seconds_sum 0.022
tidelog_raft_rounds_total 6.0
tidelog_raft_round_seconds_total 0.508
"""


def test_a_histogram_counts_only_what_came_between_two_pages() -> None:
    found = histogram(
        samples(BEFORE), samples(AFTER), "tidelog_node_append_seconds", 'stage="stored"'
    )
    assert found.count == 4.0
    assert found.mean_us == pytest.approx(1_500.0)
    assert found.p50_us == pytest.approx(1_500.0), "in the middle of the only bucket that grew"


def test_counters_that_a_page_does_not_have_yet_began_at_zero() -> None:
    found = pair(
        {}, samples(AFTER), "tidelog_raft_rounds_total", "tidelog_raft_round_seconds_total"
    )
    assert found.count == 6.0


def test_the_spans_of_the_path_add_up_to_what_the_client_saw() -> None:
    taken = [0.006] * 4
    spans = dict(_spans(taken, [samples(BEFORE)], [samples(AFTER)], 0))
    path = [
        figures["mean_us"]
        for span, figures in spans.items()
        if not span.startswith(("whole", "- ", "beside: "))
    ]
    assert sum(path) == pytest.approx(spans["whole"]["mean_us"])
    assert spans["- Raft: proposal → applied"]["mean_us"] == pytest.approx(2_000.0)
    assert spans["cut arrives → ORDERED told"]["mean_us"] == pytest.approx(500.0)


def test_parts_of_a_span_are_indented_below_it() -> None:
    figures = {
        "one: whole": {"mean_us": 10.0},
        "one: sync": {"mean_us": 5.0},
        "one: - - disk": {"mean_us": 1.0, "p50_us": 2.0},
    }
    page = spans_section(figures)
    assert "| sync | 5 |  | 50% |" in page
    assert "| &emsp;&emsp;disk | 1 | 2 | 10% |" in page
