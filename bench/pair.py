"""A datastore and its replica, each in its process: log sessions that are durable on both sides.

All modes and the plain way (``sendall`` and ``fdatasync`` of the same bytes) take turns; of each
the median of the repeats counts, and the spans are those of its last turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tidelog.cli.bench_pair import Work, measure

WORKS: Final = (Work(100, 1, 1), Work(100, 1, 4), Work(100, 1000, 1), Work(100, 1000, 4))
FIGURES: Final = (
    "sessions_per_second",
    "megabytes_per_second",
    "p50_us",
    "p99_us",
    "ratio_to_plain",
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    seconds: float = 3.0
    repeats: int = 5


QUICK = Scale(seconds=0.1, repeats=1)


def measure_pair(directory: Path, scale: Scale) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and figures of each measurement; spans have their mode and work in the name."""
    place = directory / "pair"
    place.mkdir()
    for work in WORKS:
        found: dict[str, list[dict[str, float]]] = defaultdict(list)
        spans: dict[str, dict[str, float]] = {}
        for _ in range(scale.repeats):
            for row, table in measure(place, work, scale.seconds):
                found[row["mode"]].append({name: row[name] for name in FIGURES})
                for one in table:
                    if one.count:
                        spans[f"span, {row['mode']}, {work.name}, {one.span}"] = {
                            "count": one.count,
                            "p50_us": one.p50_us,
                            "p99_us": one.p99_us,
                        }
        for mode, rows in found.items():
            yield (
                f"{mode}, {work.name}",
                {name: median(row[name] for row in rows) for name in FIGURES},
            )
        yield from spans.items()
