"""The error table of docs/sessions.md, row by row, and what becomes of the session."""

from __future__ import annotations

import hmac

import msgspec
import pytest

from tests.core.session.connections import (
    CONTROL_CONNECTION,
    DONE,
    begin,
    begun,
    code,
    whole,
    with_channels,
)
from tests.core.session.pair import Replica
from tests.core.session.stores import Store, batch
from tidelog.core.session import replica_session
from tidelog.core.session.epochs import BOUNDARY_END
from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Ack,
    BlobWrite,
    Error,
    ErrorCode,
    GcBoundarySwitch,
    GroupCommit,
    LogChannelCreate,
    LogChannelDispose,
    LogChannelFlush,
    LogEntryWrite,
    Request,
    SafeSnapshotSwitch,
    SessionBegin,
    SessionBegun,
    SessionEnd,
)
from tidelog.core.session.output import ChannelBatch
from tidelog.core.session.replica_session import ReplicaState
from tidelog.limits import STREAMS_PER_TOPIC_MAX

CONTROL = CONTROL_CONNECTION


def version(number: int) -> bytes:
    return number.to_bytes(16, "big")


def written(store: Store | None = None) -> tuple[Replica, str]:
    """A replica that has committed epoch 5."""
    replica, secret = with_channels(store)
    assert replica.ask(1, whole(5), (batch(1),)) == DONE
    assert replica.ask(CONTROL, GroupCommit(5)) == DONE
    return replica, secret


# -- SessionBegin --------------------------------------------------------------------------------


def test_another_protocol_version_is_refused() -> None:
    replica = Replica()
    replica.connect(0)
    answer = replica.ask(0, SessionBegin(SESSION_PROTOCOL + 1, "c1", 0, 2))
    assert code(answer) is ErrorCode.UNSUPPORTED_PROTOCOL
    assert replica.hung == [0]
    assert replica.core.state is ReplicaState.LISTENING


def test_another_configuration_is_refused_by_a_replica_that_is_not_empty() -> None:
    replica = Replica(Store(configuration_id="c1"))
    replica.connect(0)
    assert code(replica.ask(0, begin(configuration_id="c2"))) is ErrorCode.WRONG_CONFIGURATION
    assert replica.hung == [0]
    assert replica.core.configuration_id == "c1"


def test_an_empty_replica_takes_on_any_configuration() -> None:
    replica = Replica()
    replica.connect(0)
    assert isinstance(replica.ask(0, begin(configuration_id="c7")), SessionBegun)
    assert replica.core.configuration_id == replica.store.configuration_id == "c7"


@pytest.mark.parametrize("epoch", [4, 6])
def test_a_master_at_another_epoch_is_refused(epoch: int) -> None:
    replica = Replica(Store(configuration_id="c1", epoch=5))
    replica.connect(0)
    answer = replica.ask(0, begin(epoch=epoch))
    assert code(answer) is ErrorCode.WRONG_POSITION
    assert isinstance(answer, Error)
    assert "tidelog restore" in answer.message
    assert replica.hung == [0]
    begun(replica, 9, epoch=5)


def test_a_master_with_another_history_is_refused_at_the_same_epoch() -> None:
    """Both sides were masters alone, and each has made an epoch 5 of its own."""
    replica = Replica(Store(configuration_id="c1", epoch=5, stamp="the life of B"))
    replica.connect(0)
    answer = replica.ask(0, SessionBegin(SESSION_PROTOCOL, "c1", 5, 2, "the life of A"))
    assert code(answer) is ErrorCode.WRONG_POSITION
    assert isinstance(answer, Error)
    assert "histories" in answer.message
    assert replica.hung == [0]
    replica.connect(1)
    answer = replica.ask(1, SessionBegin(SESSION_PROTOCOL, "c1", 5, 2, "the life of B"))
    assert isinstance(answer, SessionBegun)


@pytest.mark.parametrize("connection", [0, 9])
def test_a_second_session_is_refused_and_the_first_one_is_unharmed(connection: int) -> None:
    replica, _ = with_channels()
    if connection == 9:
        replica.connect(9)
    assert code(replica.ask(connection, begin())) is ErrorCode.SESSION_OPEN
    assert replica.hung == ([9] if connection == 9 else [])
    assert replica.ask(1, whole(1), (batch(1),)) == DONE
    assert replica.ask(CONTROL, GroupCommit(1)) == DONE


