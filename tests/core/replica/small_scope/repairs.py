"""One follower is repaired by real operators and replicas, with one message in trouble.

When it is repaired, an entry is acknowledged by the leader and this follower alone.  Then what was
late arrives, the leader dies, and the entry must be in the log of the next one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tests.core.replica.protocol.harness import of
from tests.core.replica.small_scope.trouble import NEVER, Trouble, TroubledGroup

REPAIR_TICKS: Final = 16


class Repair(Enum):
    """What is wrong with the follower."""

    LOST_LOG = "its log is lost"
    TRIMMED = "what it lacks was trimmed away"
    FOREIGN = "it has entries of an older reign that nobody else has"
    BEHIND = "it has all entries, but the cuts that it missed are gone"


def tell(repair: Repair, trouble: Trouble, *, restarts: bool) -> TroubledGroup:
    """Tell one story to its end; ``restarts``: the follower does, before what was late arrives."""
    group = TroubledGroup(1, 2, 3, trouble=trouble)
    leader = group.run_until_steady()
    assert leader == 1
    group.append(leader, b"before")
    group.run(4)
    damage(group, repair)
    group.is_counting = True
    group.run(REPAIR_TICKS)
    group.is_counting = False
    leader = group.run_until_steady()
    follower = 1 if repair is Repair.FOREIGN else 3
    if follower == leader:
        follower = 2  # The trouble made it leader: it is as good as repaired.
    group.isolate(*({1, 2, 3} - {leader, follower}))
    group.append(leader, b"kept")
    group.pass_time(12)
    assert group.members[leader].propagated > group[leader].head.llsn
    if restarts:
        group.restart(follower)
    group.release_late(NEVER)
    group.pass_time(12)
    group.crash(leader)
    group.heal()
    group.run_until_steady()
    assert b"kept" in group.data(group.row.leader)
    group.restart(leader)
    group.run(4)
    for number in group.row.ensemble:
        assert group.data(number)[-1] == b"kept"
    return group


def damage(group: TroubledGroup, repair: Repair) -> None:
    match repair:
        case Repair.LOST_LOG:
            group.lose_log(3)
        case Repair.TRIMMED:
            _trim_while_away(group)
        case Repair.FOREIGN:
            _write_alone(group)
        case Repair.BEHIND:
            _miss_cuts(group)


def _trim_while_away(group: TroubledGroup) -> None:
    group.isolate(3)
    group.append(1, b"x", b"y", b"z")
    group.run(3)
    for number in (1, 2):
        group.trim(number, 4)
        group.restart(number)
    group.run_until_steady()
    group.heal()


def _write_alone(group: TroubledGroup) -> None:
    """The leader writes, nobody hears it, and another one is elected."""
    group.isolate(1)
    group.append(1, b"foreign", b"foreign too")
    group.drop(of(source=1))
    group.crash(1)
    group.heal()
    group.run_until_steady()
    group.restart(1)


def _miss_cuts(group: TroubledGroup) -> None:
    group.append(1, b"x", b"y")
    group.deliver()
    group.report()
    group.cut()
    group.tell_cuts(1, 2)
    group[3].fall_behind(group.order.version)
