"""What a node says is durable lies on its synced disk when it says so.

White box, at every message: a vote or an acknowledgement that is given too early shows at once,
not only when a crash happens to follow.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.raft.entries import HardState, RaftTerm
from tidelog.core.raft.messages import AppendAnswer, Message, VoteAnswer, VoteRequest
from tidelog.testing.shadow_log import ShadowLog
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "promises"


class Promises:
    """All votes that were given."""

    __slots__ = ("_votes",)

    def __init__(self) -> None:
        self._votes: dict[tuple[RaftTerm, NodeId], NodeId] = {}

    def on_message(self, message: Message, log: ShadowLog, synced: ShadowLog) -> None:
        """Check what a node is about to say against its memory and its disk."""
        match message:
            case VoteAnswer(source, target, term, granted):
                if granted:
                    self._check_vote(source, target, term, synced)
            case VoteRequest(source, _, term):
                self._check_vote(source, source, term, synced)
            case AppendAnswer():
                _check_match(message, log, synced)
            case _:
                pass

    def _check_vote(
        self, voter: NodeId, candidate: NodeId, term: RaftTerm, synced: ShadowLog
    ) -> None:
        if synced.hard_state != HardState(term, candidate):
            raise Violation(
                NAME,
                f"node {voter} votes for {candidate} in term {term}, its disk has"
                f" {synced.hard_state}",
            )
        first = self._votes.setdefault((term, voter), candidate)
        if first != candidate:
            raise Violation(
                NAME, f"node {voter} votes for {first} and for {candidate} in term {term}"
            )


def _check_match(answer: AppendAnswer, log: ShadowLog, synced: ShadowLog) -> None:
    term = log.term_of(answer.match)
    if synced.hard_state.term < answer.term or (
        term is not None and not synced.holds(answer.match, term)
    ):
        raise Violation(
            NAME,
            f"node {answer.source} acknowledges index {answer.match} in term {answer.term}, its"
            f" disk is in {synced.hard_state} and ends at {synced.last_index}",
        )