def test_a_second_session_is_refused_while_the_first_one_is_being_prepared() -> None:
    replica = Replica()
    for connection in (0, 1):
        replica.connect(connection)
        replica.receive(connection, begin())
    assert code(replica.answer(1)) is ErrorCode.SESSION_OPEN
    replica.work_all()
    assert isinstance(replica.answer(0), SessionBegun)


def test_more_log_channels_than_a_topic_can_have_are_refused() -> None:
    replica = Replica()
    replica.connect(0)
    answer = replica.ask(0, begin(channels=STREAMS_PER_TOPIC_MAX + 1))
    assert code(answer) is ErrorCode.TOO_MANY_CHANNELS
    assert replica.store.channels == []


def test_a_store_that_cannot_be_prepared_leaves_no_session() -> None:
    replica = Replica()
    replica.connect(0)
    replica.receive(0, begin())
    replica.fail(-1)
    assert code(replica.answer(0)) is ErrorCode.WRITE_FAILED
    assert replica.hung == [0]
    assert replica.core.state is ReplicaState.LISTENING
    begun(replica, 1)


# -- first messages ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (SessionEnd(), ErrorCode.NO_SESSION),
        (GroupCommit(1), ErrorCode.NO_SESSION),
        (GcBoundarySwitch(version(1)), ErrorCode.NO_SESSION),
        (SafeSnapshotSwitch(version(1)), ErrorCode.NOT_SUPPORTED),
        (LogChannelDispose(), ErrorCode.NO_CHANNEL),
        (LogEntryWrite(1), ErrorCode.NO_CHANNEL),
        (LogChannelFlush(), ErrorCode.NO_CHANNEL),
        (BlobWrite(1, 0, 1), ErrorCode.NO_CHANNEL),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, msgspec.Struct) else value.name,
)
@pytest.mark.parametrize("has_session", [False, True])
def test_a_connection_begins_with_a_session_or_a_log_channel(
    request_: Request, expected: ErrorCode, has_session: bool
) -> None:
    replica = with_channels()[0] if has_session else Replica()
    replica.connect(9)
    assert code(replica.ask(9, request_)) is expected
    assert replica.hung == [9]
    assert replica.core.state is (ReplicaState.OPEN if has_session else ReplicaState.LISTENING)


def test_bytes_that_are_no_request_end_a_new_connection() -> None:
    replica, _ = with_channels()
    replica.connect(9)
    replica.core.undecodable(9)
    replica.carry_out()
    assert code(replica.answer(9)) is ErrorCode.UNEXPECTED_MESSAGE
    assert replica.hung == [9]
    assert replica.core.state is ReplicaState.OPEN


def test_bytes_that_are_no_request_end_the_session_on_its_control_channel() -> None:
    replica, _ = with_channels()
    replica.core.undecodable(CONTROL)
    replica.carry_out()
    assert replica.hung == [0, 1, 2]
    assert replica.core.state is ReplicaState.LISTENING
    begun(replica, 9)


def test_bytes_that_are_no_request_break_the_session_on_a_log_channel() -> None:
    replica, _ = with_channels()
    replica.core.undecodable(1)
    replica.carry_out()
    assert replica.hung == [1]
    assert replica.core.state is ReplicaState.BROKEN


@pytest.mark.parametrize("connection", [0, 1])
def test_bytes_that_are_no_request_may_come_behind_one_that_is_open(connection: int) -> None:
    replica, _ = with_channels()
    replica.receive(connection, whole(1) if connection else GroupCommit(1), ())
    replica.core.undecodable(connection)
    replica.carry_out()
    replica.work_all()
    assert code(replica.answer(connection)) is ErrorCode.UNEXPECTED_MESSAGE
    assert not replica.answers[connection]
    assert connection in replica.hung


# -- control channel -----------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_group_commit_that_is_not_beyond_the_last_one_is_refused(epoch: int) -> None:
    replica, _ = written()
    assert code(replica.ask(CONTROL, GroupCommit(epoch))) is ErrorCode.BAD_EPOCH
    assert replica.store.epoch == replica.core.epoch == 5
    assert replica.ask(CONTROL, GroupCommit(6)) == DONE


