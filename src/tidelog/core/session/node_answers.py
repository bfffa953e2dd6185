"""What a follower owes on one connection of a session between nodes.

Invariants:
  K1  a request that has an answer is answered once, and after all that came before it
"""

from __future__ import annotations

from collections import deque

from tidelog.core.session.node_messages import NodeAnswer
from tidelog.invariants import check


class Owed:
    """The answer to one request, known or not."""

    __slots__ = ("answer", "answers")

    def __init__(self, answers: NodeAnswers) -> None:
        self.answers = answers
        self.answer: NodeAnswer | None = None


class NodeAnswers:
    """The requests of one connection that were not answered."""

    __slots__ = ("_owed", "connection")

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self._owed: deque[Owed] = deque()

    def __len__(self) -> int:
        return len(self._owed)

    def owe(self) -> Owed:
        """A request has come that is to be answered."""
        owed = Owed(self)
        self._owed.append(owed)
        return owed

    def is_oldest(self, owed: Owed) -> bool:
        """Whether nothing that came before is still to be answered."""
        return self._owed[0] is owed

    def settle(self, owed: Owed, answer: NodeAnswer) -> list[NodeAnswer]:
        """Note an answer; return those that may be given now, in their order (K1)."""
        check(owed.answer is None, f"K1: connection {self.connection} answers twice")
        owed.answer = answer
        answers: list[NodeAnswer] = []
        while self._owed and (known := self._owed[0].answer) is not None:
            answers.append(known)
            self._owed.popleft()
        return answers
