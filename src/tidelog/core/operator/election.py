"""One election of a stream's leader.

Input: answers of the fenced nodes, outcomes of writes, ticks.  Output: fence and become-leader
requests, writes of the stream's row.

Invariants:
  E1  nobody is fenced before the term is this election's own (P2)
  E2  the leader is a complete one of the final ensemble with the highest head of these; it is
      chosen when a majority of the fencing ensemble, or of each one that is counted on, is fenced
      and vouches for it: who is complete does, and who is not does if the leader's head reaches
      all that it ever acknowledged
  E3  one node is asked to lead, once and for all: if it does not, another term begins
  E4  nobody is asked to lead while the row says that an empty replica is complete
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import TypeAlias

from tidelog.core.operator.options import Ignored, OperatorOptions
from tidelog.core.operator.output import Outbox
from tidelog.core.operator.plan import Ensemble
from tidelog.core.operator.procedure import Ending, Procedure, Suspects
from tidelog.core.operator.requests import add_follower, address, ask_status, fence
from tidelog.core.operator.row import Row, with_a_leader_to_be, with_leader, with_new_term
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    FenceResponse,
    FollowerHead,
    Reason,
    Refusal,
    Role,
    StatusResponse,
    ToOperator,
)
from tidelog.invariants import check
from tidelog.types import NO_NODE, NodeId, Term

Leads: TypeAlias = Callable[[NodeId], int]
"""How many streams a node leads; this one has no leader meanwhile."""


class Stage(Enum):
    """What an election waits for."""

    TERM = "the write of the term"
    FENCING = "a majority of the fencing ensemble"
    CLAIM = "the write that somebody may lead"
    LEADING = "the chosen one"
    RESULT = "the write of the result"


class Election(Procedure):
    """See the module's text."""

    __slots__ = (
        "_behind",
        "_burden",
        "_chosen",
        "_fencing",
        "_grace",
        "_had",
        "_heads",
        "_involved",
        "_suspects",
        "_told",
        "stage",
    )

    def __init__(
        self,
        row: Row,
        options: OperatorOptions,
        outbox: Outbox,
        *,
        known: Term,
        burden: Leads,
        suspects: Suspects,
        request: int | None = None,
    ) -> None:
        super().__init__(row, options, outbox, known, request)
        self.stage = Stage.TERM
        self._burden = burden
        self._suspects = suspects
        self._heads: dict[NodeId, FollowerHead] = {}
        self._behind: dict[NodeId, None] = {}
        """Who misses cuts."""
        self._had: dict[NodeId, EntryId] = {}
        """Of those who are not complete: all that they ever acknowledged lies at or below this."""
        self._chosen = NO_NODE
        self._told: tuple[FollowerHead, ...] = ()
        """The followers that the chosen one was told of, or will be when it is asked."""
        self._grace = options.grace_ticks
        self._involved = row.involved
        following = with_new_term(row, known)
        self._fencing = following.fencing
        self._write(following, self._fence)

    @property
    def leaving(self) -> tuple[NodeId, ...]:
        """Who is not of the final ensemble, but was, or was to be."""
        if self.ending is not Ending.DONE:
            return ()
        return tuple(node for node in self._involved if node not in self.row.ensemble)

    # -- stages ---------------------------------------------------------------------------------

    def _fence(self) -> None:
        self.stage = Stage.FENCING
        self._send()

    def _wait(self) -> None:
        if self.stage is Stage.LEADING:
            if self._is_impatient:
                self.end(Ending.UNLED)
        elif self._may_choose:
            self._grace -= 1
            self._choose_if_due()
        elif self._is_impatient and not self._can_succeed:
            # Let others have this one's place; while a majority is alive, no other term would help.
            self.end(Ending.STALLED)

    @property
    def _can_succeed(self) -> bool:
        return self.row.can_elect([node for node in self._fencing if not self._suspects(node)])

    def _choose_if_due(self) -> None:
        """Wait a little for those whose answers are about to come."""
        if self._may_choose and (self._grace <= 0 or not self._late):
            self._choose()

    @property
    def _late(self) -> list[NodeId]:
        """Who should answer and has not."""
        return [
            node for node in self._fencing if node not in self._heads and not self._suspects(node)
        ]

    @property
    def _may_choose(self) -> bool:
        able = candidates(self._heads, self.row.final)
        if not able:
            return False
        best = max(each.head for each in able)
        return has_majority(self._heads, self._had, best, self.row)

    def _choose(self) -> None:
        check(self._chosen == NO_NODE, "E3: a second leader would be chosen in one term")
        self._chosen = choose_leader(self._heads, self._behind, self.row.final, self._burden)
        if self.row.is_first:
            self.stage = Stage.CLAIM
            self._write(with_a_leader_to_be(self.row), self._lead)
        else:
            self._lead()

    def _lead(self) -> None:
        check(not self.row.is_first, "E4: an empty replica would still be complete")
        self.stage = Stage.LEADING
        self._elapsed = 0
        self._told = tuple(self._followers())
        self._send()

    def _write_result(self) -> None:
        self.stage = Stage.RESULT
        self._write(with_leader(self.row, self._chosen), self._complete, is_last=True)
        self._tell_of_late_ones()

    def _tell_of_late_ones(self) -> None:
        """Tell the leader of those who were fenced after it had been asked."""
        for follower in self._followers():
            if follower not in self._told:
                self._ask(add_follower(self._outbox.node, self.row, self._chosen, follower))
        self._told = tuple(self._followers())

    def _complete(self) -> None:
        self.end(Ending.DONE)

    @property
    def _is_leader_lost(self) -> bool:
        return self._suspects(self._chosen)

    def _followers(self) -> list[FollowerHead]:
        """Those fenced by now who belong to the leader."""
        return [
            head
            for node, head in sorted(self._heads.items())
            if node in self.row.final and node != self._chosen
        ]

    # -- messages -------------------------------------------------------------------------------

    def _send(self) -> None:
        if self.stage is Stage.LEADING:
            self._ask(self._become_leader())
        if self.stage is Stage.RESULT:
            self._ask(ask_status(self._outbox.node, self.row, self._chosen))
        for node in self._fencing:
            if node not in self._heads:
                self._ask(fence(self._outbox.node, self.row, node))

    def _become_leader(self) -> BecomeLeaderRequest:
        return BecomeLeaderRequest(
            *address(self._outbox.node, self.row, self._chosen),
            ensemble=self.row.final,
            quorum=self.row.quorum,
            followers=self._told,
        )

    def _take(self, message: ToOperator) -> Ignored | None:
        match message:
            case FenceResponse():
                return self._on_fenced(message)
            case BecomeLeaderResponse():
                return self._on_leading(message)
            case Refusal():
                return self._on_refusal(message)
            case StatusResponse():
                return self._on_status(message)
        return Ignored.NOT_ASKED

    def _take_while_writing(self, message: ToOperator) -> Ignored | None:
        # The answers of the late minority count too: they are kept until the leader leads.
        if isinstance(message, FenceResponse) and self.stage is not Stage.TERM:
            return self._on_fenced(message)
        return super()._take_while_writing(message)

    def _on_fenced(self, answer: FenceResponse) -> Ignored | None:
        if not is_of_ensemble(answer.source, self._fencing):
            return Ignored.NOT_ASKED
        if answer.source in self._heads:
            return Ignored.REPEATED
        self._heads[answer.source] = FollowerHead(answer.source, answer.head, answer.is_complete)
        if answer.had is not None:
            self._had[answer.source] = answer.had
        if answer.is_behind:
            self._behind[answer.source] = None
        self._note_version(answer.source, answer.version)
        if self.stage is Stage.FENCING:
            self._choose_if_due()
        elif self.stage is Stage.RESULT:
            self._tell_of_late_ones()
        return None

    def _on_leading(self, answer: BecomeLeaderResponse) -> Ignored | None:
        if self.stage is not Stage.LEADING or answer.source != self._chosen:
            return Ignored.NOT_ASKED
        self._write_result()
        return None

    def _on_status(self, status: StatusResponse) -> Ignored | None:
        if self.stage is Stage.RESULT and status.source == self._chosen:
            if status.role is not Role.LEADER:
                self.end(Ending.UNLED)
            return None
        return Ignored.LATE

    def _on_refusal(self, refusal: Refusal) -> Ignored | None:
        if not is_of_ensemble(refusal.source, self._fencing):
            return Ignored.NOT_ASKED
        if self._has_passed(refusal):
            self.end(Ending.UNLED)
            return None
        # A fence request that arrives twice is refused by who has a role by now.
        is_final = refusal.source == self._chosen and refusal.reason is not Reason.ROLE
        if self.stage is not Stage.LEADING or not is_final:
            return Ignored.LATE
        self.end(Ending.UNLED)
        return None


