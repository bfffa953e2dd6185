"""Log channels of a replica: log sessions, aborts, disposal, BLOBs."""

from __future__ import annotations

import pytest

from tests.core.session.connections import (
    CONTROL_CONNECTION,
    DONE,
    begin,
    code,
    whole,
    with_channels,
)
from tests.core.session.pair import Replica
from tests.core.session.stores import batch
from tidelog.core.session.messages import (
    Ack,
    Answer,
    BlobWrite,
    ErrorCode,
    GroupCommit,
    LogChannelCreate,
    LogChannelDispose,
    LogChannelFlush,
    LogEntryWrite,
    SessionEnd,
)
from tidelog.core.session.output import Prepare, Write
from tidelog.core.session.replica_session import ReplicaState
from tidelog.invariants import InvariantViolation

CONTROL = CONTROL_CONNECTION


def test_without_flush_entries_are_only_taken() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, whole(1, flush=False), (batch(1),)) == DONE
    assert replica.store.flushed[0] == 0
    assert replica.ask(1, LogChannelFlush()) == DONE
    assert replica.store.flushed[0] == 1


@pytest.mark.parametrize("flush", [False, True])
def test_a_message_without_entries_may_only_flush(flush: bool) -> None:
    replica, _ = with_channels()
    answer = replica.ask(1, LogEntryWrite(1, flush=flush))
    assert answer == (DONE if flush else Ack())


def test_a_log_session_without_entries_needs_no_step_of_the_store() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, LogEntryWrite(1, session_begin=True)) == Ack()
    assert replica.ask(1, LogEntryWrite(1, session_abort=True)) == Ack()
    assert replica.ask(1, whole(1, flush=False)) == Ack()
    assert replica.ask(CONTROL, GroupCommit(1)) == DONE


def test_a_log_session_of_many_messages_is_committed_as_one() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, LogEntryWrite(2, session_begin=True), (batch(1),)) == DONE
    assert replica.ask(1, LogEntryWrite(2), (batch(2, 3), batch(5))) == DONE
    assert replica.ask(1, LogEntryWrite(2, session_end=True), (batch(6),)) == DONE
    assert replica.ask(CONTROL, GroupCommit(2)) == DONE
    assert len(replica.store.committed()[0]) == 6


def test_an_abort_takes_all_entries_of_the_log_session_back() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, whole(1), (batch(1, label="kept"),)) == DONE
    assert replica.ask(1, LogEntryWrite(1, session_begin=True), (batch(2),)) == DONE
    assert replica.ask(1, LogEntryWrite(1, session_abort=True), (batch(3),)) == DONE
    assert replica.ask(1, whole(1), (batch(2, label="next"),)) == DONE
    assert replica.ask(CONTROL, GroupCommit(1)) == DONE
    assert replica.store.committed()[0] == [(1, b"kept"), (1, b"next")]


def test_a_write_that_the_master_no_longer_waits_for_is_not_answered() -> None:
    replica, _ = with_channels()
    replica.receive(1, whole(1), (batch(1),))
    replica.core.lost(1)
    replica.work_all()
    assert not replica.answers[1]
    assert replica.core.state is ReplicaState.BROKEN


# -- disposal ------------------------------------------------------------------------------------


def test_disposal_aborts_the_open_log_session() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, whole(1), (batch(1, label="kept"),)) == DONE
    assert replica.ask(1, LogEntryWrite(1, session_begin=True), (batch(2),)) == DONE
    assert replica.ask(1, LogChannelDispose()) == DONE
    assert replica.ask(CONTROL, GroupCommit(1)) == DONE
    assert replica.store.committed()[0] == [(1, b"kept")]
    replica.core.lost(1)
    assert replica.core.state is ReplicaState.OPEN


def test_a_channel_may_be_made_again_after_its_disposal() -> None:
    replica, secret = with_channels()
    assert replica.ask(1, whole(3), (batch(1),)) == DONE
    assert replica.ask(1, LogChannelDispose()) == Ack()
    assert replica.ask(1, LogChannelCreate(secret, 0)) == Ack()
    assert code(replica.ask(1, whole(2), (batch(2),))) is ErrorCode.EPOCH_WENT_BACK
    assert code(replica.ask(1, whole(3), (batch(1),))) is ErrorCode.BAD_ENTRIES
    assert replica.ask(1, whole(3), (batch(2),)) == DONE


# -- BLOBs ---------------------------------------------------------------------------------------


def write_referring(replica: Replica, blob: int, *, connection: int = 1, llsn: int = 1) -> Answer:
    return replica.ask(connection, whole(1), (batch(llsn, blobs=(blob,)),))


def test_entries_come_behind_their_blobs() -> None:
    replica, _ = with_channels()
    assert code(write_referring(replica, 7)) is ErrorCode.BAD_BLOB
    assert replica.ask(1, BlobWrite(7, 0, 10), data=b"1234") == DONE
    assert code(write_referring(replica, 7)) is ErrorCode.BAD_BLOB
    assert replica.store.channels[0] == []
    assert replica.ask(1, BlobWrite(7, 4, 10), data=b"567890") == DONE
    assert write_referring(replica, 7) == DONE


def test_an_entry_may_refer_to_a_blob_that_the_replica_has() -> None:
    replica, _ = with_channels()
    replica.store.blobs.add(7)
    assert write_referring(replica, 7) == DONE


def test_an_entry_may_not_refer_to_a_blob_that_its_channel_is_replacing() -> None:
    replica, _ = with_channels()
    replica.store.blobs.add(7)
    assert replica.ask(1, BlobWrite(7, 0, 2), data=b"1") == DONE
    assert code(write_referring(replica, 7)) is ErrorCode.BAD_BLOB
    assert replica.ask(1, BlobWrite(7, 1, 2), data=b"2") == DONE
    assert write_referring(replica, 7) == DONE


