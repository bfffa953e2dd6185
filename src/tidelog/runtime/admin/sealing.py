"""Seals log streams so that nobody waits in vain for an append that was under way.

A stream is SEALING first: its leader takes no more appends, and what it took before is ordered as
ever.  Once nothing of that is left it is SEALED, and no cut takes from it any more.

Invariants:
  S1  a stream is sealed by the word of its leader alone, given in the term of the row that is
      written: it takes no appends, and all that it has is ordered
  S2  what was unsealed takes appends when whoever asked is told so
  S3  a leader speaks by the row that was read, or a later one: what it says by an older one may be
      of a seal that was taken back since
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.core.order.commands import StreamStatus, UpdateStream
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.messages import Role
from tidelog.errors import DeadlineExceeded, LogError, RevisionConflict
from tidelog.interface.cluster_figures import NodeFacts, ReplicaFacts
from tidelog.runtime.admin.parts import Metadata
from tidelog.runtime.admin.status import order_of
from tidelog.types import NO_NODE, NodeId, StreamId

LOOK_SECONDS: Final = 0.02
"""How often the leader is asked whether it has come to an end."""


class Sealing:
    """Belongs to one event loop; has no state of its own."""

    def __init__(
        self, metadata: Metadata, look_at: Callable[[NodeId], Awaitable[NodeFacts]]
    ) -> None:
        """``look_at`` lets a node tell of itself; a LogError if it does not."""
        self._metadata = metadata
        self._look_at = look_at

    async def seal(self, stream: StreamId, seconds: float) -> None:
        """Let a stream take no appends any more, and all that it took be ordered."""
        try:
            async with asyncio.timeout(seconds):
                while not await self._step_to_sealed(stream, seconds):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise DeadlineExceeded(
                f"log stream {stream} is being sealed, but its leader has not said within "
                f"{seconds:g} s that all it took is ordered: look at `tidelog status`, and seal "
                "it again or unseal it"
            ) from None

    async def unseal(self, stream: StreamId, seconds: float) -> None:
        """Let a stream take appends again."""
        try:
            async with asyncio.timeout(seconds):
                while not await self._step_to_running(stream, seconds):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise DeadlineExceeded(
                f"log stream {stream} is unsealed, but no leader has said within {seconds:g} s "
                "that it takes appends: look at `tidelog status`"
            ) from None

    async def _step_to_sealed(self, stream: StreamId, seconds: float) -> bool:
        order = order_of(await self._metadata.read(seconds=seconds), stream)
        if order.status is StreamStatus.SEALED:
            return True
        if order.status is StreamStatus.RUNNING:
            await self._write(order, StreamStatus.SEALING, seconds)
            return False
        leader = await self._leader_of(order)
        if leader is None or not _is_spent(leader):
            return False
        return await self._write(order, StreamStatus.SEALED, seconds)

    async def _step_to_running(self, stream: StreamId, seconds: float) -> bool:
        order = order_of(await self._metadata.read(seconds=seconds), stream)
        if order.status is not StreamStatus.RUNNING:
            await self._write(order, StreamStatus.RUNNING, seconds)
            return False
        leader = await self._leader_of(order)
        return leader is not None and _takes_appends(leader)

    async def _write(self, order: StreamOrder, status: StreamStatus, seconds: float) -> bool:
        """False if the row is another one by now: an operator or another person was faster."""
        try:
            await self._metadata.ask(with_status(order, status), seconds=seconds)
        except RevisionConflict:
            return False
        return True

    async def _leader_of(self, order: StreamOrder) -> ReplicaFacts | None:
        """The replica that leads in the row's term, as its node tells of it (S1)."""
        if order.leader == NO_NODE:
            return None
        try:
            told = await self._look_at(order.leader)
        except LogError:
            return None  # It is asked again, or another one leads by then.
        return next((one for one in told.replicas if _leads(one, order)), None)


def _leads(replica: ReplicaFacts, order: StreamOrder) -> bool:
    """Whether a replica may speak for the stream of this row (S1, S3)."""
    is_of_row = (replica.stream, replica.term) == (order.stream, order.term)
    knows_it = replica.revision >= order.revision
    return is_of_row and knows_it and replica.role == Role.LEADER.value


def _is_spent(leader: ReplicaFacts) -> bool:
    """Whether a leader takes no appends, and all that it has is ordered (S1)."""
    return leader.is_sealed and leader.end_llsn == leader.ordered_end_llsn


def _takes_appends(leader: ReplicaFacts) -> bool:
    """S2."""
    return not leader.is_sealed


def with_status(order: StreamOrder, status: StreamStatus) -> UpdateStream:
    """The write that changes nothing of a stream but its status."""
    return UpdateStream(
        stream=order.stream,
        revision=order.revision,
        term=order.term,
        ensemble=order.ensemble,
        leader=order.leader,
        status=status,
        plan=order.plan,
    )
