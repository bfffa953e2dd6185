"""An operator dies after each of its acts in turn: another one brings the stream to rest."""

from __future__ import annotations

import pytest

from tests.core.operator.cluster import OPERATOR, OTHER_OPERATOR, QUICK, Cluster
from tests.core.operator.test_reconfigurations import AFTER, CHANGES, settled
from tests.core.order.orders import S1
from tidelog.core.replica.messages import ChangeKind
from tidelog.types import NodeId

ACTS_MAX = 60


def taken_over(cluster: Cluster, acts: int, *, loses_leader: bool) -> bool:
    """Let the first operator do so much and die; whether it died before it was done."""
    cluster.acts_left = acts
    cluster.run(12)
    died = OPERATOR not in cluster.operators
    if died:
        if loses_leader and cluster.row.leader in cluster.nodes:
            cluster.nodes[cluster.row.leader].is_up = False
        cluster.start_operator(OTHER_OPERATOR)
    return died


def come_to_rest(cluster: Cluster) -> None:
    cluster.run(QUICK.replace_ticks - 5)
    for node in cluster.nodes.values():
        if not node.is_up:
            node.restart()
            node.is_up = True
    cluster.steady()
    committed = len(cluster.committed)
    cluster.append()
    cluster.steady()
    cluster.run()
    assert len(cluster.committed) > committed


@pytest.mark.parametrize("loses_leader", [False, True])
def test_an_election_goes_on_wherever_its_operator_dies(loses_leader: bool) -> None:
    for acts in range(ACTS_MAX):
        cluster = Cluster(spare=(4,))
        died = taken_over(cluster, acts, loses_leader=loses_leader)
        come_to_rest(cluster)
        if not died:
            break
    assert acts > 10, "an election has at least that many acts"


@pytest.mark.parametrize("loses_leader", [False, True])
@CHANGES
def test_a_change_goes_on_wherever_its_operator_dies(
    change: tuple[ChangeKind, NodeId, NodeId], loses_leader: bool
) -> None:
    ensembles = {}
    for acts in range(ACTS_MAX):
        cluster = settled()
        cluster.operator.change(S1, *change)
        died = taken_over(cluster, acts, loses_leader=loses_leader)
        come_to_rest(cluster)
        assert len(cluster.committed) >= 4
        ensembles[cluster.row.ensemble] = acts
        if not died:
            break
    assert acts > 6, "a change has at least that many acts"
    assert set(ensembles) <= {(1, 2, 3), AFTER[change[0]]}
    assert AFTER[change[0]] in ensembles


def test_a_change_is_undone_wherever_its_operator_dies() -> None:
    for acts in range(ACTS_MAX):
        cluster = settled()
        cluster.operator.change(S1, ChangeKind.SWAP, NodeId(3), NodeId(4))
        (update,) = cluster.operator.take().updates
        cluster.operator.answered(update.number, cluster.write(update.command))
        cluster.show()
        cluster.operator.abort(S1)
        died = taken_over(cluster, acts, loses_leader=False)
        come_to_rest(cluster)
        # Whoever finds it in *prepare* goes on with it, unless the leader has undone it.
        assert cluster.row.ensemble in ((1, 2, 3), (1, 2, 4))
        if not died:
            assert cluster.row.ensemble == (1, 2, 3)
            break
    assert acts > 3
