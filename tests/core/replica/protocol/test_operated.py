"""Real operators and real replicas: what a stalled step, a dead operator or two of them leave."""

from __future__ import annotations

from tests.core.replica.protocol.harness import nodes, of
from tests.core.replica.protocol.operated import OperatedGroup
from tidelog.core.operator.plan import Phase, Status
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    BecomeLeaderResponse,
    ChangeKind,
    CommitResponse,
    FenceRequest,
    Role,
)
from tidelog.types import NodeId

SWAP, EXPAND, CONTRACT = ChangeKind.SWAP, ChangeKind.EXPAND, ChangeKind.CONTRACT
FIRST, SECOND = 91, 92


def a_group(*ensemble: int, operators: int = 1) -> OperatedGroup:
    """Node 1 leads and has ordered "x"; node 9 is spare."""
    group = OperatedGroup(*ensemble, spares=[9], operators=operators)
    assert group.run_until_steady() == 1
    group.append(1, b"x")
    group.run(3)
    assert group.row.llsn_end == 2
    return group


def stalled(kind: ChangeKind, phase: Phase, *ensemble: int) -> OperatedGroup:
    """The operator died when it had written a phase of a change; node 3 was to leave."""
    group = a_group(*ensemble)
    group.dies_in = phase
    group.change(
        kind, old=0 if kind is EXPAND else 3, new=0 if kind is CONTRACT else 9, operator=FIRST
    )
    group.run(10)
    assert not group.operators
    assert group.plan.status is Status.RECONFIGURATION
    assert group.plan.change is not None
    assert group.plan.change.phase is phase
    group.dies_in = None
    return group


# -- elections -----------------------------------------------------------------------------------


def test_the_first_election_makes_all_members_complete() -> None:
    group = OperatedGroup(1, 2, 3)
    group.run_until_steady()
    group.run(5)
    assert all(group[number].is_complete for number in (1, 2, 3))
    assert group[1].cursors.keys() == set(nodes(2, 3))


def test_a_dead_leader_is_replaced_and_comes_back_as_a_follower() -> None:
    group = a_group(1, 2, 3)
    group.crash(1)
    leader = group.run_until_steady()
    assert leader != 1
    group.append(leader, b"y")
    group.restart(1)
    group.check_that_it_works(b"x", b"y")
    assert group[1].role is Role.FOLLOWER


def test_the_highest_term_is_elected_not_the_longest_log() -> None:
    """Node 1 has three entries of an older term that nobody else has."""
    group = a_group(1, 2, 3)
    group.isolate(1)
    group.append(1, b"lost", b"lost too", b"lost as well")
    group.crash(1)
    leader = group.run_until_steady()
    group.append(leader, b"y")
    group.run(5)
    group.heal()
    group.crash(leader)
    group.restart(1)
    follower = group.run_until_steady()
    assert follower not in (1, leader)
    group.restart(leader)
    group.check_that_it_works(b"x", b"y")


def test_a_node_that_lost_its_log_does_not_help_to_elect() -> None:
    """Node 3 acknowledged y together with node 1, then lost it; without node 1 nobody leads."""
    group = a_group(1, 2, 3)
    group.isolate(2)
    group.append(1, b"y")
    group.run(2)
    assert group.members[1].propagated == 3
    group.crash(1)
    group.lose_log(3)
    group.heal()
    group.run(60)
    assert not group.is_steady
    group.restart(1)
    group.check_that_it_works(b"x", b"y")


def test_a_node_that_gave_its_log_up_helps_to_elect_who_has_all_that_it_had() -> None:
    """Else a leader that dies while it fills a follower up may leave nobody who can lead."""
    group = a_group(1, 2, 3)
    group.crash(1)
    group.give_up_log(3)
    assert group.run_until_steady() == 2
    group.check_that_it_works(b"x")


def test_a_node_that_gave_its_log_up_does_not_help_to_elect_who_lacks_what_it_had() -> None:
    """Node 3 acknowledged y together with node 1; node 2 never had it."""
    group = a_group(1, 2, 3)
    group.isolate(2)
    group.append(1, b"y")
    group.run(2)
    assert group.members[1].propagated == 3
    group.crash(1)
    group.give_up_log(3)
    group.heal()
    group.run(60)
    assert not group.is_steady
    group.restart(1)
    group.check_that_it_works(b"x", b"y")


