"""Dead replicas are replaced, leaderships spread: with care, and one at a time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.operator.cluster import OPERATOR, QUICK, Cluster, lowest
from tests.core.order.orders import T1, nodes
from tidelog.core.operator.operator import Operator
from tidelog.core.operator.options import OperatorOptions
from tidelog.core.operator.plan import STEADY, Phase, encode_plan
from tidelog.core.order.commands import Quorum
from tidelog.core.order.state import ReplicaOrder, StreamOrder
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    DropRequest,
    FenceRequest,
    Role,
    SnapshotRequest,
    StatusRequest,
    StatusResponse,
)
from tidelog.types import NodeId, StreamId, Term

# -- replacements ----------------------------------------------------------------------------------


def broken(
    on: tuple[int, ...] = (1, 2, 3), spare: tuple[int, ...] = (4, 5), dead: tuple[int, ...] = ()
) -> Cluster:
    """The last member is dead for almost as long as it takes to be replaced."""
    cluster = Cluster(on=on, spare=spare)
    cluster.steady()
    cluster.append(3)
    cluster.run(2)
    for node in (on[-1], *dead):
        cluster.node(node).is_up = False
    cluster.leader.confirmed.pop(NodeId(on[-1]))
    cluster.run(QUICK.replace_ticks - 3)
    assert cluster.row.ensemble == nodes(on)
    return cluster


def test_a_member_that_is_dead_for_long_is_swapped_for_a_spare_node() -> None:
    cluster = broken()
    cluster.run(10)
    assert cluster.row.ensemble == (1, 2, 4)
    cluster.steady()
    assert cluster.node(4).log == cluster.leader.log


def test_a_dead_member_that_its_leader_still_counts_on_is_replaced() -> None:
    """Nobody tells a leader that has nothing to send that its follower is gone."""
    cluster = Cluster(spare=(4,))
    cluster.steady()
    cluster.append(3)
    cluster.run(2)
    cluster.node(3).is_up = False
    cluster.run(QUICK.replace_ticks + 20)
    assert cluster.row.ensemble == (1, 2, 4)


def test_a_dead_follower_is_no_part_of_the_majority_that_a_replacement_needs() -> None:
    """Two of the three are dead, and their leader counts on both: nobody may leave."""
    cluster = Cluster(spare=(4,))
    cluster.steady()
    cluster.append(3)
    cluster.run(2)
    for node in (2, 3):
        cluster.node(node).is_up = False
    cluster.run(QUICK.replace_ticks + 100)
    assert cluster.row.ensemble == (1, 2, 3)


def test_a_member_that_comes_back_in_time_stays() -> None:
    cluster = broken()
    cluster.node(3).is_up = True
    cluster.run(100)
    assert cluster.row.ensemble == (1, 2, 3)
    assert cluster.row.term == 2


def test_no_spare_node_no_replacement() -> None:
    cluster = broken(spare=())
    cluster.run(100)
    assert cluster.row.ensemble == (1, 2, 3)


def test_a_dead_node_is_no_spare_node() -> None:
    cluster = broken(dead=(4,))
    cluster.run(10)
    assert cluster.row.ensemble == (1, 2, 5)
    assert {each.target for each in cluster.sent_of(SnapshotRequest)} == {5}


def test_a_leader_that_is_dead_for_long_loses_its_leadership_first_and_then_its_place() -> None:
    cluster = Cluster(spare=(4,))
    cluster.steady()
    cluster.append(3)
    cluster.run(2)
    cluster.node(1).is_up = False
    cluster.run(QUICK.replace_ticks + 20)
    assert cluster.row.ensemble == (2, 3, 4)


def test_changes_do_not_run_ahead_of_the_data() -> None:
    """Swaps stacked before the followers caught up: an ensemble would wander to empty nodes."""
    cluster = broken()
    cluster.node(2).forget_all()
    cluster.lost = lambda message: isinstance(message, FenceRequest)
    cluster.run(100)
    assert NodeId(3) in cluster.row.ensemble
    cluster.lost = lambda _: False
    cluster.run(20)
    assert cluster.row.ensemble == (1, 2, 4), "2 was attached again first"
    assert cluster.node(2).log == cluster.leader.log


def test_nobody_is_replaced_while_the_rest_is_no_majority() -> None:
    cluster = broken(on=(1, 2, 3, 4), spare=(5,))
    cluster.node(2).is_up = cluster.node(3).is_up = False
    for node in (2, 3):
        cluster.node(1).confirmed.pop(NodeId(node))
    cluster.run(300)
    assert cluster.row.ensemble == (1, 2, 3, 4)


def test_the_only_replica_is_not_replaced() -> None:
    """An empty node would lead, and the data be deleted."""
    cluster = Cluster(on=(1,), spare=(2,))
    cluster.steady()
    cluster.append()
    cluster.run()
    cluster.node(1).is_up = False
    cluster.run(500)
    assert cluster.row.ensemble == (1,)
    assert not cluster.sent_of(DropRequest)


def test_only_so_many_replacements_are_under_way() -> None:
    cluster = broken()
    cluster.options = replace(QUICK, replacements_max=0)
    operator = cluster.start_operator()
    cluster.run(200)
    assert cluster.row.ensemble == (1, 2, 3)
    assert operator.is_suspected(NodeId(3))


def test_a_replacement_whose_spare_node_dies_is_undone_and_tried_with_another() -> None:
    cluster = broken()
    cluster.lost = lambda message: isinstance(message, SnapshotRequest)
    cluster.run_until(lambda: cluster.row.plan.change is not None)
    assert cluster.row.plan.change is not None
    assert cluster.row.plan.change.phase is Phase.PREPARE
    cluster.node(4).is_up = False
    cluster.run(QUICK.suspect_ticks + 1)
    cluster.lost = lambda _: False
    cluster.run(40)
    assert cluster.row.ensemble == (1, 2, 5)


# -- leaderships -----------------------------------------------------------------------------------


class Fleet:
    """Many steady streams on the same three nodes; every leader has all its followers."""

    def __init__(self, leaders: tuple[int, ...], options: OperatorOptions) -> None:
        self.operator = Operator(OPERATOR, options, lowest)
        self.operator.nodes(nodes((1, 2, 3)))
        self.rows = {
            StreamId(number): StreamOrder(
                T1,
                StreamId(number),
                tuple(ReplicaOrder(node) for node in nodes((1, 2, 3))),
                leader=NodeId(leader),
                term=Term(2),
                plan=encode_plan(STEADY),
            )
            for number, leader in enumerate(leaders, 1)
        }
        self.missing: tuple[int, ...] = ()
        self.elections: list[StreamId] = []
        for order in self.rows.values():
            self.operator.view(order, Quorum.MAJORITY)

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            for node in (1, 2, 3):
                self.operator.heard(NodeId(node))
            self.operator.tick()
            output = self.operator.take()
            self.elections += [update.command.stream for update in output.updates]
            for message in output.messages:
                if isinstance(message, StatusRequest):
                    self.operator.step(self.status(message))

    def status(self, request: StatusRequest) -> StatusResponse:
        others = [node for node in (1, 2, 3) if node not in (request.target, *self.missing)]
        return StatusResponse(
            request.target,
            request.source,
            request.stream,
            request.term,
            request.term,
            Role.LEADER,
            request.target,
            NO_ENTRY,
            True,
            nodes((1, 2, 3)),
            nodes(others),
        )


BALANCING = replace(QUICK, balance_ticks=20)


def test_a_leadership_moves_from_who_leads_most() -> None:
    fleet = Fleet((1, 1, 1, 2), BALANCING)
    fleet.run(BALANCING.balance_ticks + 1)
    assert fleet.elections == [1]


def test_one_leadership_moves_at_a_time() -> None:
    fleet = Fleet((1, 1, 1, 1), BALANCING)
    fleet.run(BALANCING.balance_ticks + 5)
    assert len(fleet.elections) == 1


@pytest.mark.parametrize("leaders", [(1, 2, 3), (1, 1, 2, 3), (1, 1, 2, 2, 3)])
def test_a_difference_of_one_is_no_reason_to_move(leaders: tuple[int, ...]) -> None:
    fleet = Fleet(leaders, BALANCING)
    fleet.run(100)
    assert not fleet.elections


def test_nothing_moves_while_a_follower_is_missing() -> None:
    fleet = Fleet((1, 1, 1, 2), BALANCING)
    fleet.missing = (3,)
    fleet.run(100)
    assert not fleet.elections


def test_nothing_moves_unless_that_is_wanted() -> None:
    fleet = Fleet((1, 1, 1, 1), QUICK)
    fleet.run(200)
    assert not fleet.elections


def test_a_leadership_that_did_not_move_is_left_alone_for_long() -> None:
    """The leader of a busy stream has the highest head, again and again."""
    fleet = Fleet((1, 1), BALANCING)
    fleet.run(300)
    assert fleet.elections[0] == 1
    assert len(fleet.elections) <= 2


def test_an_election_prefers_the_node_that_leads_least() -> None:
    """With equal heads, a balancing election moves the leadership."""
    cluster = Cluster(options=BALANCING)
    cluster.steady()
    assert cluster.row.leader == 1
    other = replace(cluster.order, stream=StreamId(2))
    cluster.operator.view(other, Quorum.MAJORITY)
    cluster.operator.elect(cluster.row.stream)
    cluster.run(2)
    assert cluster.sent_of(BecomeLeaderRequest)[-1].target == 2