# -- choices -------------------------------------------------------------------------------------


def is_of_ensemble(node: NodeId, ensemble: Ensemble) -> bool:
    """Whether the answer of a node counts."""
    return node in ensemble


def has_majority(
    heads: Mapping[NodeId, FollowerHead],
    had: Mapping[NodeId, EntryId],
    best: EntryId,
    row: Row,
) -> bool:
    """Whether enough of those fenced vouch for a leader whose head is ``best`` (E2)."""
    vouching = [head.node for head in heads.values() if vouches(head, had.get(head.node), best)]
    return row.can_elect(vouching)


def vouches(answer: FollowerHead, had: EntryId | None, best: EntryId) -> bool:
    """Whether a node acknowledged nothing that a leader with this head could lack.

    A node that gave its log up counts like one whose head is still what it was, but cannot lead.
    """
    return answer.is_complete or (had is not None and had <= best)


def candidates(heads: Mapping[NodeId, FollowerHead], final: Ensemble) -> list[FollowerHead]:
    """Return who may lead: complete, and there when the election is over (E2)."""
    return [head for node, head in sorted(heads.items()) if head.is_complete and node in final]


def choose_leader(
    heads: Mapping[NodeId, FollowerHead],
    behind: Collection[NodeId],
    final: Ensemble,
    burden: Leads,
) -> NodeId:
    """Return the candidate with the highest head; of equals, the one that leads the least.

    Nobody fills up a leader: who misses cuts comes after its equals.
    """
    able = candidates(heads, final)
    highest = max(each.head for each in able)
    best = [each.node for each in able if each.head == highest]
    return min(best, key=lambda node: (node in behind, burden(node), node))
