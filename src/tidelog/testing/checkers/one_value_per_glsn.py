"""A GLSN names one entry, on every replica and for ever."""

from __future__ import annotations

from typing import Final, TypeAlias

from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.testing.stream_image import StreamImage
from tidelog.testing.violation import Violation
from tidelog.types import NodeId, StreamId, TopicId

NAME: Final = "one_value_per_glsn"

Place: TypeAlias = tuple[StreamId, int]


class OneValuePerGlsn:
    """What every GLSN was first seen to name."""

    __slots__ = ("_named", "_places")

    def __init__(self) -> None:
        self._places: dict[tuple[TopicId, int], Place] = {}
        self._named: dict[Place, Batch] = {}

    def on_ordered(
        self,
        node: NodeId,
        topic: TopicId,
        stream: StreamId,
        runs: tuple[GlsnRun, ...],
        image: StreamImage,
    ) -> None:
        """Check the entries that a replica gives GLSNs to; ``image`` has them, unless dead."""
        for run in runs:
            for offset in range(run.length):
                self._check(node, topic, run.glsn_begin + offset, (stream, run.llsn_begin + offset))
            for batch in image.batches_between(run.llsn_begin, run.llsn_end):
                for llsn in range(
                    max(batch.llsn_begin, run.llsn_begin), min(batch.llsn_end, run.llsn_end)
                ):
                    self._check_value(node, (stream, llsn), batch)

    def _check(self, node: NodeId, topic: TopicId, glsn: int, place: Place) -> None:
        known = self._places.setdefault((topic, glsn), place)
        if known != place:
            raise Violation(
                NAME,
                f"GLSN {glsn} of topic {topic} is at {place} on node {node}, elsewhere at {known}",
            )

    def _check_value(self, node: NodeId, place: Place, batch: Batch) -> None:
        known = self._named.setdefault(place, batch)
        if known != batch:
            raise Violation(
                NAME, f"{place} is ordered as {batch} on node {node}, elsewhere as {known}"
            )
