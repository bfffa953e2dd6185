"""Swaps while replicas are the only ones that know some cuts: they must not be let go too early.

Node 3 takes entries, but hears of no cut for long; so node 1, which leads, and node 2 are the
majority that knows the first cuts, and these are kept for nobody.  Then the disk of node 1 is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.core.replica.protocol.harness import of
from tests.core.replica.protocol.operated import OPERATORS_FROM, OperatedGroup
from tidelog.core.operator.output import Result
from tidelog.core.operator.plan import Phase
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    ChangeKind,
    CutsResponse,
    Message,
    Refusal,
    Role,
    SnapshotRequest,
    SyncInitRequest,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.types import NO_VERSION

DATA = (b"a", b"b", b"c", b"d")


def run(
    group: OperatedGroup,
    *heard: int,
    until: Callable[[], bool],
    but: Callable[[Message], bool] = lambda _: False,
) -> None:
    """Let time pass; the order layer hears of these nodes alone, and some messages are lost."""
    for _ in range(300):
        for number in group.operators:
            group.tick_operator(number)
        group.tick()
        for _ in range(30):
            group.drop(but)
            for message in group.take_messages():
                group.step(message)
        if heard:
            group.report(*heard)
            group.cut()
            group.tell_cuts(*heard)
        if until():
            return
    raise AssertionError("it does not come to that")


def a_leader_that_lacks_cuts() -> OperatedGroup:
    """Node 3 leads, and has not asked node 2 yet."""
    group = OperatedGroup(1, 2, 3, spares=[4])
    run(group, 1, 2, until=lambda: group.is_steady)
    assert group.row.leader == 1
    for data in DATA[:-1]:
        end = group.append(1, data) + 1
        run(group, 1, 2, until=partial(knows_order_up_to, group, end))
    group.report(1, 2)
    assert group.order.commits_after(group.row.stream, NO_VERSION) is None, "cut 1 is forgotten"
    group.append(1, DATA[-1])
    group.deliver(of(target=3))
    group.drop()
    group.crash(1)
    group.isolate(1)
    run(group, until=lambda: group.is_steady and group.row.leader == 3, but=of(CutsResponse))
    assert group[3].context.version == NO_VERSION
    return group


def knows_order_up_to(group: OperatedGroup, end: int) -> bool:
    return group.image(2).context.llsn_end >= end


def is_over(group: OperatedGroup, request: int) -> bool:
    return request in group.outcomes


def test_a_swap_does_not_let_go_who_alone_knows_cuts() -> None:
    """Node 2 is out of reach for a while, and is swapped; node 3 is not told what it lacks."""
    group = a_leader_that_lacks_cuts()
    group.isolate(1, 2)
    request = group.change(ChangeKind.SWAP, old=2, new=4)
    run(group, until=lambda: is_over(group, request))
    group.heal()
    group.isolate(1)
    group.check_that_it_works(*DATA)
    assert group.outcomes[request].result is Result.ABORTED
    again = group.change(ChangeKind.SWAP, old=1, new=4)
    run(group, 2, 3, 4, until=lambda: is_over(group, again))
    assert group.is_done(again)
    group.check_that_it_works(*DATA, b"in the end")


def test_a_leader_asks_who_is_about_to_leave_before_it_fills_up_who_comes_instead() -> None:
    group = a_leader_that_lacks_cuts()
    group.tell_cuts(3)
    assert group[3].is_behind
    request = group.change(ChangeKind.SWAP, old=2, new=4)
    run(
        group,
        until=lambda: sum(isinstance(each, SnapshotRequest) for each in group.sent) > 2,
        but=of(CutsResponse),
    )
    assert not any(isinstance(each, SyncInitRequest) for each in group.sent)
    run(group, 2, 3, until=lambda: is_over(group, request))
    assert group.is_done(request)
    group.check_that_it_works(*DATA)


def two_followers_that_alone_know_cuts(*, is_blind: bool) -> OperatedGroup:
    """Node 1 leads and hears of no cut; a blind operator has read of none, either."""
    group = OperatedGroup(1, 2, 3, spares=[4])
    run(group, 2, 3, until=lambda: group.is_steady)
    assert group.row.leader == 1
    if is_blind:
        group.blind.add(OPERATORS_FROM)
    for data in DATA:
        end = group.append(1, data) + 1
        run(group, 2, 3, until=partial(know_order_up_to, group, end, 2, 3))
    group.report(2, 3)
    assert group.order.commits_after(group.row.stream, NO_VERSION) is None, "they are forgotten"
    assert group[1].context.version == NO_VERSION
    return group


def know_order_up_to(group: OperatedGroup, end: int, *numbers: int) -> bool:
    return all(group.image(number).context.llsn_end >= end for number in numbers)


def is_in(group: OperatedGroup, phase: Phase) -> bool:
    change = group.plan.change
    return change is not None and change.phase is phase


def test_a_swap_waits_for_cuts_that_were_made_since_its_operator_last_read_the_row() -> None:
    """Node 3 leaves, and node 2 loses its disk: the new node may not lack what node 3 knows."""
    group = two_followers_that_alone_know_cuts(is_blind=True)
    request = group.change(ChangeKind.SWAP, old=3, new=4)
    run(group, until=lambda: is_in(group, Phase.PREPARE))
    group.blind.clear()
    run(group, until=lambda: group[4].is_complete)
    group.lose_disk(2, 9)
    assert is_in(group, Phase.PREPARE)
    # The leader hears at last that it lacks cuts, and fills the new node up once more.
    run(group, 1, 3, 4, until=lambda: is_over(group, request))
    assert group.is_done(request)
    group.check_that_it_works(*DATA)


def test_a_contraction_waits_for_a_leader_that_lacks_cuts() -> None:
    """Node 2 was damaged and filled up by that leader: only node 3, which leaves, knows them."""
    group = two_followers_that_alone_know_cuts(is_blind=False)
    group.lose_log(2)
    run(group, until=lambda: group[2].is_complete)
    request = group.change(ChangeKind.CONTRACT, old=3)
    run(group, until=lambda: is_over(group, request))
    assert not group.is_done(request)
    group.check_that_it_works(*DATA)
    again = group.change(ChangeKind.CONTRACT, old=3)
    group.run(30)
    assert group.is_done(again)
    group.check_that_it_works(*DATA, b"in the end")


def followers_that_have_compacted(
    *knowing: int, size: int = 3, window: int = 1 << 20
) -> OperatedGroup:
    """Node 1 leads and misses cuts; those who know them have forgotten the GLSN of what is dead."""
    options = ReplicaOptions(inflight_bytes_max=window)
    group = OperatedGroup(*range(1, size + 1), spares=[9], replica_options=options)
    run(group, *knowing, until=lambda: group.is_steady)
    assert group.row.leader == 1
    for data in DATA:
        end = group.append(1, data) + 1
        run(group, *knowing, until=partial(know_order_up_to, group, end, *knowing))
    group.report(*knowing)
    assert group.order.commits_after(group.row.stream, NO_VERSION) is None, "they are forgotten"
    for number in knowing:
        group.compact(number, 2, 2)
    return group


def has_asked_in_vain(group: OperatedGroup) -> bool:
    """Whether the leader, node 1, was refused more often than it has others to ask."""
    refusals = [one for one in group.sent if isinstance(one, Refusal) and one.target == 1]
    return len(refusals) > 2


def test_a_leader_whom_nobody_can_tell_the_cuts_that_it_misses_makes_way() -> None:
    group = followers_that_have_compacted(2, 3)
    group.check_that_it_works(DATA[0], *DATA[2:])
    assert group.row.leader != 1
    assert group[1].context == group[group.row.leader].context


def test_a_leader_makes_way_to_the_last_one_who_knows_the_cuts() -> None:
    """The other one is lost with its disk; who comes in its place has to be filled up."""
    group = followers_that_have_compacted(2, 3)
    group.lose_disk(3, 4)
    group.check_that_it_works(DATA[0], *DATA[2:])
    assert group.row.leader == 2
    request = group.change(ChangeKind.SWAP, old=3, new=4)
    group.run(40)
    assert group.is_done(request)
    group.check_that_it_works(DATA[0], *DATA[2:], b"in the end")


def test_two_that_miss_cuts_do_not_pass_the_leadership_to_one_another() -> None:
    """Node 2 misses them as well, and would be the first one to be elected."""
    group = followers_that_have_compacted(3, 4, 5, size=5)
    term = group.row.term
    group.check_that_it_works(DATA[0], *DATA[2:])
    assert group.row.leader == 3
    assert group.row.term == term + 1, "one election was enough"


def test_a_leader_makes_way_to_who_is_to_leave() -> None:
    """Nobody can be put in its place as long as the leader misses the cuts."""
    group = followers_that_have_compacted(2, 3)
    group.crash(3)
    request = group.change(ChangeKind.SWAP, old=2, new=9)
    run(group, until=lambda: is_in(group, Phase.PREPARE))
    group.append(1, b"e")
    run(group, until=lambda: is_over(group, request))
    assert not group.is_done(request)
    group.check_that_it_works(DATA[0], *DATA[2:], b"e")
    assert group.row.leader == 2


def test_a_leader_does_not_make_way_to_who_lacks_some_of_its_log() -> None:
    """It would be elected again, and again before that one has caught up."""
    group = followers_that_have_compacted(2, 3, window=1)
    term = group.row.term
    group.append(1, b"e", b"f")
    group.tell_cuts(1)
    run(group, until=partial(has_asked_in_vain, group), but=of(AddEntriesRequest))
    assert (group.row.term, group[1].role) == (term, Role.LEADER)
    group.check_that_it_works(DATA[0], *DATA[2:], b"e", b"f")
    assert group.row.leader != 1
