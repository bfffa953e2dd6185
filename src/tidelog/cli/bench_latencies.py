"""Latencies of a run: percentiles, and a histogram whose steps double.  No state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Final

PERCENTILES: Final = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9))
_FIRST_MS: Final = 0.125
_BAR: Final = 40


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest latency that ``share`` percent do not exceed; of sorted ones, at least one."""
    return ordered[max(ceil(len(ordered) * share / 100) - 1, 0)]


def latency_fields(latencies: Sequence[float]) -> dict[str, Any]:
    """Percentiles and histogram in milliseconds, as JSON."""
    if not latencies:
        return {"count": 0, "histogram": []}
    ordered = sorted(latencies)
    return {
        "count": len(ordered),
        "mean_ms": round(1000 * sum(ordered) / len(ordered), 3),
        **{
            f"{name.replace('.', '')}_ms": round(1000 * percentile(ordered, share), 3)
            for name, share in PERCENTILES
        },
        "max_ms": round(1000 * ordered[-1], 3),
        "histogram": histogram(ordered),
    }


def histogram(latencies: Sequence[float]) -> list[dict[str, float]]:
    """How many there are up to each bound, from the first bound to the last that has any."""
    counts: dict[int, int] = {}
    for latency in latencies:
        step = _step(1000 * latency)
        counts[step] = counts.get(step, 0) + 1
    return [
        {"up_to_ms": _FIRST_MS * 2**step, "count": counts.get(step, 0)}
        for step in range(min(counts, default=0), max(counts, default=-1) + 1)
    ]


def histogram_lines(rows: Sequence[dict[str, float]]) -> Iterator[str]:
    """Bars for people."""
    most = max((row["count"] for row in rows), default=0)
    for row in rows:
        bar = "#" * ceil(_BAR * row["count"] / most) if most else ""
        yield f"  ≤ {row['up_to_ms']:>10,.3f} ms {int(row['count']):>10,}  {bar}".rstrip()


def _step(milliseconds: float) -> int:
    step = 0
    while milliseconds > _FIRST_MS * 2**step:
        step += 1
    return step
