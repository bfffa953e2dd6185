"""What stops a master, and what it still says then."""

from __future__ import annotations

import pytest

from tests.core.session.pair import Pair
from tidelog.core.session.messages import (
    Ack,
    Answer,
    Error,
    ErrorCode,
    GroupCommit,
    SessionBegun,
)
from tidelog.core.session.options import MasterOptions
from tidelog.core.session.output import (
    CONTROL,
    ChannelBatch,
    Durability,
    RecordLocally,
    Send,
    SendBlob,
)
from tidelog.errors import LogError, ReplicaRefused, ReplicationFailed, StorageFailed
from tidelog.invariants import InvariantViolation


def assert_stopped(pair: Pair, failure: type[LogError]) -> None:
    """Every call raises the failure, and no lane has anything to do."""
    assert type(pair.master.failure) is failure
    for call in (
        pair.master.open,
        lambda: pair.master.switch(99),
        lambda: pair.master.begin(0),
        lambda: pair.master.write(0, ()),
        lambda: pair.master.abort(0),
        lambda: pair.master.set_boundary(1),
        pair.master.close,
    ):
        with pytest.raises(failure):
            call()
    for lane in pair.lanes:
        assert pair.master.take(lane) == []
        assert pair.master.waits(lane) == ()


def committing(options: MasterOptions | None = None, replicas: int = 1) -> Pair:
    """A pair that has just begun the group commit of epoch 1."""
    pair = Pair(options=options, replicas=replicas).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.switch(2)
    pair.fetch(CONTROL)
    return pair


def record(pair: Pair) -> None:
    """Carry out the local part of a group commit."""
    for output in pair.todo[CONTROL]:
        if isinstance(output, RecordLocally):
            pair.carry_out(output)
    pair.look()


# -- replicas ------------------------------------------------------------------------------------


def test_a_replica_that_is_lost_stops_its_master() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.fetch(0)
    pair.master.failed(0, "the connection is gone")
    assert_stopped(pair, ReplicationFailed)
    assert "replica 0: the connection is gone" in str(pair.master.failure)


def test_a_replica_that_is_lost_while_opening_stops_its_master() -> None:
    pair = Pair()
    pair.master.open()
    pair.master.failed(0, "no answer")
    assert_stopped(pair, ReplicationFailed)


def test_a_refusal_while_opening_keeps_its_code() -> None:
    pair = Pair()
    pair.master.open()
    pair.master.take(CONTROL)
    pair.master.answered(0, CONTROL, Error(ErrorCode.WRONG_POSITION, "at epoch 9"))
    assert_stopped(pair, ReplicaRefused)
    assert isinstance(pair.master.failure, ReplicaRefused)
    assert pair.master.failure.code == ErrorCode.WRONG_POSITION
    assert "SessionBegin" in str(pair.master.failure)
    assert "WRONG_POSITION: at epoch 9" in str(pair.master.failure)


@pytest.mark.parametrize("number", [ErrorCode.WRITE_FAILED, 12345])
def test_an_error_of_a_replica_stops_its_master(number: int) -> None:
    pair = committing()
    pair.master.answered(0, CONTROL, Error(number, "no room"))
    assert_stopped(pair, ReplicationFailed)
    record(pair)
    assert pair.epochs(Durability.STORED) == [1]
    assert pair.epochs(Durability.PROPAGATED) == []


def test_an_error_for_a_blob_stops_the_master() -> None:
    pair = Pair(channels=1).opened()
    pair.master.switch(1)
    pair.master.begin(0)
    pair.master.write(0, (ChannelBatch(1, 2, b"", (7,)),), end=True)
    assert isinstance(pair.master.take(0)[0], SendBlob)
    pair.master.answered(0, 0, Error(ErrorCode.BAD_BLOB, "no"))
    assert_stopped(pair, ReplicationFailed)


@pytest.mark.parametrize("answer", [Ack(), SessionBegun("s")])
def test_an_answer_to_nothing_stops_the_master(answer: Answer) -> None:
    pair = Pair().opened()
    pair.master.answered(0, 0, answer)
    assert_stopped(pair, ReplicationFailed)


