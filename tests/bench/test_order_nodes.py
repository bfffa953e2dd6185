"""The model of the order layer with many storage nodes, against the real core."""

from __future__ import annotations

import pytest

from bench.order_nodes import QUICK, Model, Size, _fit, _run, measure_nodes
from bench.report_order import order_section

SIZES = (Size(6, 4), Size(9, 20), Size(10, 5, 5))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_the_leader_takes_in_and_sends_the_messages_that_the_model_says(size: Size) -> None:
    measured = _run(size, 3)
    told = Model((0.0, 0.0), (0.0, 0.0), (0.0, 0.0, 0.0, 0.0)).figures(size)
    assert measured["cuts_per_round"] == 1
    assert measured["messages_in"] == pytest.approx(told["messages_in"], abs=1)
    assert measured["messages_out"] == pytest.approx(told["messages_out"], abs=1)


def test_a_model_that_was_fitted_to_few_nodes_foretells_the_bytes_of_more() -> None:
    small = {size: _run(size, 2) for size in (Size(9, 6), Size(9, 30), Size(30, 6), Size(30, 30))}
    large = Size(90, 60)
    told, measured = Model.of(small).figures(large), _run(large, 2)
    assert told["entry_bytes"] == pytest.approx(measured["entry_bytes"], rel=0.1)
    assert told["bytes_out"] == pytest.approx(measured["bytes_out"], rel=0.15)


def test_a_fit_finds_the_constants_of_what_is_linear() -> None:
    points: dict[tuple[float, ...], float] = {(1.0, x): 3.0 + 2.0 * x for x in (1.0, 10.0, 100.0)}
    assert _fit(points) == pytest.approx([3.0, 2.0])


def test_the_page_marks_what_was_foretold() -> None:
    figures = dict(measure_nodes(QUICK))
    page = order_section(figures)
    assert "| 100 × 30 × 3 * |" in page
    assert "| 10 × 10 × 3 |" in page
