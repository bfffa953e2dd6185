"""Micro-batches of a log without a streaming query: one range of GLSNs after the other.

A query's checkpoint is not needed for it, since the table itself tells how far it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.materialization.batch_range import BatchRange

if TYPE_CHECKING:
    from tidelog.interface.handles import TopicHandle

WAIT_SECONDS: Final = 0.5
"""How long the log is asked to wait for entries, again and again."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch may hold."""

    records_max: int
    bytes_max: int


def log_ranges(
    log: TopicHandle, begin: int, limits: BatchLimits, *, once: bool
) -> Iterator[BatchRange]:
    """Ranges from ``begin`` on that end at cuts; ``once``: up to what the log holds now."""
    last = log.position().high_watermark + 1 if once else None
    while last is None or begin < last:
        found = log.find_end(
            begin,
            records_max=limits.records_max,
            bytes_max=limits.bytes_max,
            wait=WAIT_SECONDS if last is None else 0.0,
        )
        end = found.glsn if last is None else min(found.glsn, last)
        if end > begin:
            yield BatchRange(begin, end)
            begin = end
