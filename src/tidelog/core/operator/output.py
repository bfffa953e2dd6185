"""What an operator wants done.

The operator changes its state when it is stepped; ``Operator.take`` hands over what follows.  The
host

  1. sends ``messages``, in any order; it may lose them;
  2. gives ``updates`` to the metadata repository and tells the outcome by ``Operator.answered``:
     no error only if this very write was applied.  A write that equals one of another operator is
     not that one, so an outcome is never guessed from what is read;
  3. tells those who asked for something what became of it: ``outcomes``.

Invariants:
  U1  every write has a number of its own, which is known until its outcome is, or nobody waits
"""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog.core.order.commands import UpdateStream
from tidelog.core.replica.messages import FromOperator
from tidelog.types import NodeId, StreamId


class Refused(Enum):
    """Why nothing was done about what a person asked for."""

    UNKNOWN_STREAM = "there is no such stream, or its plan cannot be read"
    BUSY = "an election or a reconfiguration of the stream is under way"
    NOT_STEADY = "the stream has no settled leader"
    MALFORMED = "an old node is named exactly if one leaves, a new node exactly if one joins"
    LEADER = "the leader is not removed: let another node lead first"
    NOT_MEMBER = "the node to be removed is not of the ensemble"
    MEMBER_ALREADY = "the node to be added is of the ensemble already"
    NO_SUCH_NODE = "the node to be added is not registered, or is silent"
    TOO_LARGE = "an ensemble has only so many nodes"
    NOTHING_TO_ABORT = "no reconfiguration is under way"
    COMMITTED = "it cannot be aborted any more: it will be completed"
    OVERTAKEN = "another operator was faster"


class Result(Enum):
    """What became of something that a person asked for."""

    DONE = "done"
    REFUSED = "refused: nothing was done"
    ABORTED = "begun and undone again"
    UNKNOWN = "given up: what is written about the stream tells what became of it"


class Outcome(msgspec.Struct, frozen=True):
    """``reason`` is there exactly if it was refused."""

    request: int
    stream: StreamId
    result: Result
    reason: Refused | None = None


class Update(msgspec.Struct, frozen=True):
    """A write for the metadata repository."""

    number: int
    command: UpdateStream


class OperatorOutput(msgspec.Struct, frozen=True):
    """See the module's text for what to do with each."""

    messages: tuple[FromOperator, ...] = ()
    updates: tuple[Update, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


class Outbox:
    """What waits to be taken."""

    __slots__ = ("_messages", "_number", "_outcomes", "_updates", "_writers", "node")

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self._number = 0
        self._messages: list[FromOperator] = []
        self._updates: list[Update] = []
        self._outcomes: list[Outcome] = []
        self._writers: dict[int, StreamId] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self._messages or self._updates or self._outcomes)

    def send(self, message: FromOperator) -> None:
        """Send a message, if the network lets it through."""
        self._messages.append(message)

    def write(self, command: UpdateStream) -> int:
        """Ask for a write; its outcome comes with the number returned (U1)."""
        self._number += 1
        self._updates.append(Update(self._number, command))
        self._writers[self._number] = command.stream
        return self._number

    def writer(self, number: int) -> StreamId | None:
        """Return the stream whose procedure waits for the outcome of a write, if one does."""
        return self._writers.get(number)

    def forget(self, number: int) -> None:
        """Wait for the outcome of a write no longer."""
        del self._writers[number]

    def tell(self, outcome: Outcome) -> None:
        """Answer a person."""
        self._outcomes.append(outcome)

    def take(self) -> OperatorOutput:
        """Hand over all that waits."""
        output = OperatorOutput(tuple(self._messages), tuple(self._updates), tuple(self._outcomes))
        self._messages, self._updates, self._outcomes = [], [], []
        return output
