"""What a storage node counts of its work, for its metrics.  Only the event loop touches it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from tidelog.interface.records import Ack

SECONDS_BOUNDS: Final = (
    0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.0007, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.007,
    0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 60.0,
)  # fmt: skip
COUNT_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)


@dataclass(slots=True)
class Histogram:
    """Observations by size."""

    bounds: Sequence[float] = SECONDS_BOUNDS
    total: float = 0.0
    _buckets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._buckets = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.total += value
        self._buckets[bisect_left(self.bounds, value)] += 1

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._buckets)

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        names = [*map(str, self.bounds), "+Inf"]
        return zip(names, accumulate(self._buckets), strict=True)


@dataclass(slots=True)
class Counters:
    """Since the node was started."""

    appends: int = 0
    append_entries: int = 0
    append_bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Appends, by the error's name."""
    duplicates: int = 0
    lost: int = 0
    """Appends whose leader was deposed while they were under way."""
    stages: dict[Ack, Histogram] = field(default_factory=lambda: {ack: Histogram() for ack in Ack})
    group_writes: Histogram = field(default_factory=lambda: Histogram(COUNT_BOUNDS))
    """Writes of replicas that one sync made durable."""
    cut_seconds: Histogram = field(default_factory=Histogram)
    """Between two cuts of which the node was told."""
    order_seconds: Histogram = field(default_factory=Histogram)
    """From the first report after a cut that leaves something to order to the next cut."""
    turns: int = 0
    terms: int = 0
    """Terms that replicas went to: elections and reconfigurations."""
    led: int = 0
    """How often a replica began to lead."""
    deposed: int = 0
    filled: int = 0
    """How often a replica here was filled up."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Messages that nobody here could take, by reason."""
