"""What an operator does about what it finds, and what it leaves alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from tests.core.operator.cluster import OPERATOR, QUICK, Cluster
from tests.core.order.orders import S1
from tidelog.core.operator.options import Ignored, OperatorOptions
from tidelog.core.operator.plan import (
    Change,
    Phase,
    Status,
    StreamPlan,
    encode_plan,
)
from tidelog.core.order.commands import Quorum
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    AddFollowerRequest,
    AddFollowerResponse,
    BecomeLeaderRequest,
    ChangeKind,
    DropResponse,
    FenceRequest,
    FenceResponse,
    PrepareResponse,
    Reason,
    Refusal,
    Role,
    StatusRequest,
    StatusResponse,
)
from tidelog.errors import BadOption
from tidelog.types import NO_NODE, NodeId, Revision, StreamId, Term


def steady(**changes: object) -> Cluster:
    cluster = Cluster(options=replace(QUICK, **changes))
    cluster.steady()
    cluster.append(2)
    cluster.run(2)
    cluster.forget_sent()
    return cluster


def status(
    cluster: Cluster,
    *,
    source: int = 1,
    term: int = 2,
    own_term: int = 2,
    role: Role = Role.LEADER,
    ensemble: tuple[int, ...] = (1, 2, 3),
    attached: tuple[int, ...] = (2, 3),
) -> StatusResponse:
    return StatusResponse(
        NodeId(source),
        OPERATOR,
        S1,
        Term(term),
        Term(own_term),
        role,
        NodeId(source),
        NO_ENTRY,
        True,
        tuple(NodeId(node) for node in ensemble),
        tuple(NodeId(node) for node in attached),
    )


# -- operators that start --------------------------------------------------------------------------


def test_a_follower_that_was_never_added_is_added_by_the_next_operator() -> None:
    """An operator restart must not forget the followers of the late minority."""
    cluster = Cluster()
    cluster.lost = lambda message: NodeId(3) in (message.source, message.target)
    cluster.run(3)
    assert cluster.row.is_steady
    cluster.start_operator()
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 2, "that takes no election"
    assert [each.follower.node for each in cluster.sent_of(AddFollowerRequest)] == [3]


def test_what_is_steady_is_left_as_it_is() -> None:
    cluster = steady()
    before = cluster.row
    cluster.start_operator()
    cluster.run(100)
    assert cluster.row == before
    assert not cluster.sent_of(FenceRequest)


def test_an_election_that_was_cut_short_is_begun_anew() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, FenceRequest)
    cluster.run(3)
    cluster.start_operator()
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 3


def test_what_somebody_may_be_at_work_on_is_left_alone_while_patience_lasts() -> None:
    cluster = Cluster()
    cluster.put(StreamPlan(Status.ELECTION), 2)
    cluster.run(QUICK.patience_ticks - 1)
    assert not cluster.sent
    cluster.run(2)
    assert cluster.row.term == 3


def test_nobody_is_suspected_before_it_could_have_been_heard() -> None:
    cluster = steady()
    for node in cluster.nodes.values():
        node.is_up = False
    operator = cluster.start_operator()
    for _ in range(QUICK.suspect_ticks - 1):
        operator.tick()
        assert not operator.is_suspected(NodeId(1))
    operator.tick()
    assert operator.is_suspected(NodeId(1))


def test_a_node_that_is_registered_later_has_its_time_too() -> None:
    operator = steady().operator
    for _ in range(100):
        operator.tick()
    operator.nodes((NodeId(1), NodeId(9)))
    assert operator.is_suspected(NodeId(1))
    assert not operator.is_suspected(NodeId(9))
    operator.heard(NodeId(2))
    assert operator.ignored[Ignored.UNKNOWN_NODE] == 1


def test_an_operator_waits_for_its_chance_before_its_first_act() -> None:
    options = replace(QUICK, start_ticks=7)
    cluster = Cluster(options=options, operators=())
    cluster.start_operator(draw=lambda count: count - 1)
    cluster.run(5)
    assert cluster.row.plan.status is Status.NEW
    cluster.run(2)
    assert cluster.row.is_steady


# -- leaders ---------------------------------------------------------------------------------------


def test_a_leader_that_is_not_heard_is_replaced() -> None:
    cluster = steady()
    cluster.node(1).is_up = False
    cluster.run(QUICK.suspect_ticks - 2)
    assert cluster.row.term == Term(2)
    cluster.run(2)
    assert cluster.row.leader == 2


def test_a_leader_that_says_it_does_not_lead_is_replaced() -> None:
    cluster = steady()
    cluster.node(1).restart()
    cluster.run(20)
    assert cluster.row.term == 3
    cluster.steady()


def test_a_leader_that_leads_another_ensemble_is_replaced() -> None:
    cluster = steady()
    cluster.run(QUICK.election_pause_ticks)
    cluster.operator.step(status(cluster, ensemble=(1, 2)))
    cluster.run(2)
    assert cluster.row.term == 3


def test_answers_about_other_terms_or_of_others_say_nothing_about_the_leader() -> None:
    cluster = steady()
    cluster.run(QUICK.election_pause_ticks)
    cluster.operator.step(status(cluster, term=1, role=Role.FENCED))
    cluster.operator.step(status(cluster, source=2, role=Role.FOLLOWER))
    cluster.run(QUICK.status_ticks)
    assert cluster.row.term == 2


def test_a_leader_in_a_later_term_is_left_alone_until_the_row_should_have_come() -> None:
    """Another operator may just have begun a reconfiguration: its row is on the way."""
    cluster = steady()
    cluster.run(QUICK.election_pause_ticks)
    cluster.lost = lambda message: isinstance(message, StatusRequest)
    cluster.operator.step(status(cluster, own_term=3))
    cluster.run(QUICK.patience_ticks - 1)
    assert cluster.row.term == 2
    cluster.run(QUICK.status_ticks + 1)
    assert cluster.row.term == 4


def test_members_that_are_not_attached_are_fenced_and_added() -> None:
    cluster = steady()
    cluster.node(3).forget_all()
    cluster.run(QUICK.status_ticks + 2)
    assert {each.target for each in cluster.sent_of(FenceRequest)} == {3}
    (added,) = cluster.sent_of(AddFollowerRequest)
    assert (added.target, added.term, added.follower.is_complete) == (1, 2, False)
    cluster.steady()


def test_dead_members_are_not_bothered() -> None:
    cluster = steady()
    cluster.node(3).forget_all()
    cluster.node(3).is_up = False
    cluster.nodes[NodeId(1)].confirmed.pop(NodeId(3))
    cluster.run(QUICK.suspect_ticks)
    cluster.forget_sent()
    cluster.run(QUICK.status_ticks * 3)
    assert cluster.sent_of(StatusRequest)
    assert not cluster.sent_of(FenceRequest)


def test_only_members_are_added() -> None:
    cluster = steady()
    before = dict(cluster.operator.ignored)
    for node in (1, 4):
        cluster.operator.nodes((*cluster.nodes, NodeId(4)))
        cluster.operator.step(
            FenceResponse(NodeId(node), OPERATOR, S1, Term(2), NO_ENTRY, is_complete=True)
        )
    assert not cluster.operator.take().messages
    assert cluster.operator.ignored[Ignored.NOT_ASKED] == before.get(Ignored.NOT_ASKED, 0) + 2


# -- storms ----------------------------------------------------------------------------------------


def test_one_missed_sign_of_life_moves_nothing() -> None:
    """A saturated node is late now and then: electing each time would move the load about."""
    cluster = steady()
    for _ in range(20):
        cluster.node(1).is_up = False
        cluster.run(QUICK.suspect_ticks - 2)
        cluster.node(1).is_up = True
        cluster.run()
    assert cluster.row.term == 2


def test_elections_of_a_stream_keep_their_distance() -> None:
    cluster = steady(election_pause_ticks=25)
    began: list[int] = []
    for now in range(200):
        term = cluster.row.term
        cluster.leader_or_first.restart()  # It says that it does not lead, each time.
        cluster.run()
        if cluster.row.term > term:
            began.append(now)
    assert len(began) > 3
    assert all(later - earlier >= 25 for earlier, later in pairwise(began))


def test_no_election_begins_that_cannot_succeed() -> None:
    cluster = steady()
    cluster.node(1).is_up = cluster.node(2).is_up = False
    cluster.run(300)
    assert cluster.row.term == 2
    cluster.node(2).is_up = True
    cluster.run(QUICK.resend_ticks + 1)
    assert cluster.row.leader in (2, 3)


def test_an_operator_that_hears_nobody_does_nothing_to_the_streams() -> None:
    cluster = steady()
    for _ in range(100):
        cluster.operator.tick()
    assert not cluster.operator.take().updates


def test_only_so_many_elections_are_under_way_at_once() -> None:
    cluster = Cluster(options=replace(QUICK, procedures_max=3, replacements_max=0))
    operator = cluster.operator
    for stream in range(2, 10):
        operator.view(replace(cluster.order, stream=StreamId(stream)), Quorum.MAJORITY)
    had_a_turn: dict[StreamId, None] = {}
    for _ in range(8 * QUICK.patience_ticks):
        cluster.hear()
        operator.tick()
        had_a_turn |= {update.command.stream: None for update in operator.take().updates}
        assert sum(operator.is_at_work(StreamId(stream)) for stream in range(1, 10)) <= 3
    assert len(had_a_turn) == 9, "writes that nobody answers do not keep others waiting for ever"


# -- rows ------------------------------------------------------------------------------------------


def test_an_older_row_than_the_known_one_is_ignored() -> None:
    cluster = steady()
    old = replace(cluster.order, revision=Revision(1), plan=b"", leader=NO_NODE)
    cluster.operator.view(old, Quorum.MAJORITY)
    cluster.operator.view(cluster.order, Quorum.MAJORITY)
    assert cluster.operator.row(S1) == cluster.row
    assert cluster.operator.ignored[Ignored.OLD_REVISION] == 1


def newer(order: StreamOrder, plan: bytes) -> StreamOrder:
    return replace(order, revision=Revision(order.revision + 1), plan=plan)


@pytest.mark.parametrize(
    "plan",
    [
        b"\xff",
        encode_plan(StreamPlan(Status.RECONFIGURATION)),
        encode_plan(StreamPlan(Status.ELECTION)),  # With a leader.
    ],
)
def test_a_stream_whose_plan_makes_no_sense_is_left_alone(plan: bytes) -> None:
    cluster = steady()
    cluster.operator.elect(S1)
    cluster.operator.view(newer(cluster.order, plan), Quorum.MAJORITY)
    assert cluster.operator.ignored[Ignored.UNREADABLE] == 1
    cluster.operator.take()
    for _ in range(100):
        cluster.operator.tick()
    assert not cluster.operator.has_output
    cluster.operator.view(replace(cluster.order, revision=Revision(99)), Quorum.MAJORITY)
    assert cluster.operator.row(S1) is not None


def test_nothing_is_kept_of_a_stream_that_is_gone() -> None:
    cluster = steady()
    request = cluster.operator.elect(S1)
    cluster.operator.gone(S1)
    cluster.operator.gone(S1)
    (outcome,) = cluster.operator.take().outcomes
    assert outcome.request == request
    assert cluster.operator.row(S1) is None
    assert not cluster.operator.is_at_work(S1)
    cluster.operator.step(status(cluster))
    assert cluster.operator.ignored[Ignored.UNKNOWN_STREAM] == 1
    for _ in range(100):
        cluster.operator.tick()
    assert not cluster.operator.has_output


def test_answers_that_nobody_waits_for_are_counted_and_change_nothing() -> None:
    cluster = steady()
    operator = cluster.operator
    before = dict(operator.ignored)
    operator.step(AddFollowerResponse(NodeId(1), OPERATOR, S1, Term(2), NodeId(3)))
    operator.step(DropResponse(NodeId(3), OPERATOR, S1, Term(2)))
    operator.step(PrepareResponse(NodeId(1), OPERATOR, S1, Term(2), Term(2), NO_ENTRY))
    operator.step(Refusal(NodeId(3), OPERATOR, S1, Term(2), Term(2), Reason.ROLE))
    cluster.run(QUICK.patience_ticks * 2)
    assert cluster.row.term == 2
    counts = {key: operator.ignored[key] - before.get(key, 0) for key in operator.ignored}
    assert counts == {**dict.fromkeys(before, 0), Ignored.REPEATED: 1, Ignored.LATE: 1}


def test_a_reconfiguration_that_nobody_goes_on_with_is_resumed() -> None:
    cluster = Cluster(spare=(4,))
    cluster.steady()
    change = Change(ChangeKind.SWAP, Phase.PREPARE, NodeId(3), NodeId(4))
    cluster.put(StreamPlan(Status.RECONFIGURATION, change), 3, leader=1)
    cluster.run(QUICK.patience_ticks - 1)
    assert not cluster.row.is_steady
    cluster.steady()
    assert (cluster.row.ensemble, cluster.row.term) == ((1, 2, 4), 3)
    assert len(cluster.sent_of(BecomeLeaderRequest)) == 1


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        {"resend_ticks": 0},
        {"resend_ticks": 60},
        {"grace_ticks": 50},
        {"replace_ticks": 59},
        {"balance_ticks": -1},
        {"procedures_max": 0},
        {"replacements_max": 257},
    ],
)
def test_options_that_make_no_sense_are_refused(option: dict[str, int]) -> None:
    with pytest.raises(BadOption):
        OperatorOptions(**option)
