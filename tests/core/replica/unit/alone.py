"""One replica with its disk, and nobody else: the test is all its peers."""

from __future__ import annotations

from tests.core.replica.protocol.disk import Disk
from tests.core.replica.protocol.harness import stored
from tidelog.core.order.commands import Quorum, StreamCommit, VersionedCommit
from tidelog.core.replica.entries import NO_ENTRY, NO_PRODUCER, Batch, EntryId
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    BecomeLeaderRequest,
    FenceRequest,
    FollowerHead,
    Message,
    ToReplica,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.replica.output import Output
from tidelog.core.replica.replica import Appended, Replica
from tidelog.types import Glsn, Llsn, NodeId, ProducerId, StreamId, Term, TopicId, Version

ME = NodeId(1)
LEADER = NodeId(2)
OPERATOR = NodeId(90)
STREAM = StreamId(1)


def entry(term: int, llsn: int) -> EntryId:
    return EntryId(Term(term), Llsn(llsn))


def batch(
    term: int,
    begin: int,
    count: int = 1,
    data: bytes = b"x",
    *,
    producer: int = NO_PRODUCER,
    sequence: int = 0,
    is_control: bool = False,
) -> Batch:
    return Batch(Term(term), Llsn(begin), count, data, ProducerId(producer), sequence, is_control)


def cut(
    version: int, llsn: int, length: int, *, glsn: int | None = None, term: int = 0
) -> VersionedCommit:
    """A cut of a topic with one stream, where GLSNs are LLSNs unless told otherwise."""
    begin = llsn if glsn is None else glsn
    mark = Glsn(begin + length - 1)
    part = StreamCommit(TopicId(1), STREAM, mark, Glsn(begin), Llsn(llsn), length, Term(term))
    return VersionedCommit(Version(version), part)


class Alone:
    """A replica, what it said, and its disk, which syncs at once unless it holds back."""

    def __init__(self, options: ReplicaOptions | None = None) -> None:
        self.options = options or ReplicaOptions()
        self.disk = Disk()
        self.sent: list[Message] = []
        self.outputs: list[Output] = []
        self.replica = self._new()

    def _new(self) -> Replica:
        return Replica(ME, STREAM, stored(self.disk.durable), self.disk, self.options)

    def restart(self) -> None:
        """Lose what is not durable, and start."""
        self.disk.crash()
        self.replica = self._new()

    def carry_out(self) -> None:
        """Do what the replica wants done."""
        while self.replica.has_output:
            output = self.replica.take()
            self.outputs.append(output)
            self.sent += output.messages
            if output.write is not None:
                self.disk.take(output.write)
            if not self.disk.holds_back:
                self.sync()

    def sync(self, count: int | None = None) -> None:
        """Make writes durable, and say so."""
        waiting = len(self.disk.waiting) if count is None else count
        if self.disk.waiting:
            self.replica.written(self.disk.sync(waiting))

    def step(self, *messages: ToReplica) -> list[Message]:
        """Deliver messages; return what the replica says then."""
        self.sent.clear()
        for message in messages:
            self.replica.step(message)
            self.carry_out()
        return list(self.sent)

    def tick(self, times: int = 1) -> list[Message]:
        self.sent.clear()
        for _ in range(times):
            self.replica.tick()
            self.carry_out()
        return list(self.sent)

    # -- stories that many tests begin with ----------------------------------------------------

    def fence(self, term: int, *, is_first: bool = True) -> list[Message]:
        return self.step(FenceRequest(OPERATOR, ME, STREAM, Term(term), is_first))

    def lead(
        self,
        term: int,
        *,
        ensemble: tuple[int, ...] = (1,),
        followers: tuple[FollowerHead, ...] = (),
        quorum: Quorum = Quorum.MAJORITY,
    ) -> list[Message]:
        """Be fenced and elected."""
        self.fence(term)
        members = tuple(map(NodeId, ensemble))
        return self.step(
            BecomeLeaderRequest(OPERATOR, ME, STREAM, Term(term), members, quorum, followers)
        )

    def add_entries(
        self, term: int, previous: EntryId, *batches: Batch, commit: int = 0, reign: int = 0
    ) -> list[Message]:
        """What the leader of a term sends."""
        return self.step(
            AddEntriesRequest(
                LEADER,
                ME,
                STREAM,
                Term(term),
                Term(reign or term),
                previous,
                batches,
                Llsn(commit),
            )
        )

    def follow(self, term: int, *batches: Batch, commit: int = 0) -> list[Message]:
        """Be fenced, and get the first entries of a leader."""
        self.fence(term)
        return self.add_entries(term, NO_ENTRY, *batches, commit=commit)

    def append(self, data: bytes, count: int = 1) -> int:
        """Append at a leader; return where it went, or 0 if it did not."""
        appended = self.replica.append(data, count)
        self.carry_out()
        return appended.llsn_begin if isinstance(appended, Appended) else 0
