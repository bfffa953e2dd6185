"""How stories of reconfigurations and synchronisations begin."""

from __future__ import annotations

from tests.core.replica.protocol.harness import Group
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import ChangeKind, CommitResponse
from tidelog.core.replica.options import ReplicaOptions


def a_group(
    *data: bytes, ensemble: tuple[int, ...] = (1, 2, 3), options: ReplicaOptions | None = None
) -> Group:
    """Node 1 leads term 2, and all was ordered on all; node 9 is spare."""
    group = Group(*ensemble, spares=[9], options=options)
    group.elect(*ensemble)
    group.append(1, *data)
    group.order_all()
    return group


def commit(group: Group, kind: ChangeKind, *, old: int = 0, new: int = 0) -> bool:
    """Go through a whole change up to the commit request; say whether it was done."""
    prepared = group.prepare(kind, old=old, new=new)
    group.deliver()
    head = group.synchronise(new, prepared) if new else NO_ENTRY
    request = group.commit_request(kind, head, old=old, new=new)
    return group.answer(request, CommitResponse).is_done


def finish(group: Group, *ensemble: int) -> None:
    """Write the row of a change that the leader has applied."""
    group.write_row(leader=1, ensemble=ensemble)


def assert_equal(group: Group, one: int, other: int) -> None:
    """Two replicas have the same entries, in the same order."""
    assert group.log(one) == group.log(other)
    assert group.image(one).glsns() == group.image(other).glsns()
    assert group[one].context.llsn_end == group[other].context.llsn_end
