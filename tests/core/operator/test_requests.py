"""What a person may ask of an operator, and what is refused."""

from __future__ import annotations

import pytest

from tests.core.operator.cluster import OPERATOR, OTHER_OPERATOR, QUICK, Cluster
from tests.core.operator.test_reconfigurations import EXPAND, SWAP, settled
from tests.core.order.orders import S1
from tidelog import limits
from tidelog.core.operator.output import Outcome, Refused, Result
from tidelog.core.operator.plan import Status
from tidelog.core.replica.messages import ChangeKind, PrepareRequest, PrepareResponse
from tidelog.types import NO_NODE, NodeId, StreamId


def refusal(outcome: Outcome) -> Refused | None:
    assert outcome.result is Result.REFUSED
    return outcome.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((ChangeKind.SWAP, NodeId(1), NodeId(4)), Refused.LEADER),
        ((ChangeKind.CONTRACT, NodeId(1), NO_NODE), Refused.LEADER),
        ((ChangeKind.SWAP, NodeId(5), NodeId(4)), Refused.NOT_MEMBER),
        ((ChangeKind.SWAP, NodeId(3), NodeId(2)), Refused.MEMBER_ALREADY),
        ((ChangeKind.EXPAND, NO_NODE, NodeId(9)), Refused.NO_SUCH_NODE),
        ((ChangeKind.EXPAND, NodeId(3), NodeId(4)), Refused.MALFORMED),
        ((ChangeKind.SWAP, NodeId(3), NO_NODE), Refused.MALFORMED),
        ((ChangeKind.CONTRACT, NO_NODE, NO_NODE), Refused.MALFORMED),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    change: tuple[ChangeKind, NodeId, NodeId], reason: Refused
) -> None:
    cluster = settled()
    before = cluster.row
    assert refusal(cluster.ask(cluster.operator.change(S1, *change))) is reason
    assert cluster.row == before


def test_the_only_replica_is_never_swapped() -> None:
    cluster = Cluster(on=(1,), spare=(2,))
    cluster.steady()
    request = cluster.operator.change(S1, ChangeKind.SWAP, NodeId(1), NodeId(2))
    assert refusal(cluster.ask(request)) is Refused.LEADER
    request = cluster.operator.change(S1, ChangeKind.CONTRACT, NodeId(1))
    assert refusal(cluster.ask(request)) is Refused.LEADER


def test_an_ensemble_has_only_so_many_nodes() -> None:
    most = limits.ENSEMBLE_NODES_MAX
    cluster = Cluster(on=range(1, most + 1), spare=(most + 1,))
    cluster.steady()
    request = cluster.operator.change(S1, ChangeKind.EXPAND, new=NodeId(most + 1))
    assert refusal(cluster.ask(request)) is Refused.TOO_LARGE
    request = cluster.operator.change(S1, ChangeKind.SWAP, NodeId(2), NodeId(most + 1))
    assert cluster.ask(request).result is Result.DONE


def test_a_silent_node_is_not_added() -> None:
    cluster = settled()
    cluster.node(4).is_up = False
    cluster.run(QUICK.suspect_ticks)
    assert refusal(cluster.ask(cluster.operator.change(S1, *EXPAND))) is Refused.NO_SUCH_NODE


def test_one_change_at_a_time() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    assert refusal(cluster.ask(cluster.operator.change(S1, *EXPAND))) is Refused.BUSY


def test_a_stream_that_another_operator_changes_is_not_changed_meanwhile() -> None:
    cluster = settled((OPERATOR, OTHER_OPERATOR))
    cluster.lost = lambda message: isinstance(message, PrepareRequest)
    cluster.operators[OTHER_OPERATOR].change(S1, *SWAP)
    cluster.run(2)
    assert refusal(cluster.ask(cluster.operator.change(S1, *EXPAND))) is Refused.NOT_STEADY


def test_a_stream_without_a_leader_is_not_changed() -> None:
    cluster = Cluster(spare=(4,))
    cluster.loses_outcomes = True
    cluster.run(QUICK.patience_ticks + 1)
    assert cluster.row.plan.status is Status.ELECTION
    assert refusal(cluster.ask(cluster.operator.change(S1, *SWAP))) is Refused.NOT_STEADY


def test_unknown_streams_are_refused() -> None:
    operator = settled().operator
    nowhere = StreamId(77)
    operator.change(nowhere, *SWAP)
    operator.abort(nowhere)
    operator.elect(nowhere)
    outcomes = operator.take().outcomes
    assert [outcome.reason for outcome in outcomes] == [Refused.UNKNOWN_STREAM] * 3


def test_there_must_be_something_to_undo() -> None:
    cluster = settled()
    assert refusal(cluster.ask(cluster.operator.abort(S1))) is Refused.NOTHING_TO_ABORT


def test_a_change_that_another_operator_began_can_be_undone() -> None:
    cluster = settled((OPERATOR, OTHER_OPERATOR))
    cluster.lost = lambda message: isinstance(message, PrepareResponse)
    cluster.operator.change(S1, *SWAP)
    cluster.run(1)
    del cluster.operators[OPERATOR]
    abort = cluster.operators[OTHER_OPERATOR].abort(S1)
    assert cluster.ask(abort).result is Result.DONE
    assert cluster.row.is_steady
    assert cluster.row.ensemble == (1, 2, 3)


def test_an_abort_amid_a_write_is_refused() -> None:
    cluster = settled()
    cluster.operator.change(S1, *SWAP)
    (update,) = cluster.operator.take().updates
    assert cluster.write(update.command) is None
    cluster.show()
    assert refusal(cluster.ask(cluster.operator.abort(S1))) is Refused.BUSY


def test_an_election_that_a_person_wants_ends_a_change() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareRequest)
    change = cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    cluster.lost = lambda _: False
    assert cluster.ask(cluster.operator.elect(S1)).result is Result.DONE
    assert cluster.ask(change).result is Result.UNKNOWN
    assert cluster.row.ensemble == (1, 2, 3)


def test_an_election_amid_a_write_is_refused() -> None:
    cluster = settled()
    cluster.operator.change(S1, *SWAP)
    request = cluster.operator.elect(S1)
    assert refusal(cluster.ask(request)) is Refused.BUSY


def test_a_change_that_loses_the_race_for_the_row_is_refused() -> None:
    cluster = settled((OPERATOR, OTHER_OPERATOR))
    cluster.operator.change(S1, *SWAP)
    cluster.operators[OTHER_OPERATOR].change(S1, *EXPAND)
    cluster.run(5)
    assert [(each.result, each.reason) for each in cluster.outcomes] == [
        (Result.REFUSED, Refused.OVERTAKEN),
        (Result.DONE, None),
    ]
    assert cluster.row.ensemble == (1, 2, 4)
