"""What a node counts of its work, for its metrics.  Only the event loop touches it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

APPEND_SECONDS_BOUNDS: Final = (
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 60.0,
)  # fmt: skip


@dataclass(slots=True)
class Counters:
    """Since the node was started, except where it says now."""

    connections: int = 0
    """Now."""
    connections_total: int = 0
    in_flight: int = 0
    """Now."""
    requests: Counter[str] = field(default_factory=Counter)
    """By the message's name."""
    refused: Counter[str] = field(default_factory=Counter)
    """By the error's name."""
    appends: int = 0
    append_entries: int = 0
    append_bytes: int = 0
    append_seconds: float = 0.0
    append_buckets: list[int] = field(
        default_factory=lambda: [0] * (len(APPEND_SECONDS_BOUNDS) + 1)
    )
    read_pages: int = 0
    read_bytes: int = 0

    def count_append(self, entries: int, size: int, seconds: float) -> None:
        self.appends += 1
        self.append_entries += entries
        self.append_bytes += size
        self.append_seconds += seconds
        self.append_buckets[bisect_left(APPEND_SECONDS_BOUNDS, seconds)] += 1

    def count_page(self, size: int) -> None:
        self.read_pages += 1
        self.read_bytes += size
