"""A change that is repeated late undoes nothing that was answered in between (M5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from tests.core.metadata.cluster import TOPIC, Cluster, Storage
from tests.core.metadata.seen import naming, pausing, registering, unregistering
from tests.core.metadata.test_placements import move
from tidelog import limits
from tidelog.core.metadata.commands import Batch, Change, RegisterNode, Request
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import NodeReport, Share, ToStorage
from tidelog.core.metadata.repository import PeerMessage, Repository, RepositoryOptions
from tidelog.core.order.commands import (
    AddStreams,
    CreateTopic,
    NewStream,
    RetainTopic,
    StreamStatus,
    UpdateStream,
)
from tidelog.errors import BadOption, LogError, RevisionConflict
from tidelog.types import FIRST_REVISION, NO_NODE, Glsn, NodeId, StreamId, Term, TopicId

SPARE = 11


@dataclass
class Group:
    """A cluster in which what a follower shares with its leader can be repeated later."""

    snapshots: bool = False
    shared: list[Share] = field(default_factory=list)

    def __post_init__(self) -> None:
        entries = 1 if self.snapshots else 10_000
        options = RepositoryOptions(leader_collects=0, snapshot_entries=entries)
        self.cluster = Cluster(options=options)
        self.cluster.elect()
        self.cluster.arrives = self.note

    def note(self, message: PeerMessage | ToStorage | NodeReport) -> bool:
        if isinstance(message, Share):
            self.shared.append(message)
        return True

    @property
    def machine(self) -> MetadataMachine:
        return self.cluster.leader.machine

    @property
    def follower(self) -> Repository:
        leader = self.cluster.leader.node
        return next(node for node in self.cluster.nodes.values() if node.node != leader)

    def make(self, change: Change) -> LogError | None:
        return self.cluster.ask(change).error

    def make_by_sharing(self, change: Change) -> LogError | None:
        """Have a follower share it, so that the network can have it twice."""
        self.shared.clear()
        return self.cluster.ask(change, self.follower.node).error

    def restart(self) -> None:
        """All of it is as it was in the snapshots."""
        for node in list(self.cluster.nodes):
            assert self.cluster.disks[node].stored.snapshot.data, "the log was never compacted"
            self.cluster.crash(node)
            self.cluster.start(node)
        self.cluster.elect()

    def repeat(self) -> None:
        """What was shared comes once more, to whoever leads by now."""
        self.cluster.tick(5)
        changes = self.machine.changes
        for share in list(self.shared):
            leader = self.cluster.leader
            leader.step(replace(share, target=leader.node))
            self.cluster.settle()
        self.cluster.tick(5)
        assert self.shared
        assert self.machine.changes == changes, "what came late was made again"


Making = Callable[[MetadataMachine], Change]


@dataclass(frozen=True)
class Story:
    """What was there, what is repeated later, what was answered before that, and how to see it."""

    before: tuple[Making, ...]
    first: Making
    then: Making
    seen: Callable[[MetadataMachine], object]
    holds: object


def address_of(machine: MetadataMachine) -> object:
    return machine.nodes[NodeId(SPARE)].address if NodeId(SPARE) in machine.nodes else None


def name_of(machine: MetadataMachine) -> object:
    return machine.members[NodeId(9)].address if NodeId(9) in machine.members else None


def register(address: str) -> Making:
    return lambda machine: registering(machine, SPARE, address)


def unregister(machine: MetadataMachine) -> Change:
    return unregistering(machine, SPARE)


def name(address: str) -> Making:
    return lambda machine: naming(machine, 9, address)


def pause(*, is_paused: bool) -> Making:
    return lambda machine: pausing(machine, is_paused=is_paused)


STORIES = {
    "a removed node stays away": Story((), register("a"), unregister, address_of, None),
    "a node stays where it moved": Story((), register("a"), register("b"), address_of, "b"),
    "a node that came back stays": Story(
        (register("a"),), unregister, register("b"), address_of, "b"
    ),
    "operators go on": Story(
        (), pause(is_paused=True), pause(is_paused=False), lambda machine: machine.is_paused, False
    ),
    "operators stay paused": Story(
        (pause(is_paused=True),),
        pause(is_paused=False),
        pause(is_paused=True),
        lambda machine: machine.is_paused,
        True,
    ),
    "a forgotten member stays so": Story((), name("a"), name(""), name_of, None),
    "a member stays where it moved": Story((), name("a"), name("b"), name_of, "b"),
    "a member that came back stays": Story((name("a"),), name(""), name("b"), name_of, "b"),
}


@pytest.mark.parametrize("snapshots", [False, True], ids=["from the log", "from a snapshot"])
@pytest.mark.parametrize("story", STORIES)
def test_a_late_repetition_undoes_nothing(story: str, *, snapshots: bool) -> None:
    told = STORIES[story]
    group = Group(snapshots)
    for making in told.before:
        assert group.make(making(group.machine)) is None
    assert group.make_by_sharing(told.first(group.machine)) is None
    assert group.make(told.then(group.machine)) is None
    if snapshots:
        group.restart()
    assert told.seen(group.machine) == told.holds
    group.repeat()
    assert told.seen(group.machine) == told.holds


def test_what_was_refused_stays_refused_though_it_could_be_done_by_now() -> None:
    """Whoever asked was told so: a node that hosted something stays when it hosts nothing."""
    group = Group()
    group.cluster.with_streams(1)
    assert isinstance(group.make_by_sharing(unregistering(group.machine, 13)), BadOption)
    move(group.cluster, 1, 11, 12)
    group.repeat()
    assert NodeId(13) in group.machine.nodes
    assert group.make(unregistering(group.machine, 13)) is None


@dataclass(frozen=True)
class Passing:
    """A change that is refused for now, and what makes it possible later."""

    refused: Change
    then: Callable[[Group], None]


def a_node_is_registered(group: Group) -> None:
    group.cluster.storage[NodeId(20)] = Storage(NodeId(20))
    assert group.make(registering(group.machine, 20)) is None


def entries_are_ordered(group: Group) -> None:
    group.cluster.append(1, 3)


LACKING = NewStream(StreamId(7), (NodeId(20),))
PASSING = {
    "a topic on a node that is not there": Passing(
        CreateTopic(TopicId(7), (LACKING,), "late"), a_node_is_registered
    ),
    "a stream on a node that is not there": Passing(
        AddStreams(TOPIC, (LACKING,)), a_node_is_registered
    ),
    "a stream of a topic that is not there": Passing(
        AddStreams(TopicId(7), (NewStream(StreamId(8), (NodeId(11),)),)),
        lambda group: make_topic(group, 7),
    ),
    "a move to a node that is not there": Passing(
        UpdateStream(
            StreamId(1),
            FIRST_REVISION,
            Term(2),
            (NodeId(11), NodeId(12), NodeId(20)),
            NO_NODE,
            StreamStatus.RUNNING,
            b"",
        ),
        a_node_is_registered,
    ),
    "to trim what is not ordered yet": Passing(RetainTopic(TOPIC, Glsn(3)), entries_are_ordered),
}


def make_topic(group: Group, number: int) -> None:
    new = NewStream(StreamId(number), (NodeId(11),))
    assert group.make(CreateTopic(TopicId(number), (new,), "there by now")) is None


@pytest.mark.parametrize("snapshots", [False, True], ids=["from the log", "from a snapshot"])
@pytest.mark.parametrize("story", PASSING)
def test_what_was_refused_is_not_made_late_when_its_reason_is_gone(
    story: str, *, snapshots: bool
) -> None:
    """M6: it was told as refused, which is definite; it may be asked for anew, though."""
    group = Group(snapshots)
    group.cluster.with_streams(1)
    passing = PASSING[story]
    error = group.make_by_sharing(passing.refused)
    assert error is not None
    assert error.definite
    passing.then(group)
    if snapshots:
        group.restart()
    group.repeat()
    assert group.make(passing.refused) is None


def test_what_is_remembered_of_refusals_is_bounded() -> None:
    machine = MetadataMachine()
    wrong = RegisterNode(NodeId(1), "x" * (limits.NODE_ADDRESS_CHARS_MAX + 1))
    count = limits.METADATA_REFUSALS_MAX
    requests = tuple(Request(NodeId(1), number, wrong) for number in range(count + 1))
    machine.apply(Batch(requests))
    full = machine.snapshot()
    again = machine.apply(Batch((replace(requests[-1], change=registering(machine, 1)),)))
    assert again.answers[0].error is not None
    assert machine.snapshot() == full, "it is remembered once"
    first = machine.apply(Batch((replace(requests[0], change=registering(machine, 1)),)))
    assert first.answers[0].error is None, "the oldest is forgotten"


def test_a_name_that_is_under_way_is_void_once_its_member_was_forgotten() -> None:
    machine = MetadataMachine()
    late = naming(machine, 9, "tcp://a:1")
    assert make(machine, naming(machine, 9, "")) is None
    assert isinstance(make(machine, late), RevisionConflict)
    assert make(machine, naming(machine, 9, "tcp://a:1")) is None


def make(machine: MetadataMachine, change: Change) -> LogError | None:
    return machine.apply(Batch((Request(NodeId(1), 1, change),))).answers[0].error


def test_many_storage_nodes_that_saw_the_same_are_registered_at_once() -> None:
    machine = MetadataMachine()
    for change in [registering(machine, number) for number in range(1, 101)]:
        assert make(machine, change) is None
    assert len(machine.nodes) == 100


def test_a_change_that_names_what_was_not_seen_yet_is_refused() -> None:
    machine = MetadataMachine()
    assert make(machine, RegisterNode(NodeId(1), "a")) is None
    early = registering(machine, 1, "b")
    error = make(machine, replace(early, revision=early.revision + 1))
    assert isinstance(error, RevisionConflict)
    assert error.definite
    assert machine.nodes[NodeId(1)].address == "a"
