"""What elections and reconfigurations have in common: writes, patience, an end.

Input: ticks, answers of nodes, outcomes of writes.  Output: messages and writes, by the outbox.

Invariants:
  P1  one write is under way at a time, and it names the revision of the row it is based on
  P2  a procedure goes on only when its own write is known to be applied: so a term belongs to the
      one procedure, in the one life of the one operator, that began it
  P3  a procedure that has ended sends and writes nothing
  P4  a write that waits for replicas to catch up is tried again; meanwhile followers are attached,
      for it may be them that it waits for
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from tidelog import limits
from tidelog.core.operator.options import Ignored, OperatorOptions
from tidelog.core.operator.output import Outbox
from tidelog.core.operator.requests import ask_status
from tidelog.core.operator.row import Row, joining, update_to
from tidelog.core.replica.messages import FromOperator, Refusal, StatusResponse, ToOperator
from tidelog.errors import LogError, ReplicasBehind
from tidelog.invariants import check
from tidelog.types import NodeId, Revision, Term, Version

Suspects: TypeAlias = Callable[[NodeId], bool]
"""Whether a node is taken for dead."""


class Ending(Enum):
    """How a procedure ended."""

    DONE = "done"
    ABORTED = "undone, since somebody asked for it, or since the new node was lost"
    REFUSED = "its first write was refused: nothing happened"
    OVERTAKEN = "another operator is at work"
    UNKNOWN = "what became of a write is not known"
    STALLED = "an answer took too long; it can be resumed"
    UNLED = "who should lead does not: the stream needs an election"


class Write(msgspec.Struct, frozen=True):
    """A write, and what follows it.  ``is_last``: then all is done, come what may."""

    number: int
    following: Row
    then: Callable[[], None]
    is_last: bool


class Procedure(ABC):
    """One attempt at one stream, from where ``row`` leaves it."""

    __slots__ = (
        "_elapsed",
        "_has_written",
        "_options",
        "_outbox",
        "_postponed",
        "_versions",
        "_write_under_way",
        "ending",
        "known",
        "request",
        "row",
    )

    def __init__(
        self, row: Row, options: OperatorOptions, outbox: Outbox, known: Term, request: int | None
    ) -> None:
        self.row = row
        self.request = request
        """The number of what a person asked for, if one did."""
        self.known = known
        """The highest term that a node told of."""
        self.ending: Ending | None = None
        self._options = options
        self._outbox = outbox
        self._elapsed = 0
        self._has_written = False
        self._write_under_way: Write | None = None
        self._versions = row.versions
        """The last cuts that nodes are known to know."""
        self._postponed: Write | None = None
        """A write that was refused because replicas have to catch up first."""

    # -- what the kinds of procedures are made of ----------------------------------------------

    @abstractmethod
    def _send(self) -> None:
        """Ask whoever has not answered yet in the present stage."""

    @abstractmethod
    def _take(self, message: ToOperator) -> Ignored | None:
        """Take an answer in the procedure's term."""

    @abstractmethod
    def _wait(self) -> None:
        """Let one unit of time pass in a stage without a write."""

    @property
    @abstractmethod
    def _is_leader_lost(self) -> bool:
        """Whether the one who leads, as far as this procedure knows, is taken for dead."""

    @property
    @abstractmethod
    def leaving(self) -> tuple[NodeId, ...]:
        """Nodes whose replicas are of no use any more, once the procedure has ended."""

    # -- what comes in -------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Whether the outcome of a write is awaited."""
        return self._write_under_way is not None

    def tick(self) -> None:
        """Let one unit of time pass."""
        self._elapsed += 1
        if self.is_writing:
            if self._is_impatient:
                self.end(Ending.UNKNOWN)
            return
        if self._postponed is None:
            self._wait()
        else:
            self._wait_for_replicas(self._postponed)
        if self.ending is None and self._elapsed % self._options.resend_ticks == 0:
            self._send()

    def _wait_for_replicas(self, write: Write) -> None:
        """Try a postponed write again now and then, as long as the leader is there (P4)."""
        if self._is_leader_lost:
            self.end(Ending.UNLED)
        elif self._elapsed % self._options.status_ticks == 0:
            self._write(write.following, write.then, is_last=write.is_last)
        elif self._elapsed % self._options.resend_ticks == 0:
            for node in joining(self.row, write.following):
                self._ask(ask_status(self._outbox.node, self.row, node))

    def step(self, message: ToOperator) -> Ignored | None:
        """Take an answer; return why it had no effect, if so."""
        if message.term != self.row.term:
            return Ignored.OTHER_TERM
        if isinstance(message, StatusResponse):
            self._note_version(message.source, message.version)
        return self._take_while_writing(message) if self.is_writing else self._take(message)

    def _take_while_writing(self, message: ToOperator) -> Ignored | None:
        if isinstance(message, Refusal):
            self._has_passed(message)
        return Ignored.LATE

    def answered(self, number: int, error: LogError | None, newest: Revision) -> Ignored | None:
        """Take the outcome of a write; ``newest`` is the newest revision that was read."""
        write = self._write_under_way
        if write is None or write.number != number:
            return Ignored.UNKNOWN_UPDATE
        self._close_write()
        self._elapsed = 0
        if error is None:
            self.row = write.following
            self._has_written = True
        if error is not None and not isinstance(error, ReplicasBehind):
            self.end(self._ending_after(error))
        elif newest > self.row.revision and not (error is None and write.is_last):
            self.end(Ending.OVERTAKEN)
        elif error is not None:
            self._postponed = write
        else:
            write.then()
        return None

    def overtake(self) -> None:
        """Somebody else has written: what they do counts."""
        if not self.is_writing:
            self.end(Ending.OVERTAKEN)

    # -- for the kinds of procedures -------------------------------------------------------------

    def end(self, ending: Ending) -> None:
        """Stop, for good (P3)."""
        self._close_write()
        self.ending = ending

    def _close_write(self) -> None:
        if self._write_under_way is not None:
            self._outbox.forget(self._write_under_way.number)
            self._write_under_way = None

    @property
    def _is_impatient(self) -> bool:
        return self._elapsed >= self._options.patience_ticks

    def _write(self, following: Row, then: Callable[[], None], *, is_last: bool = False) -> None:
        check(not self.is_writing, "P1: a second write")
        number = self._outbox.write(update_to(self.row, following, self._versions))
        self._write_under_way = Write(number, following, then, is_last)
        self._postponed = None
        self._elapsed = 0

    def _note_version(self, node: NodeId, version: Version) -> None:
        self._versions[node] = max(version, self._versions.get(node, version))

    def _ending_after(self, error: LogError) -> Ending:
        """An unknown outcome stays unknown: the write may be applied, now or later (P2)."""
        if not error.definite:
            return Ending.UNKNOWN
        return Ending.OVERTAKEN if self._has_written else Ending.REFUSED

    def _ask(self, message: FromOperator) -> None:
        self._outbox.send(message)

    def _has_passed(self, refusal: Refusal) -> bool:
        """Note the term that a node knows; whether it is a later one than this procedure's."""
        if not is_sane_term(refusal.known_term, self.row.term):
            return False
        self.known = max(self.known, refusal.known_term)
        return refusal.known_term > self.row.term


def is_sane_term(known: Term, term: Term) -> bool:
    """Tell a term that may have been given from one that would use all of them up."""
    return 0 <= known <= term + limits.OPERATOR_TERM_JUMP_MAX
