"""Cuts that the order layer has forgotten are known to replicas alone: these must not forget them.

In all stories node 2 takes entries, but hears of no cut for long; so nodes 1 and 3 are the majority
that knows the first cuts, and these are kept for nobody.
"""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.beginnings import assert_equal, commit
from tests.core.replica.protocol.harness import Group, of
from tidelog.core.replica import ordering
from tidelog.core.replica.messages import (
    ChangeKind,
    CutsRequest,
    Role,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.types import Version

SYNC = of(SyncInitRequest, SyncInitResponse, SyncEntriesRequest, SyncEntriesResponse)


def order_for(group: Group, *numbers: int) -> None:
    """Order what is there, with the word of these nodes, which hear of it and say so."""
    group.deliver()
    group.report(*numbers)
    assert group.cut()
    group.tell_cuts(*numbers)
    group.report(*numbers)


def a_leader_that_has_trimmed_all_that_another_has(snapshot: int = 0) -> Group:
    """Node 1 leads, and begins to fill up node 3, whose log ends before that of node 1 begins."""
    group = Group(1, 2, 3, spares=[4], options=ReplicaOptions(message_bytes_max=1))
    group.elect(1, 2, 3)
    for data in (b"a", b"b"):
        group.append(1, data)
        order_for(group, 1, 3)
    if snapshot:
        group.compact(3, snapshot)
    group.isolate(3)
    for data in (b"c", b"d", b"e", b"f"):
        group.append(1, data)
        order_for(group, 1)
    assert group.order.commits_after(group.row.stream, Version(1)) is None, "cut 2 is forgotten"
    group.trim(1, 5)
    group.heal()
    group.elect(1, 2, 3)
    return group


def later_glsns(group: Group, number: int) -> dict[int, int]:
    """The GLSNs of entries that were not trimmed."""
    image = group.image(number)
    return {llsn: glsn for llsn, glsn in image.glsns().items() if llsn >= image.first}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("messages", range(1, 5))
def test_forgotten_cuts_survive_a_leader_that_dies_while_it_fills_up_who_knows_them(
    messages: int, restarts: bool
) -> None:
    """Node 1 does not come back: it is swapped for node 4."""
    group = a_leader_that_has_trimmed_all_that_another_has()
    for _ in range(messages):
        for message in group.take_messages(SYNC):
            group.step(message)
    assert not group[3].is_complete
    group.isolate(1)
    group.crash(1)
    group.drop()
    if restarts:
        group.restart(3)

    group.elect(2, 3)
    for _ in range(30):
        group.pass_time(2)
        group.order_all()
    group.append(2, b"g")
    group.order_all()
    assert group.members[2].ordered == group[2].head.llsn + 1
    assert_equal(group, 2, 3)
    assert group.data(2) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]

    commit(group, ChangeKind.SWAP, old=1, new=4)
    group.write_row(leader=2, ensemble=(2, 3, 4))
    group.append(2, b"h")
    group.order_all()
    assert_equal(group, 2, 4)


def test_who_was_filled_up_has_what_the_leader_has_and_no_more() -> None:
    """What it kept meanwhile was trimmed by the leader."""
    group = a_leader_that_has_trimmed_all_that_another_has()
    group.pass_time(30)
    assert group[3].is_complete
    assert group.data(3) == group.data(1) == [b"e", b"f"]
    assert (group[3].first, group[3].context) == (group[1].first, group[1].context)
    group.restart(3)
    assert group[3].head == group[1].head
    group.append(1, b"g")
    group.order_all()
    assert group.log(3) == group.log(1)
    assert later_glsns(group, 3) == later_glsns(group, 1)


def test_a_filling_that_begins_anew_gives_up_no_cut_either() -> None:
    """The leader trims while it fills up: what it has sent is of no use any more."""
    group = a_leader_that_has_trimmed_all_that_another_has()
    group.deliver(of(SyncInitRequest, SyncInitResponse))
    known = group[3].context
    assert known.version == 2
    group.trim(1, 6)
    group.deliver(of(SyncInitRequest, SyncInitResponse))
    assert group[3].context == group.image(3).context == known
    group.pass_time(30)
    assert group.data(3) == group.data(1) == [b"f"]
    assert later_glsns(group, 3) == later_glsns(group, 1)


def test_what_a_snapshot_says_of_trimmed_entries_does_not_hide_the_state_of_the_leader() -> None:
    group = a_leader_that_has_trimmed_all_that_another_has(snapshot=2)
    group.pass_time(30)
    assert group[3].is_complete
    assert group.image(3).state == group.image(1).state == b""


def test_who_misses_cuts_does_not_let_a_leader_make_way() -> None:
    """Node 2 missed only the second cut, and has compacted: node 1 may be elected again."""
    group = Group(1, 2, 3, 4, 5)
    group.elect(1, 2, 3, 4, 5)
    group.append(1, b"a")
    order_for(group, 2, 3, 4, 5)
    group.append(1, b"b")
    order_for(group, 3, 4, 5)
    group.compact(2, 1, 1)
    for number in (1, 2):
        group[number].fall_behind(group.order.version)
    group.isolate(3, 4, 5)
    group.drop()
    group.pass_time(10)
    assert any(isinstance(one, CutsRequest) and one.target == 2 for one in group.sent)
    assert group[1].role is Role.LEADER
    group.heal()
    group.pass_time(10)
    assert_equal(group, 1, 3)


def test_a_leader_that_missed_more_cuts_than_a_message_holds_hears_of_all() -> None:
    """It has the highest head, so it leads; and there is nobody who would fill it up."""
    with pytest.MonkeyPatch.context() as small:
        small.setattr(ordering, "RUNS_MIN", 3)
        group = Group(1, 2, 3, options=ReplicaOptions(message_bytes_max=1))
        group.elect(1, 2, 3)
        for _ in range(10):
            group.append(1, b"x")
            order_for(group, 1, 2)
        group.append(1, b"y")
        group.deliver(of(target=3))
        group.drop()
        group.crash(1)
        group.elect(3, 2)
        for _ in range(5):
            group.pass_time(2)
            group.report()
            group.cut()
            group.tell_cuts()
    assert group[3].head.llsn == group[3].context.llsn_end - 1
    assert group.image(3).glsns() == group.image(2).glsns()
