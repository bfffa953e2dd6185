"""Where new log streams go (P1 to P3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tidelog import limits
from tidelog.core.metadata.commands import Batch, RegisterNode, Request
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.placement import plan_streams, plan_topic
from tidelog.core.metadata.state import StorageNode
from tidelog.core.metadata.view import MetadataView
from tidelog.core.order.commands import AddStreams, CreateTopic, RemoveStream
from tidelog.core.order.state import StreamOrder
from tidelog.errors import BadOption, TopicExists, UnknownTopic
from tidelog.types import FIRST_REVISION, NO_VERSION, NodeId, StreamId, TopicId


def machine_with(nodes: Sequence[int]) -> MetadataMachine:
    machine = MetadataMachine()
    for number, node in enumerate(nodes):
        make(machine, RegisterNode(NodeId(node)), number)
    return machine


def make(
    machine: MetadataMachine,
    change: RegisterNode | CreateTopic | AddStreams | RemoveStream,
    number: int = 0,
) -> None:
    (answer,) = machine.apply(Batch((Request(NodeId(1), number, change),))).answers
    assert answer.error is None, answer.error


def view(machine: MetadataMachine) -> MetadataView:
    order = machine.order
    return MetadataView(
        number=machine.changes,
        version=NO_VERSION,
        topics=tuple(order.topics.values()),
        streams=tuple(order.streams.values()),
        nodes=tuple(machine.nodes.values()),
        members=(NodeId(1),),
        next_topic=TopicId(max(order.topics, default=0) + 1),
        next_stream=order.next_stream,
    )


def loads(streams: Sequence[StreamOrder]) -> Counter[NodeId]:
    return Counter(node for order in streams for node in order.ensemble)


def test_a_planned_topic_can_be_made_and_the_next_plan_goes_on_after_it() -> None:
    machine = machine_with([1, 2, 3])
    make(machine, plan_topic(view(machine), "a", streams=2))
    make(machine, plan_topic(view(machine), "b", streams=3, replicas=1, versions="explicit"))
    make(machine, plan_streams(view(machine), "a", streams=1))
    topics = view(machine).topics_by_name()
    assert topics["a"].streams == (1, 2, 6)
    assert topics["b"].streams == (3, 4, 5)
    assert (topics["a"].key_streams, topics["b"].versions) == (2, "explicit")


def test_a_removed_stream_is_not_numbered_again() -> None:
    machine = machine_with([1])
    make(machine, plan_topic(view(machine), "a", streams=2))
    make(machine, RemoveStream(StreamId(2), FIRST_REVISION))
    make(machine, plan_streams(view(machine), "a", streams=1))
    assert view(machine).topics_by_name()["a"].streams == (1, 3)


@pytest.mark.parametrize(("nodes", "replicas", "streams"), [(5, 3, 10), (4, 2, 7), (7, 5, 3)])
def test_loads_differ_by_at_most_one(nodes: int, replicas: int, streams: int) -> None:
    machine = machine_with(range(1, nodes + 1))
    make(machine, plan_topic(view(machine), "a", streams=streams, replicas=replicas))
    counts = loads(view(machine).streams)
    assert sum(counts.values()) == streams * replicas
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_node_that_joins_later_is_filled_first() -> None:
    machine = machine_with([1, 2, 3])
    make(machine, plan_topic(view(machine), "a", streams=4, replicas=2))
    make(machine, RegisterNode(NodeId(9)))
    make(machine, plan_streams(view(machine), "a", streams=2))
    added = [order for order in view(machine).streams if order.stream > 4]
    assert all(NodeId(9) in order.ensemble for order in added)


def test_the_order_in_which_nodes_are_told_does_not_matter() -> None:
    one, other = machine_with([1, 2, 3, 4]), machine_with([3, 1, 4, 2])
    plans = [plan_topic(view(machine), "a", streams=5, replicas=3) for machine in (one, other)]
    assert plans[0] == plans[1]


def test_without_a_number_there_are_three_replicas_or_as_many_as_there_are_nodes() -> None:
    for nodes, expected in ((1, 1), (2, 2), (3, 3), (5, 3)):
        plan = plan_topic(view(machine_with(range(1, nodes + 1))), "a", streams=1)
        assert len(plan.streams[0].ensemble) == expected


def test_more_streams_have_as_many_replicas_as_the_first() -> None:
    machine = machine_with([1, 2, 3, 4, 5])
    make(machine, plan_topic(view(machine), "a", streams=1, replicas=5))
    assert len(plan_streams(view(machine), "a", streams=1).streams[0].ensemble) == 5


def test_too_few_nodes_are_told_with_their_number() -> None:
    machine = machine_with([1, 2, 3])
    with pytest.raises(BadOption, match="5 replicas need 5 storage nodes, and there are 3"):
        plan_topic(view(machine), "a", streams=1, replicas=5)
    with pytest.raises(BadOption, match="there are 0"):
        plan_topic(view(machine_with([])), "a", streams=1)


@pytest.mark.parametrize(
    ("streams", "replicas"),
    [(0, 1), (-1, 1), (limits.STREAMS_PER_TOPIC_MAX + 1, 1), (1, limits.ENSEMBLE_NODES_MAX + 1)],
)
def test_numbers_out_of_range_are_refused(streams: int, replicas: int) -> None:
    with pytest.raises(BadOption):
        plan_topic(view(machine_with(range(1, 20))), "a", streams=streams, replicas=replicas)


def test_a_name_is_given_once_and_has_to_exist_to_grow() -> None:
    machine = machine_with([1])
    make(machine, plan_topic(view(machine), "a", streams=1))
    with pytest.raises(TopicExists, match="'a'"):
        plan_topic(view(machine), "a", streams=1)
    with pytest.raises(UnknownTopic, match="'b'"):
        plan_streams(view(machine), "b", streams=1)


def test_a_registered_node_has_room_for_what_clients_need() -> None:
    """Both addresses of a node fit: that for peers and that for clients."""
    address = "tls://" + "a" * 120 + ".example:65535"
    node = StorageNode(NodeId(1), f"{address} {address}")
    assert len(node.address) <= limits.NODE_ADDRESS_CHARS_MAX