def test_a_group_commit_may_skip_epochs() -> None:
    replica, _ = written()
    assert replica.ask(CONTROL, GroupCommit(9)) == DONE
    assert replica.store.epoch == 9


def test_a_group_commit_takes_entries_of_lower_epochs_along() -> None:
    replica, _ = written()
    assert replica.ask(1, whole(6), (batch(2, label="six"),)) == DONE
    assert replica.ask(2, whole(7, flush=False), (batch(1, label="seven"),)) == DONE
    assert replica.ask(CONTROL, GroupCommit(9)) == DONE
    assert replica.store.committed() == [[(5, b"x"), (6, b"six")], [(7, b"seven")]]


def test_a_group_commit_waits_for_log_sessions_of_its_epoch() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, LogEntryWrite(3, session_begin=True), (batch(1),)) == DONE
    assert code(replica.ask(CONTROL, GroupCommit(3))) is ErrorCode.LOG_SESSION_OPEN
    assert code(replica.ask(CONTROL, GroupCommit(4))) is ErrorCode.LOG_SESSION_OPEN
    assert replica.ask(CONTROL, GroupCommit(2)) == DONE
    assert replica.ask(1, LogEntryWrite(3, session_end=True, flush=True)) == DONE
    assert replica.ask(CONTROL, GroupCommit(3)) == DONE
    assert replica.store.committed()[0] == [(3, b"x")]


def test_a_group_commit_waits_for_a_write_that_the_store_is_at() -> None:
    replica, _ = with_channels()
    replica.receive(1, whole(3), (batch(1),))
    replica.receive(CONTROL, GroupCommit(3))
    assert code(replica.answer(CONTROL)) is ErrorCode.LOG_SESSION_OPEN
    replica.work_all()
    assert replica.ask(CONTROL, GroupCommit(3)) == DONE


def test_the_boundary_does_not_go_back() -> None:
    replica, _ = with_channels()
    assert replica.ask(CONTROL, GcBoundarySwitch(version(1 << 100))) == DONE
    assert replica.store.boundary == replica.core.boundary == 1 << 100
    answer = replica.ask(CONTROL, GcBoundarySwitch(version((1 << 100) - 1)))
    assert code(answer) is ErrorCode.BAD_BOUNDARY
    assert replica.store.boundary == replica.core.boundary == 1 << 100
    assert replica.core.state is ReplicaState.OPEN


def test_a_boundary_leaves_room_for_stamps() -> None:
    replica, _ = with_channels()
    answer = replica.ask(CONTROL, GcBoundarySwitch(version(BOUNDARY_END)))
    assert code(answer) is ErrorCode.BAD_BOUNDARY
    assert replica.ask(CONTROL, GcBoundarySwitch(version(BOUNDARY_END - 1))) == DONE
    assert replica.store.boundary == BOUNDARY_END - 1
    assert replica.core.state is ReplicaState.OPEN


def test_the_same_boundary_again_is_acknowledged_without_a_step_of_the_store() -> None:
    replica, _ = with_channels(Store(configuration_id="c1", boundary=7))
    assert replica.ask(CONTROL, GcBoundarySwitch(version(7))) == Ack()


def test_the_safe_snapshot_is_reserved() -> None:
    replica, _ = with_channels()
    answer = replica.ask(CONTROL, SafeSnapshotSwitch(version(1)))
    assert code(answer) is ErrorCode.NOT_SUPPORTED
    assert replica.core.state is ReplicaState.OPEN


@pytest.mark.parametrize(
    "request_", [LogChannelCreate("s", 0), LogEntryWrite(1), LogChannelFlush(), BlobWrite(1, 0, 1)]
)
def test_log_messages_do_not_belong_on_the_control_channel(request_: Request) -> None:
    replica, _ = with_channels()
    assert code(replica.ask(CONTROL, request_)) is ErrorCode.UNEXPECTED_MESSAGE
    assert replica.core.state is ReplicaState.OPEN
    assert replica.ask(CONTROL, GroupCommit(1)) == DONE


