"""A stream whose operator is the test: it fences, elects and reconfigures, and writes the row.

The metadata repository is a real ``OrderMachine``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.core.replica.protocol.replicas import (
    OPERATOR,
    STREAM,
    Answer,
    Member,
    Replicas,
    entry,
    nodes,
    of,
    stored,
)
from tidelog.core.order.commands import CreateTopic, Cut, NewStream, Quorum, UpdateStream
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.messages import (
    AbortRequest,
    AddFollowerRequest,
    AddFollowerResponse,
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    ChangeKind,
    CommitRequest,
    DropRequest,
    FenceRequest,
    FenceResponse,
    FollowerHead,
    FromOperator,
    Message,
    PrepareRequest,
    PrepareResponse,
    Refusal,
    Role,
    SnapshotRequest,
    SnapshotResponse,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.types import NO_NODE, NodeId, Term, TopicId

__all__ = ["OPERATOR", "STREAM", "Group", "Member", "entry", "nodes", "of", "stored"]


class Group(Replicas):
    """Replicas, and the stream's row."""

    def __init__(
        self,
        *ensemble: int,
        spares: Sequence[int] = (),
        quorum: Quorum = Quorum.MAJORITY,
        options: ReplicaOptions | None = None,
    ) -> None:
        super().__init__(*ensemble, *spares, options=options)
        self.quorum = quorum
        self.had_leader = False
        self.order = OrderMachine()
        new = NewStream(STREAM, nodes(*ensemble))
        self.order.step(CreateTopic(TopicId(1), (new,), quorum=quorum))

    # -- the metadata repository -------------------------------------------------------------

    @property
    def row(self) -> StreamOrder:
        return self.order.stream(STREAM)

    def write_row(
        self,
        *,
        term: int | None = None,
        ensemble: Iterable[int] | None = None,
        leader: int = NO_NODE,
        plan: bytes = b"",
    ) -> None:
        """Write the stream's row, as who has read it just now."""
        row = self.row
        update = UpdateStream(
            STREAM,
            row.revision,
            row.term if term is None else Term(term),
            row.ensemble if ensemble is None else nodes(*ensemble),
            NodeId(leader),
            row.status,
            plan,
        )
        self.order.step(update)
        self.order.validate()

    def report(self, *numbers: int) -> None:
        """Have replicas report, or all; who is silent says nothing."""
        for number in numbers or self.alive:
            report = self[number].report()
            if report is not None:
                self.witness.check_report(number, report, self.members[number].disk)
                self.order.step(report)

    def cut(self) -> bool:
        """Decide a cut; tell whether there was anything to order."""
        return bool(self.order.step(Cut()))

    def tell_cuts(self, *numbers: int) -> None:
        """Tell replicas of the ensemble what was cut since the version that they know."""
        for number in numbers or self.alive:
            if number in self.row.ensemble:
                self._tell_cuts(number)

    def _tell_cuts(self, number: int) -> None:
        replica = self[number]
        commits = self.order.commits_after(STREAM, replica.version)
        if commits is None:
            replica.fall_behind(self.order.version)
        else:
            replica.commit(commits, self.order.version)
        self.collect(number)

    def order_all(self) -> None:
        """Deliver all, and order all that can be, until nothing changes."""
        for _ in range(10):
            self.deliver()
            self.report()
            had_any = self.cut()
            self.tell_cuts()
            self.deliver()
            if not had_any:
                return
        raise AssertionError("there is always something to order")

    # -- the operator, played by hand --------------------------------------------------------

    def ask(self, request: FromOperator) -> list[Message]:
        """Send a request past the wire; return what the node answers at once."""
        self.step(request)
        return self.take_messages(of(source=request.target, target=OPERATOR))

    def answer(self, request: FromOperator, kind: type[Answer]) -> Answer:
        """Send a request that is answered by one message of a kind."""
        answers = self.ask(request)
        assert len(answers) == 1, f"{request} is answered by {answers}"
        assert isinstance(answers[0], kind), f"{request} is answered by {answers[0]}"
        return answers[0]

    def refusal(self, request: FromOperator) -> Refusal:
        return self.answer(request, Refusal)

    def fence_request(self, number: int, term: int) -> FenceRequest:
        return FenceRequest(
            OPERATOR, NodeId(number), STREAM, Term(term), is_first=not self.had_leader
        )

    def fence(self, number: int, term: int) -> FollowerHead:
        """Fence a node that answers at once."""
        answer = self.answer(self.fence_request(number, term), FenceResponse)
        return FollowerHead(answer.source, answer.head, answer.is_complete)

    def lead_request(
        self,
        number: int,
        term: int,
        *followers: FollowerHead,
        ensemble: Iterable[int] | None = None,
    ) -> BecomeLeaderRequest:
        members = self.row.ensemble if ensemble is None else nodes(*ensemble)
        others = tuple(each for each in followers if each.node != number)
        return BecomeLeaderRequest(
            OPERATOR, NodeId(number), STREAM, Term(term), members, self.quorum, others
        )

    def elect(self, leader: int, *others: int, ensemble: Iterable[int] | None = None) -> int:
        """Hold an election in which these nodes answer; return the term.  Messages wait.

        The first one reaches all nodes, but the operator hears only these: so all are complete.
        """
        term = self.row.term + 1
        self.write_row(term=term)
        heads = [self.fence(number, term) for number in (leader, *others)]
        if not self.had_leader:
            for number in self.row.ensemble:
                self.fence(number, term)
        best = max(each.head for each in heads if each.is_complete)
        assert heads[0].head == best, f"{leader} is not the one to be elected: {heads}"
        request = self.lead_request(leader, term, *heads, ensemble=ensemble)
        self.answer(request, BecomeLeaderResponse)
        self.write_row(leader=leader, ensemble=ensemble)
        self.had_leader = True
        assert self[leader].role is Role.LEADER
        return term

    def add_follower(self, leader: int, follower: int) -> None:
        """Fence a node late, and have the leader add it."""
        term = self.row.term
        head = self.fence(follower, term)
        request = AddFollowerRequest(OPERATOR, NodeId(leader), STREAM, Term(term), head)
        assert self.answer(request, AddFollowerResponse).follower == follower

    def prepare_request(
        self, kind: ChangeKind, *, old: int = NO_NODE, new: int = NO_NODE, term: int | None = None
    ) -> PrepareRequest:
        at = self.row.term if term is None else term
        return PrepareRequest(
            OPERATOR, self.row.leader, STREAM, Term(at), kind, NodeId(old), NodeId(new)
        )

    def prepare(
        self, kind: ChangeKind, *, old: int = NO_NODE, new: int = NO_NODE
    ) -> PrepareResponse:
        """Write a new term, and have the leader prepare in it."""
        self.write_row(term=self.row.term + 1, leader=self.row.leader)
        return self.answer(self.prepare_request(kind, old=old, new=new), PrepareResponse)

    def snapshot_request(self, new: int, prepared: PrepareResponse) -> SnapshotRequest:
        return SnapshotRequest(
            OPERATOR,
            NodeId(new),
            STREAM,
            prepared.term,
            prepared.reign,
            prepared.source,
            prepared.head,
        )

    def synchronise(self, new: int, prepared: PrepareResponse) -> EntryId:
        """Have the new node synchronise, and wait for it; return its head."""
        assert not self.ask(self.snapshot_request(new, prepared))
        for _ in range(50):
            self.deliver()
            answers = self.take_messages(of(SnapshotResponse, source=new))
            if answers:
                answer = answers[0]
                assert isinstance(answer, SnapshotResponse)
                return answer.head
            self.tick()
        raise AssertionError(f"node {new} does not come to an end")

    def commit_request(
        self, kind: ChangeKind, head: EntryId, *, old: int = NO_NODE, new: int = NO_NODE
    ) -> CommitRequest:
        row = self.row
        return CommitRequest(
            OPERATOR, row.leader, STREAM, row.term, kind, NodeId(old), NodeId(new), head
        )

    def abort_request(self) -> AbortRequest:
        return AbortRequest(OPERATOR, self.row.leader, STREAM, self.row.term)

    def drop_request(self, number: int) -> DropRequest:
        return DropRequest(OPERATOR, NodeId(number), STREAM, self.row.term)
