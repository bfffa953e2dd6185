"""How a range of GLSNs is cut into the tasks of a Spark job.  No state.

P1  every entry of the range is in exactly one partition
P2  partitions ascend by their first GLSN, then by stream
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass
class GlsnRange(InputPartition):
    """The entries of some streams with GLSNs in ``[begin, end)``."""

    begin: int
    end: int
    streams: tuple[int, ...] = ()
    """Empty: of all streams, and so in total order."""
    turn: int = 0
    """Which of the replicas to read: partitions take turns, so that they spread over nodes."""


def plan_partitions(
    begin: int,
    end: int,
    streams: Sequence[int],
    *,
    records_max: int,
    count_min: int,
    turn: int = 0,
) -> list[GlsnRange]:
    """Partitions of about ``records_max`` entries or fewer, at least ``count_min`` of them.

    GLSNs are dense, so the length of a range is the number of its entries, unless some were
    compacted away; how many of them each stream has is taken to be the same.  ``turn`` is that of
    the first partition.
    """
    rows = max(end - begin, 0)
    count = min(max(-(-rows // records_max), count_min), max(rows, 1))
    if count == 1 or len(streams) == 1:
        groups: list[tuple[int, ...]] = [()]
    elif count < len(streams):
        groups = [tuple(streams[first::count]) for first in range(count)]
    else:
        groups = [(stream,) for stream in streams]
    ranges = -(-count // len(groups))
    edges = [begin + rows * i // ranges for i in range(ranges + 1)]
    return [
        GlsnRange(edges[i], edges[i + 1], group, turn=turn + i + place)
        for i in range(ranges)
        for place, group in enumerate(groups)
    ]
