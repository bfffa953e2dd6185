"""Elections: who may ask for votes, who gives one, and when they are enough.

A node that hears no leader first asks whether it could win, in no term of its own (a pre-vote), so
that a node that was cut off raises no terms when it comes back.  It asks for votes only once its
new term and its vote for itself are durable: a vote given for a log that a crash then shortened
could otherwise be counted in the same term.

Invariants:
  E1  a vote counts once, and only that of a voter
  E2  a vote is given only to a log that is at least as up to date as the voter's own: higher term
      of the last entry, or the same and no shorter
"""

from __future__ import annotations

from tidelog.core.raft.entries import RaftTerm
from tidelog.core.raft.membership import has_quorum
from tidelog.core.raft.messages import (
    PreVoteAnswer,
    PreVoteRequest,
    VoteAnswer,
    VoteRequest,
)
from tidelog.core.raft.state import State
from tidelog.types import NO_NODE, NodeId


def is_up_to_date(state: State, request: PreVoteRequest | VoteRequest) -> bool:
    """Whether the other log has all that may be committed, as far as ours can tell (E2)."""
    ours = (state.log.last_term, state.log.last_index)
    return (request.last_term, request.last_index) >= ours


def may_vote(state: State, request: VoteRequest) -> bool:
    """Whether our vote of this term may go to the sender.

    Whether we are a voter is not asked: our membership may be behind, and it is the candidate that
    counts only its voters.
    """
    return state.vote in (NO_NODE, request.source) and is_up_to_date(state, request)


class Candidacy:
    """The votes for one node, in a pre-vote or in an election."""

    __slots__ = ("_granted", "_state", "asked", "pre_vote", "transfer")

    def __init__(self, state: State, *, pre_vote: bool, transfer: bool = False) -> None:
        self._state = state
        self.pre_vote = pre_vote
        self.transfer = transfer
        self.asked = False
        """The others were asked; before that, our own vote is on its way to the disk."""
        self._granted: dict[NodeId, bool] = {}

    def ask(self) -> None:
        """Count our own vote, and ask the other voters for theirs."""
        state = self._state
        self.asked = True
        self.count(state.node, granted=True)
        for voter in state.membership.voters:
            if voter != state.node:
                state.messages.append(self._request(voter))

    def _request(self, voter: NodeId) -> PreVoteRequest | VoteRequest:
        state, log = self._state, self._state.log
        last_index, last_term = log.last_index, log.last_term
        if self.pre_vote:
            term = RaftTerm(state.term + 1)
            return PreVoteRequest(state.node, voter, term, last_index, last_term)
        return VoteRequest(state.node, voter, state.term, last_index, last_term, self.transfer)

    def expects(self, answer: PreVoteAnswer | VoteAnswer) -> bool:
        """Whether this answers what was asked."""
        if isinstance(answer, VoteAnswer):
            return self.asked and not self.pre_vote
        own = self._state.term
        return self.pre_vote and answer.term == (own + 1 if answer.granted else own)

    def count(self, voter: NodeId, *, granted: bool) -> None:
        """Note what a voter said; its first word stands (E1)."""
        self._granted.setdefault(voter, granted)

    @property
    def won(self) -> bool:
        """Whether a majority is for us."""
        return self._has_quorum(granted=True)

    @property
    def lost(self) -> bool:
        """Whether a majority is against us."""
        return self._has_quorum(granted=False)

    def _has_quorum(self, *, granted: bool) -> bool:
        agreed = [voter for voter, word in self._granted.items() if word is granted]
        return has_quorum(self._state.membership.voters, agreed)
