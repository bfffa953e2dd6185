"""A GLSN names one record, on every replica and for ever."""

from __future__ import annotations

from typing import Final, TypeAlias

from tidelog.core.order.commands import StreamCommit
from tidelog.testing.storage_messages import Record
from tidelog.testing.violation import Violation
from tidelog.types import NodeId, StreamId, TopicId

NAME: Final = "one_value_per_glsn"

Place: TypeAlias = tuple[StreamId, int]


class OneValuePerGlsn:
    """What every GLSN was first seen to name."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named: dict[tuple[TopicId, int], tuple[Place, Record]] = {}

    def on_applied(self, node: NodeId, commit: StreamCommit, records: list[Record]) -> None:
        """Check the records that a replica gives GLSNs to; ``records`` are all that it has."""
        for place in range(commit.length):
            llsn, glsn = commit.llsn_begin + place, commit.glsn_begin + place
            named = ((commit.stream, llsn), records[llsn - 1])
            known = self._named.setdefault((commit.topic, glsn), named)
            if known != named:
                raise Violation(
                    NAME,
                    f"GLSN {glsn} of topic {commit.topic} is {named[1]} at {named[0]} on node"
                    f" {node}, elsewhere it is {known[1]} at {known[0]}",
                )
