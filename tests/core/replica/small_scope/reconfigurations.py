"""One reconfiguration by real operators and replicas, with one message in trouble.

Whatever the trouble was: then the leader dies, another one is elected, and the stream works.
"""

from __future__ import annotations

from typing import Final

from tests.core.replica.small_scope.trouble import LATE_TICKS, NEVER, Trouble, TroubledGroup
from tidelog.core.replica.messages import ChangeKind

RUN_TICKS: Final = 24
SPARE: Final = 9


def tell(kind: ChangeKind, trouble: Trouble) -> TroubledGroup:
    """Tell one story to its end; return the group as it is then."""
    ensemble = (1, 2, 3, 4) if kind is ChangeKind.CONTRACT else (1, 2, 3)
    group = TroubledGroup(*ensemble, spares=[SPARE], trouble=trouble)
    leader = group.run_until_steady()
    group.append(leader, b"before")
    group.run(4)
    old = 0 if kind is ChangeKind.EXPAND else min(set(group.row.ensemble) - {leader})
    new = 0 if kind is ChangeKind.CONTRACT else SPARE
    group.is_counting = True
    group.change(kind, old=old, new=new)
    group.run(1)
    group.append(group.run_until_led(), b"meanwhile")
    group.run(RUN_TICKS)
    group.is_counting = False
    group.run_until_steady()
    group.crash(group.row.leader)
    group.run_until_steady()
    group.check_that_it_works(b"before", b"meanwhile")
    group.restart(*[number for number in group.members if number not in group.alive])
    group.release_late(NEVER)
    group.run(LATE_TICKS)
    group.check_that_it_works(b"before", b"meanwhile", b"in the end")
    return group
