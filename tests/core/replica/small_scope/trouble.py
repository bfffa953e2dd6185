"""A group in which one message is in trouble.

Messages are numbered as they are sent, once counting begins.  One of them is lost, is late (it
arrives after a later step, or only when it is released) or comes twice; or the operator dies right
before it is sent; or its sender or its receiver restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.core.replica.protocol.operated import OPERATORS_FROM, OperatedGroup
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    Message,
    Role,
    StatusRequest,
    StatusResponse,
)

LATE_TICKS: Final = 4
NEVER: Final = 10_000


class Fault(Enum):
    """What becomes of one message."""

    NONE = "nothing"
    LOST = "it is lost"
    LATE = "it arrives after a later step"
    VERY_LATE = "it arrives when it is released"
    TWICE = "it comes twice, once late"
    TWICE_VERY_LATE = "it comes twice, once when it is released"
    OPERATOR_DIES = "the operator dies right before it is sent"
    SENDER_RESTARTS = "its sender restarts when it was sent"
    RECEIVER_RESTARTS = "its receiver restarts before it arrives"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Which fault hits the message of which number."""

    fault: Fault = Fault.NONE
    number: int = -1


class TroubledGroup(OperatedGroup):
    """A group in which one message is in trouble."""

    def __init__(self, *ensemble: int, spares: Sequence[int] = (), trouble: Trouble) -> None:
        self.trouble = trouble
        self.count = 0
        self.is_counting = False
        self.late: list[tuple[int, Message]] = []
        self.restarting = 0
        self.now = 0
        super().__init__(*ensemble, spares=spares)

    def put(self, *messages: Message) -> None:
        for message in messages:
            if not self.is_counting or not is_of_a_step(message):
                super().put(message)
                continue
            number, self.count = self.count, self.count + 1
            if number == self.trouble.number:
                self._meet_trouble(message)
            else:
                super().put(message)

    def _meet_trouble(self, message: Message) -> None:
        match self.trouble.fault:
            case Fault.LATE:
                self.late.append((self.now + LATE_TICKS, message))
            case Fault.VERY_LATE:
                self.late.append((NEVER, message))
            case Fault.TWICE:
                self.late.append((self.now + LATE_TICKS, message))
                super().put(message)
            case Fault.TWICE_VERY_LATE:
                self.late.append((NEVER, message))
                super().put(message)
            case Fault.OPERATOR_DIES:
                self._replace_operator()
                if message.source != OPERATORS_FROM:
                    super().put(message)
            case Fault.SENDER_RESTARTS:
                super().put(message)
                self.restarting = message.source
            case Fault.RECEIVER_RESTARTS:
                super().put(message)
                self.restarting = message.target
            case _:
                pass

    def run_until_led(self) -> int:
        """Let time pass until somebody leads the row's term; return who."""
        for _ in range(100):
            leader = self.row.leader
            if leader in self.alive and self[leader].role is Role.LEADER:
                return leader
            self.run()
        raise AssertionError("nobody leads")

    def _replace_operator(self) -> None:
        self.stop_operator(OPERATORS_FROM)
        self.start_operator(OPERATORS_FROM + 1)

    def step(self, message: Message) -> None:
        """A node that is to restart does so before the next message arrives anywhere."""
        number, self.restarting = self.restarting, 0
        if number in self.members:
            self.restart(number)
        elif number in self.operators:
            self._replace_operator()
        super().step(message)

    def run(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.now += 1
            self.release_late(self.now)
            super().run()

    def release_late(self, now: int) -> None:
        """Put what is due by ``now`` on the wire."""
        due = [message for at, message in self.late if at <= now]
        self.late = [each for each in self.late if each[0] > now]
        super().put(*due)


def is_of_a_step(message: Message) -> bool:
    """Whether a message may matter: not one that only asks how things are, or carries nothing."""
    if isinstance(message, AddEntriesRequest):
        return bool(message.batches)
    return not isinstance(message, StatusRequest | StatusResponse | AddEntriesResponse)
