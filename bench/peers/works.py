"""What every system has to do, and how much of it.  No state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """Sorts of work."""

    BATCHED = "batched appends"
    SMALL = "small appends"
    ONE = "one append in flight"
    RATE = "appends at a fixed rate"
    CONSUME = "consume"
    CONSUME_STREAMS = "consume 4 streams as one"
    SPARK = "Spark reads 4 streams"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Work:
    kind: Kind
    size: int
    batch: int = 1

    @property
    def name(self) -> str:
        size = f"{self.size} B" if self.size < 1000 else f"{self.size / 1024:.0f} KB"
        return f"{self.kind.value}, {size}" + (f" × {self.batch}" if self.batch > 1 else "")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    rounds: int = 3
    seconds: float = 2.0
    """What a measurement of throughput should take."""
    appends: int = 2_000
    """With one in flight."""
    rate_seconds: float = 3.0
    disk_bytes: int = 100_000_000
    bytes_max: int = 1_500_000_000
    """What one measurement appends at most; it is written three times."""


QUICK = Scale(
    rounds=1,
    seconds=0.3,
    appends=200,
    rate_seconds=0.5,
    disk_bytes=5_000_000,
    bytes_max=100_000_000,
)

RATE: Final = 2_000
STREAMS: Final = 4
SMALL, MIDDLE, LARGE = 100, 1_024, 102_400
BATCHES: Final = {SMALL: 1_000, MIDDLE: 100, LARGE: 1}

APPENDS: Final = (
    *(Work(Kind.BATCHED, size, batch) for size, batch in BATCHES.items()),
    Work(Kind.SMALL, SMALL),
    Work(Kind.SMALL, MIDDLE),
    Work(Kind.ONE, SMALL),
    Work(Kind.RATE, SMALL),
)
READS: Final = (Work(Kind.CONSUME, SMALL), Work(Kind.CONSUME, MIDDLE))
DISKS: Final = (Work(Kind.DISK, SMALL), Work(Kind.DISK, MIDDLE))
TOTAL_ORDER: Final = Work(Kind.CONSUME_STREAMS, SMALL)
SPARK: Final = Work(Kind.SPARK, SMALL)