@pytest.mark.parametrize(
    "request_",
    [
        begin(),
        SessionEnd(),
        GroupCommit(1),
        GcBoundarySwitch(version(1)),
        SafeSnapshotSwitch(version(1)),
        LogChannelCreate("s", 0),
    ],
)
def test_other_messages_do_not_belong_on_a_log_channel(request_: Request) -> None:
    replica, _ = with_channels()
    assert code(replica.ask(1, request_)) is ErrorCode.UNEXPECTED_MESSAGE
    assert replica.core.state is ReplicaState.OPEN
    assert replica.ask(1, whole(1), (batch(1),)) == DONE


def test_after_its_end_a_session_takes_no_group_commit() -> None:
    replica, _ = with_channels()
    assert replica.ask(CONTROL, SessionEnd()) == Ack()
    assert replica.hung == [1, 2]
    assert code(replica.ask(CONTROL, GroupCommit(1))) is ErrorCode.NO_SESSION


# -- log channels --------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["", "secret 2", "secret 11", "secret", "\ud800", "sécret"])
def test_a_wrong_secret_opens_no_log_channel(shown: str) -> None:
    replica = Replica()
    assert begun(replica) == "secret 1"
    replica.connect(9)
    assert code(replica.ask(9, LogChannelCreate(shown, 0))) is ErrorCode.WRONG_SECRET
    assert replica.hung == [9]


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(shown: bytes, secret: bytes) -> bool:
        compared.append((shown, secret))
        return hmac.compare_digest(shown, secret)

    monkeypatch.setattr(replica_session, "compare_digest", compare)
    with_channels(channels=1)
    assert compared == [(b"secret 1", b"secret 1")]


def test_without_a_session_every_secret_is_wrong() -> None:
    replica = Replica()
    replica.connect(9)
    assert code(replica.ask(9, LogChannelCreate("", 0))) is ErrorCode.WRONG_SECRET


def test_while_the_store_is_being_prepared_every_secret_is_wrong() -> None:
    replica = Replica()
    replica.connect(0)
    replica.receive(0, begin())
    replica.connect(9)
    replica.receive(9, LogChannelCreate("secret 1", 0))
    assert code(replica.answer(9)) is ErrorCode.WRONG_SECRET


def test_there_are_as_many_log_channels_as_the_session_has_said() -> None:
    replica, secret = with_channels(channels=2)
    replica.connect(9)
    assert code(replica.ask(9, LogChannelCreate(secret, 2))) is ErrorCode.TOO_MANY_CHANNELS
    assert replica.hung == [9]
    assert replica.ask(2, whole(1), (batch(1),)) == DONE


def test_a_log_channel_has_one_connection() -> None:
    replica, secret = with_channels()
    replica.connect(9)
    assert code(replica.ask(9, LogChannelCreate(secret, 1))) is ErrorCode.CHANNEL_TAKEN
    assert replica.hung == [9]
    assert replica.ask(2, whole(1), (batch(1),)) == DONE


@pytest.mark.parametrize("late", [whole(1), LogChannelFlush(), LogChannelDispose()])
def test_nothing_is_written_on_a_channel_after_its_dispose(late: Request) -> None:
    replica, _ = with_channels()
    assert replica.ask(1, LogChannelDispose()) == Ack()
    assert code(replica.ask(1, late)) is ErrorCode.NO_CHANNEL
    assert replica.hung == [1]
    assert replica.core.state is ReplicaState.OPEN


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_entry_of_a_committed_epoch_is_refused(epoch: int) -> None:
    replica, _ = written()
    answer = replica.ask(2, whole(epoch), (batch(1),))
    assert code(answer) is ErrorCode.EPOCH_COMMITTED
    assert replica.store.channels[1] == []
    assert replica.ask(2, whole(6), (batch(1),)) == DONE


def test_an_entry_of_an_epoch_that_is_being_committed_is_refused() -> None:
    replica, _ = with_channels()
    replica.receive(CONTROL, GroupCommit(3))
    replica.receive(1, whole(3), (batch(1),))
    assert code(replica.answer(1)) is ErrorCode.EPOCH_COMMITTED
    replica.work_all()
    assert replica.store.committed() == [[], []]


def test_epochs_of_a_channel_do_not_go_back() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, whole(7), (batch(1),)) == DONE
    assert code(replica.ask(1, whole(6), (batch(2),))) is ErrorCode.EPOCH_WENT_BACK
    assert replica.ask(1, whole(7), (batch(2),)) == DONE
    assert replica.ask(2, whole(6), (batch(1),)) == DONE


