"""What counts as durable, and when, while writes are on their way."""

from __future__ import annotations

import pytest

from tests.core.replica.unit.alone import batch
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import GlsnRun
from tidelog.core.replica.log import ReplicaLog
from tidelog.core.replica.output import HardState, Write
from tidelog.core.replica.writes import Writes
from tidelog.invariants import InvariantViolation
from tidelog.types import FIRST_LLSN, Llsn, Term

CONTEXT = CommitContext(1, 2, 1, 1, 2)


class Kept:
    """A log, and the writes that it needs."""

    def __init__(self) -> None:
        self.log = ReplicaLog()
        self.writes = Writes(FIRST_LLSN, NONE)

    def append(self, *begins: int, term: int = 1) -> None:
        for begin in begins:
            each = batch(term, begin)
            self.log.append(each)
            self.writes.append(each)

    def truncate(self, end: int) -> None:
        self.log.truncate(Llsn(end))
        self.writes.truncate(Llsn(end))

    def take(self) -> Write:
        write = self.writes.take(self.log)
        assert write is not None
        assert self.writes.flaw(self.log) is None
        return write


def test_what_was_cut_off_after_it_was_handed_out_does_not_count() -> None:
    kept = Kept()
    kept.append(1, 2, 3)
    kept.take()
    kept.truncate(2)
    kept.append(2, term=2)
    kept.writes.complete(1)
    assert kept.writes.durable_end == 2
    write = kept.take()
    assert (write.truncate_to, write.batches) == (2, (batch(2, 2),))
    kept.writes.complete(2)
    assert kept.writes.durable_end == 3


def test_what_was_never_handed_out_is_not_cut_on_disk() -> None:
    kept = Kept()
    kept.append(1, 2)
    kept.truncate(2)
    write = kept.take()
    assert (write.truncate_to, write.batches) == (None, (batch(1, 1),))


def test_glsns_of_what_was_cut_off_before_it_was_handed_out_are_not_written() -> None:
    kept = Kept()
    kept.append(1, 2)
    kept.writes.order((GlsnRun(Llsn(1), 1, 1), GlsnRun(Llsn(2), 5, 1)), None)
    kept.truncate(2)
    assert kept.take().runs == (GlsnRun(Llsn(1), 1, 1),)


def test_a_term_is_durable_with_the_last_write_that_brought_one() -> None:
    kept = Kept()
    kept.writes.set_hard_state(HardState(Term(1), True))
    kept.take()
    kept.writes.set_hard_state(HardState(Term(2), True))
    kept.writes.complete(1)
    assert not kept.writes.hard_state_durable
    kept.take()
    kept.writes.complete(2)
    assert kept.writes.hard_state_durable


def test_an_empty_context_waits_for_another_write() -> None:
    kept = Kept()
    kept.writes.rise(CommitContext(5, 0, 1, 1, 0))
    assert kept.writes.take(kept.log) is None
    kept.append(1)
    assert kept.take().context == CommitContext(5, 0, 1, 1, 0)


def test_a_wipe_takes_all_that_was_to_be_written_before_but_not_the_term() -> None:
    kept = Kept()
    kept.append(1, 2)
    kept.writes.order((GlsnRun(Llsn(1), 1, 2),), CONTEXT)
    kept.writes.set_hard_state(HardState(Term(3), False))
    kept.log.begin_anew(Llsn(7))
    kept.writes.wipe(Llsn(7))
    assert kept.take() == Write(1, wipe=True, hard_state=HardState(Term(3), False))
    assert (kept.writes.durable_end, kept.writes.durable_context) == (7, NONE)


def test_a_write_from_before_a_wipe_brings_nothing_back() -> None:
    kept = Kept()
    kept.append(1, 2)
    kept.writes.order((GlsnRun(Llsn(1), 1, 2),), CONTEXT)
    kept.take()
    kept.log.begin_anew(FIRST_LLSN)
    kept.writes.wipe(FIRST_LLSN)
    kept.writes.complete(1)
    assert (kept.writes.durable_end, kept.writes.durable_context) == (FIRST_LLSN, NONE)


def test_a_write_that_was_never_handed_out_cannot_complete() -> None:
    with pytest.raises(InvariantViolation, match="W1"):
        Kept().writes.complete(1)
