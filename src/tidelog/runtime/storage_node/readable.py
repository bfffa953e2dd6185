"""What a node may show of a topic: everything up to which it surely misses nothing.  No state.

A replica whose durable context reaches the end that its stream had as of some version has all
entries of the stream with GLSNs up to the topic's high watermark of that version, for later cuts
issue higher ones.  Without such word its own context tells how far it is: up to the high watermark
of the last cut that it applied.  A page over several streams ends where the first of them does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tidelog.core.replica.commit_context import CommitContext
from tidelog.types import Llsn, StreamId, TopicId


class Snapshot(msgspec.Struct, frozen=True):
    """High watermarks as of one version, and ends of streams as of that one or a later one."""

    watermarks: Mapping[TopicId, int]
    ends: Mapping[StreamId, Llsn]


def readable_up_to(
    topic: TopicId, stream: StreamId, context: CommitContext, snapshots: Iterable[Snapshot]
) -> int:
    """Return the last GLSN up to which a replica with this durable context lacks nothing."""
    best = context.high_watermark
    for snapshot in snapshots:
        end = snapshot.ends.get(stream)
        if end is not None and context.llsn_end >= end:
            best = max(best, snapshot.watermarks.get(topic, 0))
    return best
