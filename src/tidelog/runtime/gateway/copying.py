"""Appends what a publication has staged to the log streams that it is for.

Every part has its number: the writer's producer and a sequence that follows from the publication
alone.  So it may be sent again, by anybody, after whatever happened: the log has each part once.

Invariants:
  C1  the same publication has the same numbers, whoever copies it and how often
  C2  in each log stream the parts follow one another in the order of the stages
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.errors import (
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    LeaderLost,
    NotLeader,
    OutOfOrder,
    ProducerConflict,
    Unreachable,
)
from tidelog.formats.publications import Intent, producer_of
from tidelog.interface.appends import Append, Part
from tidelog.limits import GROUP_BYTES_MAX
from tidelog.runtime.gateway.append_router import AppendRouter
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.stages import Stages
from tidelog.server.backend import Outcome

_CHUNK_BYTES: Final = GROUP_BYTES_MAX // 2
_CHUNK_STAGES: Final = 64
"""What is read and appended at a time."""
_PAUSE_SECONDS: Final = 0.05
_TRY_SECONDS: Final = 10.0
"""For one attempt to append a chunk."""
_ANSWER_SECONDS: Final = 1.0
"""What is left to an attempt to say what became of it."""
_AGAIN: Final = (
    NotLeader,
    OutOfOrder,
    LeaderLost,
    Busy,
    Unreachable,
    ConnectionLost,
    DeadlineExceeded,
)


@dataclass(frozen=True, slots=True)
class _Numbered:
    part: Part
    sequence: int
    after: int


class Copying:
    """Belongs to one event loop."""

    def __init__(self, stages: Stages, router: AppendRouter, cluster: ClusterMap) -> None:
        self._stages = stages
        self._router = router
        self._cluster = cluster

    async def copy(
        self, key: bytes, intent: Intent, topic: str, deadline: float, step: float
    ) -> int:
        """Append all that a publication is for; returns how many entries that were.

        DeadlineExceeded if that is not done by the deadline, or one ``step`` takes longer.
        """
        producer = producer_of(key)
        entries, size = 0, 0
        chunk: list[_Numbered] = []
        last: dict[int, int] = {}
        for index, stage in enumerate(intent.stages):
            sequence = intent.first_sequence + index  # C1
            _, parts = await self._stages.read(stage, min(_left(deadline), step))
            for part in parts:
                chunk.append(_Numbered(part, sequence, last.get(part.stream, 0)))
                last[part.stream] = sequence
                entries += part.body.count
                size += len(part.body.data)
            if size >= _CHUNK_BYTES or (index + 1) % _CHUNK_STAGES == 0:
                await self._append_all(producer, topic, chunk, _end_of(step, deadline))
                chunk, size = [], 0
        await self._append_all(producer, topic, chunk, _end_of(step, deadline))
        return entries

    async def _append_all(
        self, producer: int, topic: str, chunk: Sequence[_Numbered], deadline: float
    ) -> None:
        """Append parts, and those again of which nobody knows, until all are there."""
        while chunk:
            seconds = min(_left(deadline), _TRY_SECONDS)
            outcomes = [
                self._router.post(
                    Append(topic, [one.part], producer, one.sequence, (one.after,)), seconds
                )
                for one in chunk
            ]
            found = await asyncio.gather(
                *[_is_there(outcome, seconds) for outcome in outcomes], return_exceptions=True
            )
            for one in found:
                if isinstance(one, BaseException):
                    raise one
            chunk = [one for one, is_there in zip(chunk, found, strict=True) if not is_there]
            if chunk:
                _left(deadline)
                await self._cluster.wait_for_change(_PAUSE_SECONDS)


async def _is_there(outcome: Outcome, seconds: float) -> bool:
    """Whether an append is in the log; False if it has to be sent again."""
    try:
        async with asyncio.timeout(seconds + _ANSWER_SECONDS):
            await asyncio.shield(outcome)
    except ProducerConflict:
        return True  # So long ago that its place is not known any more.
    except (*_AGAIN, TimeoutError):
        return False
    return True


def _end_of(step: float, deadline: float) -> float:
    return min(deadline, asyncio.get_running_loop().time() + step)


def _left(deadline: float) -> float:
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise DeadlineExceeded("the publication took too long; it will be finished later")
    return left