def test_an_empty_blob_comes_in_one_part() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, BlobWrite(7, 0, 0), data=b"") == DONE
    assert write_referring(replica, 7) == DONE


@pytest.mark.parametrize(
    ("part", "data"),
    [
        (BlobWrite(7, 3, 10), b"1"),
        (BlobWrite(7, 5, 10), b"1"),
        (BlobWrite(8, 4, 10), b"1"),
        (BlobWrite(7, 4, 11), b"1"),
        (BlobWrite(7, 4, 10), b"1234567"),
        (BlobWrite(7, 4, 10), b""),
        (BlobWrite(7, 10, 10), b""),
        (BlobWrite(9, 0, 10), b""),
        (BlobWrite(9, 0, 0), b"1"),
        (BlobWrite(9, (1 << 64) - 1, (1 << 64) - 1), b""),
    ],
)
def test_a_part_that_does_not_continue_its_blob_is_refused(part: BlobWrite, data: bytes) -> None:
    replica, _ = with_channels()
    assert replica.ask(1, BlobWrite(7, 0, 10), data=b"1234") == DONE
    assert code(replica.ask(1, part, data=data)) is ErrorCode.BAD_BLOB
    assert replica.core.state is ReplicaState.OPEN
    assert replica.ask(1, BlobWrite(7, 4, 10), data=b"567890") == DONE
    assert replica.store.blobs == {7}


def test_a_blob_may_come_on_two_channels_at_once() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, BlobWrite(7, 0, 10), data=b"1234") == DONE
    assert replica.ask(2, BlobWrite(7, 0, 10), data=b"12") == DONE
    assert replica.ask(1, BlobWrite(7, 4, 10), data=b"567890") == DONE
    assert write_referring(replica, 7) == DONE
    assert replica.ask(2, BlobWrite(7, 2, 10), data=b"34567890") == DONE
    assert replica.ask(2, whole(1), (batch(1, blobs=(7,)),)) == DONE
    assert replica.store.parts == {}


def test_a_blob_may_begin_anew() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, BlobWrite(7, 0, 10), data=b"1234") == DONE
    assert replica.ask(1, BlobWrite(7, 0, 3), data=b"123") == DONE
    assert replica.store.blobs == {7}
    assert replica.store.parts == {}


@pytest.mark.parametrize("how", ["lost", "disposed", "ended", "another"])
def test_a_blob_whose_rest_does_not_come_is_forgotten(how: str) -> None:
    replica, _ = with_channels()
    assert replica.ask(1, BlobWrite(7, 0, 10), data=b"1234") == DONE
    if how == "lost":
        replica.core.lost(1)
        replica.carry_out()
    elif how == "disposed":
        replica.receive(1, LogChannelDispose())
    elif how == "ended":
        replica.receive(CONTROL, SessionEnd())
    else:
        replica.receive(1, BlobWrite(8, 0, 1), data=b"1")
    replica.work_all()
    assert replica.store.parts == {}
    assert 7 not in replica.store.blobs


def test_a_blob_that_cannot_be_stored_breaks_the_session() -> None:
    replica, _ = with_channels()
    replica.receive(1, BlobWrite(7, 0, 1), data=b"1")
    replica.fail(0)
    assert code(replica.answer(1)) is ErrorCode.WRITE_FAILED
    assert replica.core.state is ReplicaState.BROKEN


def test_a_blob_on_its_way_does_not_hold_up_a_group_commit() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, whole(1), (batch(1),)) == DONE
    replica.receive(1, BlobWrite(7, 0, 2), data=b"1")
    assert replica.ask(CONTROL, GroupCommit(1)) == DONE


# -- connections and tickets ---------------------------------------------------------------------


def test_words_on_connections_that_are_gone_are_ignored() -> None:
    replica, _ = with_channels()
    replica.ask(CONTROL, SessionEnd())
    before = replica.core.counters.ignored
    replica.core.received(1, whole(1))
    replica.core.undecodable(1)
    replica.core.lost(1)
    assert replica.core.take() == []
    assert replica.core.counters.ignored == before + 3


def test_a_step_that_is_told_again_changes_nothing() -> None:
    replica, _ = with_channels()
    replica.receive(CONTROL, GroupCommit(1))
    replica.work_all()
    tickets = replica.core._state._last_ticket
    for ticket in range(1, tickets + 1):
        replica.core.done(ticket)
        replica.core.prepared(ticket, (1, 1))
        replica.core.failed(ticket, "late")
    assert replica.core.take() == []
    assert replica.core.state is ReplicaState.OPEN
    assert replica.core.epoch == 1


@pytest.mark.parametrize("ticket", [0, -1, 99])
def test_a_ticket_that_was_never_given_is_our_own_mistake(ticket: int) -> None:
    replica, _ = with_channels()
    with pytest.raises(InvariantViolation):
        replica.core.done(ticket)


def test_what_the_shell_must_not_do_is_noticed() -> None:
    replica, _ = with_channels()
    with pytest.raises(InvariantViolation, match="R1"):
        replica.core.connected(1)
    replica.receive(1, whole(1), (batch(1),))
    (step,) = replica.work[0]
    assert isinstance(step, Write)
    with pytest.raises(InvariantViolation, match="R1"):
        replica.core.received(1, LogChannelFlush())
    with pytest.raises(InvariantViolation, match="R3"):
        replica.core.prepared(step.ticket, ())
    replica.work_all()
    replica.ask(CONTROL, SessionEnd())
    replica.receive(CONTROL, begin())
    (step,) = replica.work[-1]
    assert isinstance(step, Prepare)
    with pytest.raises(InvariantViolation, match="R3"):
        replica.core.done(step.ticket)
