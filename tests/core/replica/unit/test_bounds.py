"""A disk that stands still or a quorum that is gone does not make a replica grow without end."""

from __future__ import annotations

import pytest

from tests.core.replica.unit.alone import ME, OPERATOR, STREAM, Alone, cut
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    AddEntriesResponse,
    FenceRequest,
    FenceResponse,
    FollowerHead,
)
from tidelog.core.replica.options import Ignored, ReplicaOptions
from tidelog.core.replica.replica import Appended
from tidelog.errors import BadOption, Busy
from tidelog.types import Llsn, NodeId, ProducerId, Term, Version

FOLLOWER = NodeId(2)


def test_answers_that_wait_for_the_disk_are_bounded() -> None:
    alone = Alone(ReplicaOptions(promises_max=3))
    alone.disk.holds_back = True
    request = FenceRequest(OPERATOR, ME, STREAM, Term(1), True)
    assert alone.step(*[request] * 100) == []
    assert alone.replica.ignored == {Ignored.CROWDED: 97}
    alone.sync()
    alone.carry_out()
    assert [type(message) for message in alone.sent] == [FenceResponse] * 3
    alone.disk.holds_back = False
    assert alone.step(request), "who asks again is answered"


def crowded() -> Alone:
    """A leader whose follower answers nothing, with as much as it may take."""
    alone = Alone(ReplicaOptions(uncommitted_bytes_max=1_000))
    alone.lead(1, ensemble=(1, 2), followers=(FollowerHead(FOLLOWER, NO_ENTRY, True),))
    alone.replica.append(b"x" * 1_000, 1, producer=ProducerId(7), sequence=1)
    alone.carry_out()
    return alone


def test_a_leader_takes_more_when_a_cut_tells_that_a_quorum_has_all() -> None:
    alone = crowded()
    alone.replica.commit((cut(1, 1, 1, term=1),), Version(1))
    alone.carry_out()
    assert isinstance(alone.replica.append(b"y", 1), Appended)


def test_a_leader_without_a_quorum_takes_only_so_much() -> None:
    alone = crowded()
    head = alone.replica.head
    with pytest.raises(Busy, match="wait for a quorum"):
        alone.replica.append(b"y", 1)
    assert alone.replica.head == head


def test_a_repeated_append_is_answered_however_much_waits() -> None:
    again = crowded().replica.append(b"x" * 1_000, 1, producer=ProducerId(7), sequence=1)
    assert again == Appended(Llsn(1), 1, True)


def test_a_leader_takes_more_when_a_quorum_has_what_waited() -> None:
    alone = crowded()
    alone.step(AddEntriesResponse(FOLLOWER, ME, STREAM, Term(1), Llsn(1)))
    assert alone.replica.commit_index == 1
    assert isinstance(alone.replica.append(b"y", 1), Appended)


@pytest.mark.parametrize("name", ["promises_max", "uncommitted_bytes_max"])
def test_a_bound_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match=name):
        ReplicaOptions(**{name: 0})
