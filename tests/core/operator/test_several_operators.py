"""Operators that fight cost one another time, never data."""

from __future__ import annotations

from tests.core.operator.cluster import OPERATOR, OTHER_OPERATOR, QUICK, Cluster
from tests.core.operator.test_reconfigurations import settled
from tests.core.order.orders import S1
from tidelog.core.operator.output import Result
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    ChangeKind,
    FenceResponse,
    SnapshotResponse,
)
from tidelog.types import NodeId

BOTH = (OPERATOR, OTHER_OPERATOR)


def test_of_two_operators_only_one_elects() -> None:
    cluster = Cluster(operators=BOTH)
    cluster.steady()
    cluster.run(100)
    assert cluster.row.term == 2
    assert {each.source for each in cluster.sent_of(BecomeLeaderRequest)} == {OPERATOR}


def test_an_operator_stops_when_another_one_has_written() -> None:
    cluster = Cluster(operators=BOTH)
    cluster.lost = lambda message: isinstance(message, BecomeLeaderResponse)
    cluster.run(3)
    assert cluster.operator.is_at_work(S1)
    cluster.lost = lambda _: False
    cluster.operators[OTHER_OPERATOR].elect(S1)
    cluster.run()
    assert not cluster.operator.is_at_work(S1)
    assert cluster.row.term == 3


def test_an_operator_that_reads_late_cannot_write_what_is_old() -> None:
    """It still runs elections on a stale copy of the metadata: the repository refuses."""
    cluster = settled(BOTH)
    stale, other = cluster.operator, cluster.operators[OTHER_OPERATOR]
    cluster.shows_rows = False
    other.elect(S1)
    cluster.run()
    row = cluster.row
    assert row.term == 3
    request = stale.elect(S1)
    cluster.run()
    assert cluster.row == row
    assert [(each.request, each.result) for each in cluster.outcomes][-1] == (
        request,
        Result.REFUSED,
    )


def test_a_stale_operator_that_still_notifies_its_leader_is_refused_by_its_term() -> None:
    cluster = settled(BOTH)
    cluster.shows_rows = False
    cluster.lost = lambda message: isinstance(message, FenceResponse)
    stale = cluster.operator
    stale.elect(S1)
    cluster.run(2)
    cluster.lost = lambda _: False
    cluster.shows_rows = True
    del cluster.operators[OPERATOR]
    cluster.show()
    cluster.operators[OTHER_OPERATOR].elect(S1)
    cluster.run(2)
    assert cluster.row.term == 4
    cluster.operators[OPERATOR] = stale
    cluster.shows_rows = False
    cluster.run(QUICK.resend_ticks)
    assert cluster.row.term == 4
    assert cluster.led[cluster.row.term] == cluster.row.leader


def test_two_operators_that_go_on_with_one_change_complete_it_once() -> None:
    cluster = settled(BOTH)
    cluster.lost = lambda message: isinstance(message, SnapshotResponse)
    cluster.operator.change(S1, ChangeKind.EXPAND, new=NodeId(4))
    cluster.run(3 * QUICK.patience_ticks)
    assert all(operator.is_at_work(S1) for operator in cluster.operators.values())
    cluster.lost = lambda _: False
    cluster.run(QUICK.resend_ticks)
    cluster.steady()
    assert cluster.row.ensemble == (1, 2, 3, 4)
    assert cluster.row.term == 3


def test_operators_that_elect_in_turns_leave_a_stream_that_works() -> None:
    cluster = settled(BOTH)
    for turn in range(20):
        cluster.operators[BOTH[turn % 2]].elect(S1)
        if turn % 3 == 0:
            cluster.run()
    cluster.steady()
    cluster.append()
    cluster.steady()
    cluster.run()
    assert len(cluster.committed) == 4
