"""Who asked an operator for what, and what became of it.

K1  a request that comes twice, since its answer was lost, is carried out once and answered twice
K2  answers are kept for a bounded number of requests
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tidelog.core.operator.output import Outcome
from tidelog.formats.cluster_messages import OperatorOutcome
from tidelog.types import NodeId

_KEPT_MAX: Final = 1_024


class Askers:
    """Requests by the node that asked and by its own number for them."""

    __slots__ = ("_answers", "_begun")

    def __init__(self) -> None:
        self._begun: dict[int, tuple[NodeId, int]] = {}
        """Number of the core → who asked, and under which number."""
        self._answers: OrderedDict[tuple[NodeId, int], OperatorOutcome | None] = OrderedDict()

    def is_known(self, source: NodeId, number: int) -> bool:
        """Whether this was asked before (K1)."""
        return (source, number) in self._answers

    def answer_of(self, source: NodeId, number: int) -> OperatorOutcome | None:
        """What became of it; None while it is under way."""
        return self._answers.get((source, number))

    def begin(self, request: int, source: NodeId, number: int) -> None:
        """The core calls it ``request``."""
        self._begun[request] = source, number
        self._answers[source, number] = None
        while len(self._answers) > _KEPT_MAX:
            self._answers.popitem(last=False)

    def end(self, outcome: Outcome) -> tuple[NodeId, OperatorOutcome] | None:
        """Return whom to tell what; None if nobody over the network asked."""
        asked = self._begun.pop(outcome.request, None)
        if asked is None:
            return None
        source, number = asked
        answer = OperatorOutcome(number, outcome.result, outcome.reason)
        if asked in self._answers:
            self._answers[asked] = answer
        return source, answer
