"""Machines, reports and commits in as few words as the tests of the order layer need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.core.order.commands import (
    CreateTopic,
    Cut,
    CutDecided,
    NewStream,
    Quorum,
    Report,
    StreamCommit,
    StreamStatus,
    UpdateStream,
    VersionedCommit,
)
from tidelog.core.order.machine import OrderMachine
from tidelog.types import Glsn, Llsn, NodeId, Revision, StreamId, Term, TopicId, Version

T1, T2 = TopicId(1), TopicId(2)
S1, S2, S3 = StreamId(1), StreamId(2), StreamId(3)
THREE = (1, 2, 3)


def nodes(numbers: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def new(*streams: int, on: Iterable[int] = (1,)) -> tuple[NewStream, ...]:
    """Streams to be, all with their replicas on the same nodes."""
    return tuple(NewStream(StreamId(stream), nodes(on)) for stream in streams)


def machine_of(
    *streams: int,
    on: Iterable[int] = (1,),
    topic: TopicId = T1,
    quorum: Quorum = Quorum.MAJORITY,
) -> OrderMachine:
    machine = OrderMachine()
    machine.step(CreateTopic(topic, new(*streams, on=on), "events", quorum))
    return machine


def report(
    stream: int,
    begin: int,
    length: int,
    *,
    node: int = 1,
    version: int = 0,
    term: int = 1,
    committed: int = 0,
) -> Report:
    return Report(
        NodeId(node),
        StreamId(stream),
        Term(term),
        Version(version),
        Llsn(begin),
        length,
        Llsn(committed),
    )


def now(machine: OrderMachine, stream: int, length: int, *, node: int = 1) -> Report:
    """What a replica reports that has applied all cuts."""
    order = machine.stream(StreamId(stream))
    return report(
        stream, order.llsn_end, length, node=node, version=machine.version, term=order.term
    )


def feed(machine: OrderMachine, *reports: Report) -> None:
    for each in reports:
        assert machine.step(each) == []


def cut(machine: OrderMachine, *reports: Report) -> CutDecided | None:
    """Report, then cut; what was decided is also checked at full length."""
    feed(machine, *reports)
    pending = machine.has_pending
    effects = machine.step(Cut())
    machine.validate()
    assert len(effects) == pending, "has_pending tells whether a cut orders anything"
    return effects[0] if effects else None


def cut_all(machine: OrderMachine, stream: int, length: int) -> CutDecided:
    """Let all replicas of a stream report that many new entries, and order them."""
    ensemble = machine.stream(StreamId(stream)).ensemble
    decided = cut(machine, *(now(machine, stream, length, node=node) for node in ensemble))
    assert decided is not None
    return decided


def acknowledge(machine: OrderMachine, stream: int, *replicas: int) -> None:
    """Let replicas report that they have applied all cuts, and have nothing new."""
    feed(machine, *(now(machine, stream, 0, node=node) for node in replicas))


def commit(
    stream: int, high: int, glsn: int, llsn: int, length: int, *, topic: int = 1, term: int = 1
) -> StreamCommit:
    return StreamCommit(
        TopicId(topic), StreamId(stream), Glsn(high), Glsn(glsn), Llsn(llsn), length, Term(term)
    )


def decided(version: int, *commits: StreamCommit) -> CutDecided:
    return CutDecided(Version(version), commits)


def glsns(cut: CutDecided | None) -> dict[int, tuple[int, int]]:
    """First and last GLSN for each stream of a cut."""
    commits = cut.commits if cut is not None else ()
    return {commit.stream: (commit.glsn_begin, commit.glsn_end - 1) for commit in commits}


def missed(machine: OrderMachine, stream: int, version: int) -> list[tuple[int, int, int]] | None:
    """Version, first and last GLSN of each commit that a replica has missed; None: forgotten."""
    commits = machine.commits_after(StreamId(stream), Version(version))
    return None if commits is None else [_summary(commit) for commit in commits]


def _summary(versioned: VersionedCommit) -> tuple[int, int, int]:
    commit = versioned.commit
    return versioned.version, commit.glsn_begin, commit.glsn_end - 1


def update(
    machine: OrderMachine,
    stream: int,
    *,
    revision: int | None = None,
    term: int | None = None,
    on: Iterable[int] | None = None,
    leader: int | None = None,
    status: StreamStatus | None = None,
    plan: bytes | None = None,
    joining: Mapping[int, int] | None = None,
) -> UpdateStream:
    """The operator's write of a stream, with what is not named as it stands."""
    order = machine.stream(StreamId(stream))
    return UpdateStream(
        order.stream,
        order.revision if revision is None else Revision(revision),
        order.term if term is None else Term(term),
        order.ensemble if on is None else nodes(on),
        order.leader if leader is None else NodeId(leader),
        order.status if status is None else status,
        order.plan if plan is None else plan,
        tuple((NodeId(node), Version(version)) for node, version in (joining or {}).items()),
    )