@pytest.mark.parametrize(
    ("opened", "request_"),
    [
        (False, LogEntryWrite(3)),
        (False, LogEntryWrite(3, session_end=True)),
        (False, LogEntryWrite(3, session_abort=True)),
        (True, LogEntryWrite(3, session_begin=True)),
        (True, LogEntryWrite(4)),
        (True, LogEntryWrite(3, session_end=True, session_abort=True)),
    ],
)
def test_begin_and_end_of_log_sessions_fit_one_another(opened: bool, request_: Request) -> None:
    replica, _ = with_channels()
    if opened:
        assert replica.ask(1, LogEntryWrite(3, session_begin=True), (batch(1),)) == DONE
    before = len(replica.store.channels[0])
    answer = replica.ask(1, request_, (batch(before + 1),))
    assert code(answer) is ErrorCode.NO_LOG_SESSION
    assert len(replica.store.channels[0]) == before
    assert replica.core.state is ReplicaState.OPEN


@pytest.mark.parametrize(
    "batches",
    [
        None,
        (batch(3),),
        (batch(1),),
        (batch(2), batch(4)),
        (batch(2, 0),),
        (batch(2, -1),),
        (batch(2), batch(2)),
    ],
)
def test_entries_that_do_not_continue_their_channel_are_refused(
    batches: tuple[ChannelBatch, ...] | None,
) -> None:
    replica, _ = with_channels()
    assert replica.ask(1, whole(1), (batch(1),)) == DONE
    answer = replica.ask(1, whole(1), batches)
    assert code(answer) is ErrorCode.BAD_ENTRIES
    assert replica.ask(1, whole(1), (batch(2), batch(3, 4))) == DONE


@pytest.mark.parametrize("request_", [whole(1), LogChannelFlush()])
def test_a_store_that_fails_breaks_the_session(request_: Request) -> None:
    replica, secret = with_channels()
    assert replica.ask(2, LogEntryWrite(1, session_begin=True), (batch(1),)) == DONE
    replica.receive(1, request_, (batch(1),))
    replica.fail(0, "no room" * 1000)
    answer = replica.answer(1)
    assert code(answer) is ErrorCode.WRITE_FAILED
    assert isinstance(answer, Error)
    assert len(answer.message) <= 1024
    assert_broken(replica, secret)


def test_a_store_that_fails_in_a_group_commit_breaks_the_session() -> None:
    replica, secret = with_channels()
    assert replica.ask(2, LogEntryWrite(2, session_begin=True), (batch(1),)) == DONE
    replica.receive(CONTROL, GroupCommit(1))
    replica.fail(-1)
    assert code(replica.answer(CONTROL)) is ErrorCode.WRITE_FAILED
    assert replica.core.epoch == 0
    assert_broken(replica, secret)


def test_a_log_channel_that_is_lost_breaks_the_session() -> None:
    replica, secret = with_channels()
    assert replica.ask(2, LogEntryWrite(1, session_begin=True), (batch(1),)) == DONE
    replica.core.lost(1)
    assert_broken(replica, secret)


def assert_broken(replica: Replica, secret: str) -> None:
    """A broken session refuses everything but its end and that of its channels."""
    assert replica.core.state is ReplicaState.BROKEN
    assert replica.core.counters.broken == 1
    for connection, request in (
        (CONTROL, GroupCommit(9)),
        (CONTROL, GcBoundarySwitch(version(9))),
        (2, LogEntryWrite(1, session_end=True)),
        (2, LogChannelFlush()),
        (2, BlobWrite(1, 0, 1)),
    ):
        answer = replica.ask(connection, request, data=b"1")
        assert code(answer) is ErrorCode.SESSION_BROKEN
    replica.connect(9)
    assert code(replica.ask(9, LogChannelCreate(secret, 0))) is ErrorCode.SESSION_BROKEN
    assert replica.ask(2, LogChannelDispose()) == Ack()
    assert replica.ask(CONTROL, SessionEnd()) == Ack()
    begun(replica, 20, epoch=replica.core.epoch)
    assert all(
        len(each) == end
        for each, end in zip(replica.store.channels, replica.store.ends, strict=True)
    )