def test_a_member_that_no_election_ever_reached_helps_to_elect() -> None:
    """It never acknowledged anything."""
    group = OperatedGroup(1, 2, 3)
    group.crash(3)
    assert group.run_until_steady() == 1
    group.append(1, b"x")
    group.run(3)
    group.crash(1)
    group.restart(3)
    assert group.run_until_steady() == 2
    group.check_that_it_works(b"x")


def test_an_operator_that_starts_adds_followers_that_another_left_out() -> None:
    group = OperatedGroup(1, 2, 3)
    group.isolate(3)
    group._cut.update(((FIRST, 3), (3, FIRST)))
    group.run_until_steady()
    group.stop_operator(FIRST)
    group.heal()
    group.start_operator(SECOND)
    group.check_that_it_works()
    assert group[3].role is Role.FOLLOWER


def test_an_election_that_nobody_finished_is_held_again() -> None:
    """The operator died when the leader had answered, before it wrote that down."""
    group = a_group(1, 2, 3)
    group.crash(1)
    for _ in range(50):
        group.tick_operator(FIRST)
        group.tick()
        group.deliver(lambda message: not isinstance(message, BecomeLeaderResponse))
        if any(isinstance(message, BecomeLeaderResponse) for message in group.wire):
            break
    late = group.take_messages(of(BecomeLeaderResponse))
    assert late
    half = late[0].source
    group.append(half, b"y")
    group.deliver()
    group.stop_operator(FIRST)
    group.start_operator(SECOND)
    group.check_that_it_works(b"x", b"y")


# -- stalled reconfigurations --------------------------------------------------------------------


def test_v5_a_swap_in_commit_is_ended_with_the_new_node() -> None:
    """Of the fencing ensemble of four, three are needed: the new node must be asked."""
    group = stalled(SWAP, Phase.COMMIT, 1, 2, 3)
    group.crash(1)
    group.start_operator(SECOND)
    leader = group.run_until_steady()
    assert leader in (2, 9)
    assert group.row.ensemble == nodes(1, 2, 9)
    group.check_that_it_works(b"x")


def test_v5_what_was_committed_with_the_new_node_survives_the_leader() -> None:
    """The leader has applied the swap, but nobody wrote that down."""
    group = a_group(1, 2, 3)
    group.change(SWAP, old=3, new=9)
    for _ in range(6):
        group.tick_operator(FIRST)
        group.tick()
        group.deliver(lambda message: not isinstance(message, CommitResponse))
        group.drop(of(CommitResponse))
    group.stop_operator(FIRST)
    assert group[1].ensemble == nodes(1, 2, 9)
    group.isolate(2)
    group.append(1, b"y")
    group.deliver()
    assert group.members[1].propagated == 3, "nodes 1 and 9 have it"
    group.crash(1)
    group.heal()
    group.start_operator(SECOND)
    assert group.run_until_steady() == 9
    group.check_that_it_works(b"x", b"y")


def test_v5_a_swap_in_commit_whose_old_and_new_node_are_lost_is_ended_by_those_who_stay() -> None:
    """They are a majority before the swap and after it; what the new node had helped to commit
    is with one of them."""
    group = a_group(1, 2, 3)
    group.change(SWAP, old=3, new=9)
    for _ in range(6):
        group.tick_operator(FIRST)
        group.tick()
        group.deliver(lambda message: not isinstance(message, CommitResponse))
        group.drop(of(CommitResponse))
    group.stop_operator(FIRST)
    group.isolate(2)
    group.append(1, b"y")
    group.deliver()
    assert group.members[1].propagated == 3, "nodes 1 and 9 have it"
    group.crash(3, 9)
    group.restart(1)
    group.heal()
    group.start_operator(SECOND)
    assert group.run_until_steady() == 1
    assert group.row.ensemble == nodes(1, 2, 9)
    group.check_that_it_works(b"x", b"y")


def test_v2_the_leader_that_ends_an_expansion_counts_all_members() -> None:
    group = stalled(EXPAND, Phase.COMMIT, 1, 2, 3)
    group.crash(1)
    group.start_operator(SECOND)
    leader = group.run_until_steady()
    assert group.row.ensemble == group[leader].ensemble == nodes(1, 2, 3, 9)
    group.restart(1)
    group.run(20)
    others = [number for number in (1, 2, 3, 9) if number != leader]
    group.isolate(*others[1:])
    llsn = group.append(leader, b"y")
    group.deliver(of(AddEntriesRequest, AddEntriesResponse))
    assert group[leader].commit_index < llsn, "two of four"
    group.heal()
    group.check_that_it_works(b"x", b"y")


