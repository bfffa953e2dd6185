"""Swaps while replicas are the only ones that know some cuts: they must not be let go too early.

Node 3 takes entries, but hears of no cut for long; so node 1, which leads, and node 2 are the
majority that knows the first cuts, and these are kept for nobody.  Then the disk of node 1 is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.core.replica.protocol.harness import of
from tests.core.replica.protocol.operated import OperatedGroup
from tidelog.core.operator.output import Result
from tidelog.core.replica.messages import ChangeKind, CutsResponse, Message, SnapshotRequest
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
        until=lambda: any(isinstance(each, SnapshotRequest) for each in group.sent),
        but=of(CutsResponse),
    )
    run(group, 2, 3, until=lambda: is_over(group, request))
    assert group.is_done(request)
    group.check_that_it_works(*DATA)
