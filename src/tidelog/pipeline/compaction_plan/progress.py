"""What ``compact_plan`` tells while it runs and when it ends."""

from __future__ import annotations

from typing import Literal

import msgspec

from tidelog.interface.figures import PlanOutcome


class PlanProgress(msgspec.Struct, frozen=True):
    """A step is done."""

    step: Literal["read", "judged", "offered"]
    entries: int
    """That were read; that are dead; that the nodes dropped."""
    seconds: float
    stream: int = 0
    """The log stream that was offered a plan."""


class PlannedStream(msgspec.Struct, frozen=True):
    """What was found of a log stream."""

    stream: int
    index: int
    """The last LLSN that was looked at."""
    live: int
    """Entries that are still needed; those without keys are."""
    dead: int


class CompactPlanSummary(msgspec.Struct, frozen=True):
    """What a run found, and what became of it."""

    topic: str
    glsn_begin: int
    glsn_end: int
    """The plan is about the positions ``[glsn_begin, glsn_end)``."""
    gc_boundary: int
    buckets: int
    streams: tuple[PlannedStream, ...]
    seconds: float
    directory: str | None = None
    """Where the live indexes were written to."""
    outcomes: tuple[PlanOutcome, ...] = ()
    """What each replica did with what it was offered."""

    @property
    def live(self) -> int:
        return sum(stream.live for stream in self.streams)

    @property
    def dead(self) -> int:
        return sum(stream.dead for stream in self.streams)

    @property
    def refused(self) -> int:
        """Offers that a replica did not take."""
        return sum(bool(outcome.refused) for outcome in self.outcomes)

    @property
    def reclaimed_bytes(self) -> int:
        """On all replicas together."""
        return sum(outcome.compaction.reclaimed_bytes for outcome in self.outcomes)