def test_v7_an_election_rolls_a_contraction_back() -> None:
    group = stalled(CONTRACT, Phase.COMMIT, 1, 2, 3, 4, 5)
    group.crash(1)
    group.start_operator(SECOND)
    group.run_until_steady()
    assert group.row.ensemble == nodes(1, 2, 3, 4, 5)
    group.check_that_it_works(b"x")


def test_v7_what_was_committed_without_most_of_the_rest_survives_the_contraction() -> None:
    """y is on {1, 3, 4} of five, 3 was to leave; the election hears {2, 3, 5}."""
    group = a_group(1, 2, 3, 4, 5)
    group.isolate(2, 5)
    group.append(1, b"y")
    group.run(1)
    assert group.members[1].propagated == 3
    group.dies_in = Phase.COMMIT
    group.change(CONTRACT, old=3)
    group.run(10)
    group.dies_in = None
    group.crash(1, 4)
    group.heal()
    group.start_operator(SECOND)
    leader = group.run_until_steady()
    assert leader == 3
    group.check_that_it_works(b"x", b"y")


def test_a_change_in_prepare_is_resumed_by_another_operator() -> None:
    group = stalled(SWAP, Phase.PREPARE, 1, 2, 3)
    group.start_operator(SECOND)
    group.check_that_it_works(b"x")
    assert group.row.ensemble == nodes(1, 2, 9)


def test_a_change_in_prepare_is_dropped_by_an_election() -> None:
    group = stalled(SWAP, Phase.PREPARE, 1, 2, 3)
    group.crash(1)
    group.start_operator(SECOND)
    group.run_until_steady()
    assert group.row.ensemble == nodes(1, 2, 3)
    group.restart(1)
    group.check_that_it_works(b"x")


def test_a_contraction_that_cannot_be_done_is_given_up_in_the_end() -> None:
    """Nodes 2 and 5 stay away: what is committed stays on {1, 3, 4}, of which 3 may not leave."""
    group = a_group(1, 2, 3, 4, 5)
    group.isolate(2, 5)
    group.append(1, b"y")
    group.run(1)
    group.change(CONTRACT, old=3)
    group.run(60)
    group.heal()
    group.check_that_it_works(b"x", b"y")


# -- two operators -------------------------------------------------------------------------------


def test_v3_a_completion_that_is_late_for_an_election_changes_nothing() -> None:
    """The leader applied the first operator's contraction; its answer waits on the wire."""
    group = a_group(1, 2, 3, 4)
    group.change(CONTRACT, old=4)
    for _ in range(4):
        group.tick_operator(FIRST)
        group.tick()
        group.deliver(lambda message: not isinstance(message, CommitResponse))
    late = group.take_messages(of(CommitResponse))
    assert late
    assert group[1].ensemble == nodes(1, 2, 3)

    group.blind.add(FIRST)
    group.crash(1)
    group.start_operator(SECOND)
    for _ in range(100):
        group.tick_operator(SECOND)
        group.tick()
        group.deliver(lambda message: message.target != FIRST)
        if group.is_steady:
            break
    row = group.row
    assert row.leader != 1
    group.step(late[0])
    assert group.row == row
    group.blind.clear()
    group.restart(1)
    group.check_that_it_works(b"x")
    assert group.row.ensemble == nodes(1, 2, 3, 4)


def test_two_operators_cost_time_but_no_data() -> None:
    group = a_group(1, 2, 3, operators=2)
    for _ in range(5):
        group.elect_by(FIRST)
        group.elect_by(SECOND)
        group.run(2)
    group.check_that_it_works(b"x")


def test_an_operator_of_the_past_fences_nobody() -> None:
    """It reads no rows any more, and its leader died."""
    group = a_group(1, 2, 3, operators=2)
    group.blind.add(FIRST)
    group.crash(1)
    group.run_until_steady()
    term = group.row.term
    group.restart(1)
    group.run(60)
    assert group.row.term == term
    assert not [
        message
        for message in group.sent
        if isinstance(message, FenceRequest) and message.term > term
    ]
    group.check_that_it_works(b"x")


def test_a_node_that_lost_its_disk_is_replaced_by_its_successor() -> None:
    group = a_group(1, 2, 3)
    group.lose_disk(3, successor=10)
    group.run()
    request = group.change(SWAP, old=3, new=10)
    group.run(30)
    assert group.is_done(request)
    assert group.row.ensemble == (NodeId(1), NodeId(2), NodeId(10))
    group.crash(1)
    group.check_that_it_works(b"x")
