"""What a replica makes of what its host found on disk."""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.disk import Image
from tests.core.replica.unit.alone import ME, STREAM, Alone, batch, entry
from tidelog import limits
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import FenceResponse, Role
from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.replica.output import HardState
from tidelog.core.replica.replica import Replica, Stored
from tidelog.errors import BadOption, CorruptData
from tidelog.types import Llsn, Term

RUNS = ((Term(1), Llsn(1)), (Term(2), Llsn(3)))
SOUND = Stored(HardState(Term(2), True), end=Llsn(5), terms=RUNS)
ORDERED = CommitContext(1, 3, 1, 1, 3)


def start(stored: Stored) -> Replica:
    return Replica(ME, STREAM, stored, Alone().disk, ReplicaOptions())


def test_who_has_nothing_is_no_member() -> None:
    replica = start(Stored())
    assert (replica.role, replica.term, replica.is_complete) == (Role.NOT_MEMBER, 0, False)


def test_who_has_a_term_is_fenced_in_it() -> None:
    replica = start(SOUND)
    assert (replica.role, replica.term, replica.head) == (Role.FENCED, 2, entry(2, 4))
    assert replica.report() is None


def test_who_was_dropped_is_no_member_but_knows_its_term() -> None:
    replica = start(Stored(HardState(Term(4), False, is_member=False)))
    assert (replica.role, replica.term) == (Role.NOT_MEMBER, 4)


BROKEN = {
    "a log without a term": Stored(end=Llsn(3), terms=RUNS[:1]),
    "terms that fall": Stored(SOUND.hard_state, end=Llsn(5), terms=RUNS[::-1]),
    "no term of the last entry": Stored(SOUND.hard_state, end=Llsn(5)),
    "an entry of the future": Stored(HardState(Term(1), True), end=Llsn(5), terms=RUNS),
    "a context beyond the log": Stored(SOUND.hard_state, context=ORDERED),
    "a log that begins beyond the ordered part": Stored(
        SOUND.hard_state, first=Llsn(3), end=Llsn(5), terms=RUNS
    ),
    "a log that is known to be damaged": Stored(
        SOUND.hard_state, end=Llsn(5), terms=RUNS, is_sound=False
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_complete_replica_does_not_start_from_what_contradicts_itself(name: str) -> None:
    stored = BROKEN[name]
    if stored.hard_state is None:
        assert start(stored).head == NO_ENTRY
        return
    with pytest.raises(CorruptData):
        start(stored)


@pytest.mark.parametrize("name", BROKEN)
def test_an_incomplete_replica_starts_from_anything_and_trusts_none_of_it(name: str) -> None:
    broken = BROKEN[name]
    replica = start(
        Stored(
            HardState(Term(2 if broken.hard_state is None else broken.hard_state.term), False),
            broken.first,
            broken.end,
            broken.terms,
            broken.context,
            is_sound=broken.is_sound and broken.hard_state is not None,
        )
    )
    assert (replica.head, replica.context, replica.is_complete) == (NO_ENTRY, NONE, False)
    replica.validate()


def test_who_was_filled_in_part_says_what_it_had() -> None:
    alone = Alone()
    alone.disk.durable = Image(hard_state=HardState(Term(2), False, had=entry(2, 9)))
    alone.restart()
    (answer,) = alone.fence(3, is_first=False)
    assert isinstance(answer, FenceResponse)
    assert (answer.is_complete, answer.had) == (False, entry(2, 9))


def test_who_never_was_a_member_had_nothing() -> None:
    (answer,) = Alone().fence(3, is_first=False)
    assert isinstance(answer, FenceResponse)
    assert (answer.is_complete, answer.had) == (False, NO_ENTRY)


def test_recent_batches_are_bounded() -> None:
    alone = Alone(ReplicaOptions(recent_bytes_max=1_000))
    alone.lead(2)
    for _ in range(100):
        alone.append(b"x" * 100)
    assert len(alone.disk.seen.batches) == 100
    assert alone.replica._state.log.recent_bytes <= 2 * 1_000 + 200


@pytest.mark.parametrize(
    "options",
    [
        {"resend_ticks": 0},
        {"heartbeat_ticks": 1_001},
        {"message_bytes_max": 0},
        {"inflight_bytes_max": limits.IN_FLIGHT_BYTES_MAX + 1},
        {"pending_cuts_max": limits.ORDER_UNAPPLIED_CUTS_MAX},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(BadOption):
        ReplicaOptions(**options)


def test_a_follower_that_restarts_is_silent_until_its_log_was_compared() -> None:
    alone = Alone()
    alone.follow(2, batch(2, 1), commit=1)
    assert alone.replica.report() is not None
    alone.restart()
    assert alone.replica.report() is None
    alone.add_entries(2, entry(2, 1), commit=1)
    report = alone.replica.report()
    assert report is not None
    assert (report.term, report.llsn_begin, report.length) == (2, 1, 1)