def test_an_answer_of_the_wrong_kind_stops_the_master() -> None:
    pair = committing()
    pair.master.answered(0, CONTROL, SessionBegun("s"))
    assert_stopped(pair, ReplicationFailed)
    other = Pair()
    other.master.open()
    other.master.take(CONTROL)
    other.master.answered(0, CONTROL, Ack())
    assert_stopped(other, ReplicationFailed)


def test_propagated_needs_every_replica() -> None:
    pair = committing(replicas=2)
    record(pair)
    pair.master.answered(1, CONTROL, Ack())
    pair.look()
    assert pair.epochs(Durability.PROPAGATED) == []
    pair.master.failed(0, "lost")
    pair.master.answered(0, CONTROL, Ack())
    pair.look()
    assert pair.epochs(Durability.STORED) == [1]
    assert pair.epochs(Durability.PROPAGATED) == []
    assert_stopped(pair, ReplicationFailed)


def test_a_stopped_master_tells_of_nothing_that_it_is_propagated() -> None:
    """All replicas have the epoch, but one is lost before the local record is done."""
    pair = committing()
    pair.master.answered(0, CONTROL, Ack())
    pair.master.failed(0, "lost")
    record(pair)
    assert pair.epochs(Durability.STORED) == [1]
    assert pair.epochs(Durability.PROPAGATED) == []


def test_a_stopped_master_begins_no_group_commit() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run_without("answer")
    pair.master.switch(2)
    pair.master.failed(0, "lost")
    assert pair.master.take(CONTROL) == []
    pair.look()
    assert pair.notices == []


def test_the_first_failure_stays() -> None:
    pair = Pair().opened()
    pair.master.store_failed("the disk is full")
    pair.master.failed(0, "lost")
    assert_stopped(pair, StorageFailed)
    assert str(pair.master.failure) == "the disk is full"


def test_a_replica_that_hangs_up_after_the_end_is_no_failure() -> None:
    pair = Pair().opened()
    pair.master.close()
    pair.run()
    assert pair.master.is_ended
    pair.master.failed(0, "the connection is gone")
    assert pair.master.failure is None


def test_with_several_replicas_the_session_ends_with_the_last_answer() -> None:
    pair = Pair(replicas=2).opened()
    pair.master.close()
    pair.master.take(CONTROL)
    pair.master.answered(1, CONTROL, Ack())
    assert not pair.master.is_ended
    pair.master.answered(0, CONTROL, Ack())
    assert pair.master.is_ended


# -- the local store -----------------------------------------------------------------------------


def test_a_store_that_fails_stops_the_master() -> None:
    pair = committing()
    pair.master.store_failed("fdatasync: EIO")
    assert_stopped(pair, StorageFailed)


@pytest.mark.parametrize("options", [MasterOptions(), MasterOptions(parallel_commit=False)])
def test_a_local_step_that_is_told_again_changes_nothing(options: MasterOptions) -> None:
    pair = committing(options)
    (ticket,) = [each.ticket for each in pair.todo[CONTROL] if isinstance(each, RecordLocally)]
    for earlier in range(1, ticket):
        pair.master.stored(earlier)
    assert pair.master.stored_epoch == 0
    pair.master.stored(ticket)
    pair.master.stored(ticket)
    assert pair.master.stored_epoch == 1
    pair.look()
    assert pair.epochs(Durability.STORED) == [1]


@pytest.mark.parametrize("ticket", [0, -1, 99])
def test_a_local_step_that_there_was_not_is_our_own_mistake(ticket: int) -> None:
    pair = committing()
    with pytest.raises(InvariantViolation, match="P1"):
        pair.master.stored(ticket)


def test_answers_may_come_in_any_order_of_the_replicas() -> None:
    pair = committing(replicas=3)
    record(pair)
    assert pair.master.waits(CONTROL) == (0, 1, 2)
    for replica in (2, 0, 1):
        pair.master.answered(replica, CONTROL, Ack())
    pair.look()
    assert pair.epochs(Durability.PROPAGATED) == [1]
    commits = [each for each in pair.story if isinstance(each, Send)]
    assert sum(isinstance(each.message, GroupCommit) for each in commits) == 3
