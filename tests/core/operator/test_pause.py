"""In a pause an operator begins nothing unasked; and who leads of those that could."""

from __future__ import annotations

from msgspec.structs import replace

from tests.core.operator.cluster import OPERATOR, QUICK, Cluster, lowest
from tests.core.operator.test_balance import broken
from tests.core.operator.test_reconfigurations import SWAP, settled
from tests.core.order.orders import S1, T1, nodes
from tidelog.core.operator.election import choose_leader
from tidelog.core.operator.operator import Operator
from tidelog.core.operator.output import Result
from tidelog.core.order.commands import Quorum
from tidelog.core.order.state import ReplicaOrder, StreamOrder
from tidelog.core.replica.entries import NO_ENTRY, EntryId
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    FenceRequest,
    FenceResponse,
    FollowerHead,
    PrepareRequest,
)
from tidelog.types import NO_VERSION, Llsn, NodeId, StreamId, Term


def test_a_dead_leader_is_replaced_only_after_the_pause() -> None:
    cluster = settled()
    cluster.operator.pause(True)
    before, dead = cluster.row, cluster.leader
    dead.is_up = False
    cluster.run(5 * QUICK.suspect_ticks)
    assert cluster.row == before

    cluster.operator.pause(False)
    cluster.run_until(lambda: cluster.row.is_steady and cluster.row.leader != dead.node)


def test_a_new_stream_gets_its_first_leader_in_a_pause() -> None:
    cluster = Cluster()
    cluster.operator.pause(True)
    cluster.run_until(lambda: cluster.row.is_steady)


def test_a_lost_node_is_not_replaced_in_a_pause() -> None:
    cluster = broken()
    cluster.operator.pause(True)
    cluster.run(2 * QUICK.replace_ticks)
    assert cluster.row.ensemble == (1, 2, 3)


def test_what_a_person_asks_for_is_done_in_a_pause() -> None:
    cluster = settled()
    cluster.operator.pause(True)
    assert cluster.ask(cluster.operator.change(S1, *SWAP)).result is Result.DONE
    term = cluster.row.term
    assert cluster.ask(cluster.operator.elect(S1)).result is Result.DONE
    assert cluster.row.term > term


def test_a_change_that_is_under_way_is_completed_in_a_pause() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareRequest)
    request = cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    cluster.operator.pause(True)
    cluster.lost = lambda _: False
    assert cluster.ask(request).result is Result.DONE


def test_the_preferred_node_leads_if_its_log_is_as_long_as_any() -> None:
    cluster = Cluster(options=replace(QUICK, grace_ticks=2))
    cluster.steady()
    for number in (3, 2, 3):
        assert cluster.ask(cluster.operator.elect(S1, NodeId(number))).result is Result.DONE
        assert cluster.row.leader == number


def test_a_preferred_node_whose_log_is_shorter_does_not_lead() -> None:
    """The shell of ``prefer`` is a burden below all others: the head comes first (E2)."""
    heads = {
        NodeId(node): FollowerHead(NodeId(node), EntryId(Term(1), Llsn(llsn)), True)
        for node, llsn in ((1, 5), (2, 5), (3, 4))
    }
    final = tuple(heads)
    assert choose_leader(heads, (), final, lambda node: -1 if node == 3 else node) == 1
    assert choose_leader(heads, (), final, lambda node: -1 if node == 2 else node) == 2


def test_streams_that_are_made_together_do_not_all_get_the_same_leader() -> None:
    operator = Operator(OPERATOR, replace(QUICK, grace_ticks=1), lowest)
    operator.nodes(nodes((1, 2, 3)))
    streams = [StreamId(number) for number in range(1, 7)]
    for stream in streams:
        replicas = tuple(ReplicaOrder(node) for node in nodes((1, 2, 3)))
        operator.view(StreamOrder(T1, stream, replicas), Quorum.MAJORITY)
    chosen: dict[StreamId, NodeId] = {}
    for _ in range(10):
        for node in nodes((1, 2, 3)):
            operator.heard(node)
        operator.tick()
        while operator.has_output:
            output = operator.take()
            for update in output.updates:
                operator.answered(update.number, None)
            for message in output.messages:
                if isinstance(message, FenceRequest):
                    operator.step(fenced(message))
                elif isinstance(message, BecomeLeaderRequest):
                    chosen[message.stream] = message.target
    assert [chosen[stream] for stream in streams] == [1, 2, 3, 1, 2, 3]


def fenced(request: FenceRequest) -> FenceResponse:
    return FenceResponse(
        request.target,
        request.source,
        request.stream,
        request.term,
        head=NO_ENTRY,
        version=NO_VERSION,
        is_complete=True,
    )
