"""Curves of the benchmark: as long as there is time, and told when there was none."""

from __future__ import annotations

import asyncio
from time import perf_counter
from xml.etree import ElementTree

import pytest

from bench.peers.lean import Frame, Link
from bench.plots import Panel, line_chart
from bench.report_scaling import scaling_plots, scaling_section
from bench.scaling_points import Curve, Point, at_once


class Echo(Link):
    """Acknowledges what is sent to it in the next turn of the loop; connected to nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = self.most_under_way = 0

    def acknowledgements_in(self, data: bytes) -> int:
        self.under_way -= len(data)
        return len(data)

    def send(self, frame: Frame) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        asyncio.get_running_loop().call_soon(self.data_received, frame.data)


def test_a_pump_stops_at_its_time_with_all_acknowledged() -> None:
    async def pump() -> tuple[int, Echo]:
        link = Echo()
        return await link.pump_until(Frame(b"a"), perf_counter() + 0.02, 3), link

    sent, link = asyncio.run(pump())
    assert sent > 3
    assert (link.acknowledged, link.under_way, link.most_under_way) == (sent, 0, 3)


def test_a_pump_stops_at_its_count_or_sends_nothing_when_it_is_late() -> None:
    async def pump() -> tuple[int, int]:
        link = Echo()
        soon = await link.pump_until(Frame(b"a"), perf_counter() + 60.0, 3, 7)
        return soon, await link.pump_until(Frame(b"a"), perf_counter() - 1.0, 3)

    assert asyncio.run(pump()) == (7, 0)


def test_one_that_fails_ends_all_that_are_at_work_with_it() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async def wait() -> None:
        await asyncio.Event().wait()

    async def both() -> None:
        await at_once([wait(), fail()])

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(both())


CURVES = {
    Curve.STREAMS: [
        Point(1, {"node_cpu_us": 10.0, "records_per_second": 1000.0, "p50_us": 900.0}),
        Point(1_000, {}, "left out: 12 of 1000 log streams have leaders"),
    ],
    Curve.LENGTH: [Point(123_000, {"node_cpu_us": 1.0}, "cut short after 3 s")],
}


def test_a_point_that_was_cut_short_says_so_in_the_table() -> None:
    page = scaling_section(CURVES)
    assert "| 1,000 |  |  |  |  |  | left out: 12 of 1000 log streams have leaders |" in page
    assert "cut short after 3 s" in page


def test_every_curve_has_a_plot_that_is_well_formed() -> None:
    page = scaling_section(CURVES)
    for name, text in scaling_plots(CURVES).items():
        assert f"plots/{name}" in page
        ElementTree.fromstring(text)


def test_steps_of_a_line_are_even_on_a_scale_of_times() -> None:
    text = line_chart("a & b", [Panel("<y>", [(1, 5.0), (10, 5.0), (100, 0.0)])])
    circles = ElementTree.fromstring(text).findall(".//{http://www.w3.org/2000/svg}circle")
    left, middle, right = (float(circle.attrib["cx"]) for circle in circles)
    assert middle - left == pytest.approx(right - middle)
