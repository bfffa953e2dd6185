"""Figures that a node shows on its page for Prometheus, and what they grew by.  No state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.testing import LocalNode

_LINE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_BOUND: Final = re.compile(r'(?:^|,)le="([^"]+)"')
_LONGEST: Final = 60.0
"""Seconds; where the last bucket is taken to end."""

Samples = dict[tuple[str, str], float]
"""By name and labels, as they are written."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a histogram, or a pair of counters, took in meanwhile."""

    count: float
    seconds: float
    buckets: Mapping[float, float] = field(default_factory=dict)
    """Cumulative, by their upper bounds; none of a pair of counters."""

    @property
    def mean_us(self) -> float:
        return 1e6 * self.seconds / self.count if self.count else 0.0

    @property
    def p50_us(self) -> float | None:
        """Read off the buckets, between whose bounds it is taken to be even."""
        below, lower = 0.0, 0.0
        for upper, cumulated in sorted(self.buckets.items()):
            if cumulated >= self.count / 2 and cumulated > below:
                share = (self.count / 2 - below) / (cumulated - below)
                return 1e6 * (lower + (min(upper, _LONGEST) - lower) * share)
            below, lower = cumulated, upper
        return None


def samples(text: str) -> Samples:
    """All of a page."""
    return {(name, labels): float(value) for name, labels, value in _LINE.findall(text)}


def scrape(node: LocalNode) -> Samples:
    """The page of a node as it stands."""
    status, text = node.page("/metrics")
    if status != 200:
        raise SystemExit(f"{node} shows no metrics: {text}")
    return samples(text)


def histogram(before: Samples, after: Samples, name: str, labels: str = "") -> Observed:
    """What a histogram took in between two pages; ``labels`` as they are written there."""
    buckets: dict[float, float] = {}
    for (sample, written), value in after.items():
        bound = _BOUND.search(written)
        if sample == f"{name}_bucket" and bound is not None and labels in written:
            buckets[float(bound[1])] = value - before.get((sample, written), 0.0)
    count = _grown(before, after, f"{name}_count", labels)
    return Observed(count, _grown(before, after, f"{name}_sum", labels), buckets)


def pair(before: Samples, after: Samples, count: str, seconds: str) -> Observed:
    """What two counters took in."""
    return Observed(_grown(before, after, count), _grown(before, after, seconds))


def _grown(before: Samples, after: Samples, name: str, labels: str = "") -> float:
    key = (name, labels)
    return after.get(key, 0.0) - before.get(key, 0.0)
