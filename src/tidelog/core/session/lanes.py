"""What is to be done on one lane of a master, and what is awaited there.

A lane is the control channel or a log channel, with the connections to all replicas.  Its steps lie
in stages: outputs of one stage are handed out together, and a stage that *waits* only when nothing
is awaited any more.

Invariants:
  L1  stages are handed out in the order in which they were put
  L2  what was handed out is awaited until it was answered or stored
  L3  a log session is finished only when nothing is awaited of what was put before its mark
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

import msgspec

from tidelog.core.session.epochs import LogSession
from tidelog.core.session.output import (
    AppendLocally,
    CutLocally,
    FlushLocally,
    MasterOutput,
    RecordLocally,
    Send,
    SendBlob,
    SetBoundaryLocally,
)

LocalOutput: TypeAlias = (
    AppendLocally | FlushLocally | CutLocally | RecordLocally | SetBoundaryLocally
)


class Stage(msgspec.Struct, frozen=True):
    """Outputs that are handed out together; or, without any, the mark of a log session's end."""

    outputs: tuple[MasterOutput, ...]
    waits: bool = False
    finishes: LogSession | None = None


class Lane:
    """The steps of one lane, those ahead and those under way."""

    __slots__ = ("_answers", "_stages", "_tickets")

    def __init__(self) -> None:
        self._stages: deque[Stage] = deque()
        self._answers: list[Send] = []
        self._tickets: dict[int, LocalOutput] = {}

    @property
    def waits(self) -> tuple[int, ...]:
        """The replicas that are to answer, in the order of the requests."""
        return tuple(send.replica for send in self._answers)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is awaited."""
        return not self._answers and not self._tickets

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do, either."""
        return self.is_quiet and not self._stages

    def put(self, *stages: Stage) -> None:
        """Add steps behind all others; one without outputs and mark is none."""
        self._stages.extend(stage for stage in stages if stage.outputs or stage.finishes)

    def take(self) -> list[MasterOutput]:
        """Hand out what may be done now (L1)."""
        outputs: list[MasterOutput] = []
        while self._stages and self._may_go(self._stages[0]):
            for output in self._stages.popleft().outputs:
                self._await(output)
                outputs.append(output)
        return outputs

    def _may_go(self, stage: Stage) -> bool:
        return stage.finishes is None and (self.is_quiet or not stage.waits)

    def _await(self, output: MasterOutput) -> None:
        """L2; the answers to parts of a BLOB are read by whoever sends it."""
        if isinstance(output, Send):
            self._answers.append(output)
        elif not isinstance(output, SendBlob):
            self._tickets[output.ticket] = output

    def take_finished(self) -> LogSession | None:
        """Return a log session that has ended by now (L3); once for each."""
        if not self._stages or not self._is_reached(self._stages[0]):
            return None
        return self._stages.popleft().finishes

    def _is_reached(self, stage: Stage) -> bool:
        return stage.finishes is not None and self.is_quiet

    def answered(self, replica: int) -> Send | None:
        """Return the request that a replica has answered; None if it was asked nothing."""
        for place, send in enumerate(self._answers):
            if send.replica == replica:
                return self._answers.pop(place)
        return None

    def stored(self, ticket: int) -> LocalOutput:
        """Return the local step that was carried out."""
        return self._tickets.pop(ticket)

    def drop_queued(self) -> None:
        """Forget what was not handed out."""
        self._stages.clear()

    def stop(self) -> None:
        """Nothing more will be answered; what was handed to the local store may still be told."""
        self._stages.clear()
        self._answers.clear()
