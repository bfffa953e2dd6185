"""Requests to operators: any of them may carry one out, or die over it.

Invariants:
  O1  a request counts as taken when its outcome came, or when the row of its stream changed: from
      then on the metadata tells what becomes of it
  O2  an operator that says nothing is left for the next one; a request that two of them take is
      carried out once, for they meet in the compare-and-set of the row
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from secrets import randbits
from typing import Final

from msgspec.structs import replace

from tidelog.core.operator.output import Refused, Result
from tidelog.errors import BadOption, Busy, LogError, UnknownStream, Unreachable, WrongState
from tidelog.formats.cluster_messages import ClusterMessage, OperatorOutcome, OperatorRequest
from tidelog.runtime.admin.parts import Mail
from tidelog.types import NodeId

SILENCE_SECONDS: Final = 1.5
"""Then another operator is asked."""
LOOK_SECONDS: Final = 0.05

_BUSY: Final = frozenset({Refused.BUSY, Refused.NOT_STEADY, Refused.OVERTAKEN})
_STATE: Final = frozenset({Refused.NOTHING_TO_ABORT, Refused.COMMITTED})


class OperatorRequests:
    """Asks one operator after the other."""

    def __init__(self, post: Mail) -> None:
        self._post = post
        self._next = randbits(47)
        self._waiting: dict[int, tuple[NodeId, asyncio.Future[OperatorOutcome]]] = {}
        post.on((OperatorOutcome,), self._on_outcome)

    async def ask(
        self,
        request: OperatorRequest,
        operators: Sequence[NodeId],
        *,
        is_taken: Callable[[], bool],
        seconds: float,
    ) -> Result | None:
        """What became of a request; None if it is under way.  Raises why it was refused."""
        deadline = asyncio.get_running_loop().time() + seconds
        for operator in operators:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            outcome = await self._ask_one(request, operator, is_taken, min(SILENCE_SECONDS, left))
            if outcome is not None:
                if outcome.result is Result.REFUSED:
                    raise refusal(outcome.reason)
                return outcome.result
            if is_taken():
                return None  # O1
        raise Unreachable(
            "no operator answers: start a node with the role `operator`, or look at its log"
        )

    async def _ask_one(
        self,
        request: OperatorRequest,
        operator: NodeId,
        is_taken: Callable[[], bool],
        seconds: float,
    ) -> OperatorOutcome | None:
        self._next += 1
        number = self._next
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[OperatorOutcome] = loop.create_future()
        self._waiting[number] = (operator, answered)
        deadline = loop.time() + seconds
        self._post.send(operator, replace(request, number=number))
        try:
            while loop.time() < deadline and not is_taken():
                done, _ = await asyncio.wait([answered], timeout=LOOK_SECONDS)
                if done:
                    return answered.result()
            return answered.result() if answered.done() else None
        finally:
            del self._waiting[number]

    def _on_outcome(self, source: NodeId, message: ClusterMessage) -> None:
        if not isinstance(message, OperatorOutcome):
            return
        operator, answered = self._waiting.get(message.number, (None, None))
        if answered is not None and operator == source and not answered.done():
            answered.set_result(message)


def refusal(reason: Refused | None) -> LogError:
    """The error that an operator's refusal stands for."""
    if reason is None:
        return WrongState("an operator refused without a reason")
    text = f"nothing was done: {reason.value}"
    if reason is Refused.UNKNOWN_STREAM:
        return UnknownStream(text)
    if reason in _BUSY:
        return Busy(f"{text}; try again in a moment")
    return WrongState(text) if reason in _STATE else BadOption(text)
