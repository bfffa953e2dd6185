"""The roles of a node, how one follows another, and which messages bring that about.

What a node has in every role is its ``State``; what it has only in one lives in an object that is
made when the role begins and dropped when it ends.

Invariants:
  N1  a leader has a leadership, a candidate a candidacy, a follower with a leader a following,
      and no node has two of them
  N2  who leads or stands for election has voted for itself in its term
  N3  a vote leaves the node only once it is durable, and only in its own term
  N4  only a voter stands for election, or who was one until a change that may not be committed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tidelog.core.raft.election import Candidacy, is_up_to_date, may_vote
from tidelog.core.raft.entries import NO_INDEX, RaftTerm
from tidelog.core.raft.following import Following
from tidelog.core.raft.leadership import Leadership
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRefusal,
    AppendRequest,
    CommitNotice,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    ReadAnswer,
    ReadRequest,
    SnapshotAnswer,
    SnapshotChunk,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from tidelog.core.raft.options import Ignored, Role
from tidelog.core.raft.soundness import is_nonsense
from tidelog.core.raft.state import State
from tidelog.invariants import check
from tidelog.types import NO_NODE, NodeId

Draw: TypeAlias = Callable[[int], int]
"""``draw(n)`` is a number from 0 to n - 1: all the chance that a node knows."""

FromLeader: TypeAlias = AppendRequest | Heartbeat | CommitNotice | SnapshotChunk
"""What only the leader of a term sends."""

ToLeader: TypeAlias = AppendAnswer | AppendRefusal | HeartbeatAnswer | SnapshotAnswer | ReadRequest
"""What only the leader of a term is sent."""


class Roles:
    """What a node is to its group, and what makes it another."""

    __slots__ = (
        "_draw",
        "_elapsed",
        "_state",
        "_timeout",
        "_vote_owed",
        "candidacy",
        "following",
        "leadership",
    )

    def __init__(self, state: State, draw: Draw) -> None:
        self._state = state
        self._draw = draw
        self.leadership: Leadership | None = None
        self.candidacy: Candidacy | None = None
        self.following: Following | None = None
        self._vote_owed = False
        self._elapsed = 0
        self._timeout = 0
        self._restart_timer()

    @property
    def role(self) -> Role:
        """What it is to the group at the moment."""
        if self.leadership is not None:
            return Role.LEADER
        if self.candidacy is not None:
            return Role.PRE_CANDIDATE if self.candidacy.pre_vote else Role.CANDIDATE
        return Role.FOLLOWER

    @property
    def leader(self) -> NodeId:
        """The leader of its term, if known."""
        if self.leadership is not None:
            return self._state.node
        return self.following.leader if self.following is not None else NO_NODE

    # --- time ---

    def tick(self) -> None:
        """Let one unit of time pass."""
        self._elapsed += 1
        if self.leadership is not None:
            if not self.leadership.tick():
                self._follow_nobody()
            return
        if self.following is not None:
            self.following.tick()
        if self._elapsed >= self._timeout and self._state.may_lead:
            self._ask_for_pre_votes()

    def _restart_timer(self) -> None:
        """Wait again for a leader; how long is chance, so that elections seldom collide."""
        ticks = self._state.options.election_ticks
        self._elapsed = 0
        self._timeout = ticks + self._draw(ticks)

    @property
    def _hears_leader(self) -> bool:
        """Whether there is no reason for an election: a leader was heard, or is this node."""
        if self.leadership is not None:
            return True
        return self.following is not None and self._elapsed < self._state.options.election_ticks

    # --- roles ---

    def _follow_nobody(self) -> None:
        """End whatever role there was."""
        if self.leadership is not None:
            self.leadership.resign()
            self._restart_timer()
        if self.following is not None:
            self.following.leave()
        self.leadership = self.candidacy = self.following = None

    def _follow(self, leader: NodeId) -> Following:
        """Follow the leader of this term; hearing of it puts off elections."""
        self._elapsed = 0
        if self.following is None:
            self._follow_nobody()
            self._restart_timer()
            self.following = Following(self._state, leader)
        return self.following

    def _ask_for_pre_votes(self) -> None:
        """Find out whether an election could be won."""
        self._follow_nobody()
        self._restart_timer()
        self.candidacy = Candidacy(self._state, pre_vote=True)
        self.candidacy.ask()
        self._count_votes(self.candidacy)

    def _stand_for_election(self, *, transfer: bool) -> None:
        """Begin a new term and vote for ourselves; others are asked once that is durable."""
        check(self._state.may_lead, "N4: who is no voter stands for election")
        self._follow_nobody()
        self._restart_timer()
        self._move_to(RaftTerm(self._state.term + 1), vote=self._state.node)
        self.candidacy = Candidacy(self._state, pre_vote=False, transfer=transfer)

    def _lead(self) -> None:
        check(self._state.vote == self._state.node, "N2: the leader did not vote for itself")
        self._follow_nobody()
        self._restart_timer()
        self.leadership = Leadership(self._state)

    def retire_if_removed(self) -> None:
        """Stop leading a group that we left, once that is committed and said."""
        leadership = self.leadership
        if leadership is not None and leadership.is_over:
            leadership.flush()
            self._follow_nobody()

    def _move_to(self, term: RaftTerm, vote: NodeId = NO_NODE) -> None:
        """Go to a later term."""
        self._state.set_term(term, vote)
        self._vote_owed = False

    def settle(self) -> None:
        """Do what had to wait until something was durable."""
        state = self._state
        if self._vote_owed and state.writes.hard_state_durable:
            self._vote_owed = False
            state.messages.append(VoteAnswer(state.node, state.vote, state.term, True))
        if self.leadership is not None:
            self.leadership.advance_commit()
            self.retire_if_removed()
        elif self.following is not None:
            self.following.acknowledge_durable()
        elif self.candidacy is not None:
            self._ask_if_durable(self.candidacy)

    def _ask_if_durable(self, candidacy: Candidacy) -> None:
        """Ask for votes once our own cannot be forgotten."""
        if not candidacy.asked and self._state.writes.hard_state_durable:
            candidacy.ask()
            self._count_votes(candidacy)

    # --- messages ---

    def step(self, message: Message) -> None:
        """Take in a message; one that makes no sense is ignored and counted."""
        state = self._state
        if message.target != state.node or message.source == state.node:
            state.ignore(Ignored.WRONG_TARGET)
        elif is_nonsense(message):
            state.ignore(Ignored.NONSENSE)
        elif self._accept_term(message):
            self._handle(message)

    def _handle(self, message: Message) -> None:
        match message:
            case AppendRequest() | Heartbeat() | CommitNotice() | SnapshotChunk():
                self._on_word_of_leader(message)
            case (
                AppendAnswer()
                | HeartbeatAnswer()
                | AppendRefusal()
                | SnapshotAnswer()
                | ReadRequest()
            ):
                self._on_word_to_leader(message)
            case PreVoteRequest():
                self._on_pre_vote_request(message)
            case VoteRequest():
                self._on_vote_request(message)
            case PreVoteAnswer() | VoteAnswer():
                self._on_vote_answer(message)
            case TimeoutNow():
                self._on_timeout_now()
            case ReadAnswer():
                self._on_read_answer(message)

    def _accept_term(self, message: Message) -> bool:
        """Go to the message's term if it is later; say whether the message still counts."""
        term = self._state.term
        if message.term == term:
            return True
        if message.term < term:
            self._answer_old_term(message)
            return False
        if isinstance(message, PreVoteRequest | VoteRequest) and self._protects_leader(message):
            self._state.ignore(Ignored.PROTECTED_LEADER)
            return False
        if not is_hypothetical(message):
            self._follow_nobody()
            self._move_to(message.term)
        return True

    def _protects_leader(self, request: PreVoteRequest | VoteRequest) -> bool:
        """Whether a leader that is heard is kept against a node that does not hear it."""
        by_leader = isinstance(request, VoteRequest) and request.transfer
        return self._hears_leader and not by_leader

    def _answer_old_term(self, message: Message) -> None:
        """Let a deposed leader or a hopeless candidate find out which term it is."""
        state, source = self._state, message.source
        match message:
            case AppendRequest() | Heartbeat() | CommitNotice() | SnapshotChunk():
                state.messages.append(
                    AppendRefusal(state.node, source, state.term, NO_INDEX, NO_INDEX)
                )
            case PreVoteRequest():
                state.messages.append(PreVoteAnswer(state.node, source, state.term, False))
            case VoteRequest():
                state.messages.append(VoteAnswer(state.node, source, state.term, False))
            case _:
                pass
        state.ignore(Ignored.OLD_TERM)

    def _on_pre_vote_request(self, request: PreVoteRequest) -> None:
        state = self._state
        granted = request.term > state.term and is_up_to_date(state, request)
        term = request.term if granted else state.term
        state.messages.append(PreVoteAnswer(state.node, request.source, term, granted))

    def _on_vote_request(self, request: VoteRequest) -> None:
        state = self._state
        if self.leader == NO_NODE and may_vote(state, request):
            self._follow_nobody()  # What we asked for before gives way.
            state.set_term(state.term, request.source)
            self._elapsed = 0
            self._vote_owed = True
            self.settle()
        else:
            state.messages.append(VoteAnswer(state.node, request.source, state.term, False))

    def _on_vote_answer(self, answer: PreVoteAnswer | VoteAnswer) -> None:
        candidacy = self.candidacy
        if candidacy is None or not candidacy.expects(answer):
            self._state.ignore(Ignored.LATE)
        else:
            candidacy.count(answer.source, granted=answer.granted)
            self._count_votes(candidacy)

    def _count_votes(self, candidacy: Candidacy) -> None:
        if candidacy.lost:
            self._follow_nobody()
        elif not candidacy.won:
            return
        elif candidacy.pre_vote:
            self._stand_for_election(transfer=False)
        else:
            self._lead()

    def _on_timeout_now(self) -> None:
        if self.leadership is None and self._state.may_lead:
            self._stand_for_election(transfer=True)
        else:
            self._state.ignore(Ignored.LATE)

    def _on_word_of_leader(self, message: FromLeader) -> None:
        """Follow the sender, unless the term has another leader."""
        if self.leader not in (NO_NODE, message.source):
            self._state.ignore(Ignored.SECOND_LEADER)
            return
        following = self._follow(message.source)
        match message:
            case AppendRequest():
                following.append(message)
            case Heartbeat():
                following.heartbeat(message)
            case CommitNotice():
                following.advance(message)
            case SnapshotChunk():
                following.receive(message)

    def _on_word_to_leader(self, message: ToLeader) -> None:
        leadership = self.leadership
        if leadership is None:
            self._state.ignore(Ignored.LATE)
            return
        match message:
            case AppendAnswer():
                leadership.acknowledge(message)
                self.retire_if_removed()
            case HeartbeatAnswer():
                leadership.answer_heartbeat(message)
            case AppendRefusal():
                leadership.replication.refuse(message)
            case SnapshotAnswer():
                leadership.replication.advance_snapshot(message)
            case ReadRequest():
                leadership.read_for(message)

    def _on_read_answer(self, answer: ReadAnswer) -> None:
        if self.following is None:
            self._state.ignore(Ignored.LATE)
        else:
            self.following.answer(answer)

    # --- checks ---

    def validate(self) -> None:
        """Check every invariant, at the cost of looking at the whole log."""
        state = self._state
        parts = (self.leadership, self.candidacy, self.following)
        check(sum(part is not None for part in parts) <= 1, "N1: a node has two roles")
        if self.role in (Role.CANDIDATE, Role.LEADER):
            check(state.vote == state.node, "N2: a candidate did not vote for itself")
        flaw = state.flaw()
        if flaw is None and self.leadership is not None:
            flaw = self.leadership.flaw()
        if flaw is None and self.following is not None:
            flaw = self.following.flaw()
        check(flaw is None, flaw or "")


def is_hypothetical(message: Message) -> bool:
    """Whether a message speaks of a term that nobody has begun."""
    return isinstance(message, PreVoteRequest) or (
        isinstance(message, PreVoteAnswer) and message.granted
    )
