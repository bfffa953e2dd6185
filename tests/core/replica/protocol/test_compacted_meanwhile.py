"""Compaction takes entries, and their GLSNs with them, while a replica is filled up with them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

from tests.core.replica.protocol.beginnings import a_group, assert_equal
from tests.core.replica.protocol.disk import Disk, clip
from tests.core.replica.protocol.harness import Group, of
from tidelog.core.replica.entries import GlsnRun
from tidelog.core.replica.messages import (
    ChangeKind,
    SnapshotResponse,
    SyncInitResponse,
)
from tidelog.types import Llsn


def glsns_are_gone(disk: Disk, before: int) -> AbstractContextManager[object]:
    """A disk knows no GLSNs below an LLSN: they went with the segments that they were in."""
    read = Disk.runs

    def kept(each: Disk, begin: Llsn, end: Llsn) -> tuple[GlsnRun, ...] | None:
        first = Llsn(before if each is disk else begin)
        found = read(each, begin, end) or ()
        return tuple(run for one in found if (run := clip(one, first, end)).length > 0)

    return patch.object(Disk, "runs", kept)


def test_entries_whose_glsns_are_gone_are_not_sent_without_them() -> None:
    """The leader has read the entries, then they died, and it has not heard of that yet."""
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.append(1, b"x", b"y", b"z")
    group.order_all()
    prepared = group.prepare(ChangeKind.EXPAND, new=4)
    assert not group.ask(group.snapshot_request(4, prepared))
    with glsns_are_gone(group.members[1].disk, before=3):
        for _ in range(5):
            group.deliver()
            group.tick()
        assert not group.image(4).entries(), "it got entries without GLSNs"
        group.compact(1, 2, 1, 2)
        for _ in range(20):
            group.deliver()
            if group.take_messages(of(SnapshotResponse, source=4)):
                break
            group.tick()
    assert group.data(4) == [b"z"]
    assert set(group.image(4).glsns()) == set(group.image(4).entries())


def test_kept_entries_whose_glsns_are_gone_are_given_up_and_brought_anew() -> None:
    """The replica keeps what it has not ordered yet, and then the leader compacts some of that."""
    group = a_group(b"a")
    group.append(1, b"b", b"c")
    group.deliver()
    group.isolate(3)
    for data in (b"d", b"e"):
        group.append(1, data)
        group.deliver()
        group.report()
        group.cut()
        group.tell_cuts(1, 2)
    group[1].joined(Llsn(4))
    group.heal()
    group.elect(1, 2, 3)
    with glsns_are_gone(group.members[1].disk, before=3):
        group.pass_time(10)
        [answer] = [each for each in group.sent if isinstance(each, SyncInitResponse)]
        assert (answer.ordered_end, answer.begin) == (2, 4), "it keeps what it has not ordered"
        assert group[3].durable_context.llsn_end == 2, "nothing came without its GLSNs"
        group.compact(1, 4, 2)
        group.pass_time(60)
        assert group[3].is_complete
        assert group.data(3)[:3] == [b"a", b"c", b"d"]
        group.order_all()
    assert_equal(group, 1, 3)
