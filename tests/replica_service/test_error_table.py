"""Every row of the tables of errors in docs/sessions.md, over sockets against the real process.

After each error the state of the session is what stands there.  Errors of the disk are in
``test_disk_faults``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run_json
from tests.client.proxy import wait_until
from tests.replica_service.local_replica import LocalReplica
from tests.replica_service.raw_master import CONFIGURATION, Connection, RawMaster, Replica
from tests.replica_service.replica_process import ReplicaProcess
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
from tidelog.formats.channel_batch import STAMP_KEY, STAMP_STORAGE, encode_channel_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.wire import encode_frame

OTHER = "ffeeddccbbaa99887766554433221100"
VERSION = (7).to_bytes(16, "big")


def refused_at_once(replica: Replica, request: Request) -> ErrorCode:
    """As the first message of a connection, which is closed after the error."""
    with Connection(replica.address) as connection:
        code = connection.error(request)
        assert connection.is_hung_up
    return code


def is_unharmed(master: RawMaster) -> bool:
    """Whether the session goes on: entries and a group commit are taken."""
    epoch = master.replica.epoch + 1
    return (
        master.replica.state == "open"
        and isinstance(master.write(0, epoch, b"unharmed"), Ack)
        and isinstance(master.commit(epoch), Ack)
    )


# -- SessionBegin --------------------------------------------------------------------------------


def test_a_session_of_another_protocol_version_is_refused(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    master.close()
    replica.wait_for("listening")
    request = master.session_begin(protocol_version=SESSION_PROTOCOL + 1)
    assert refused_at_once(replica, request) is ErrorCode.UNSUPPORTED_PROTOCOL
    assert replica.state == "listening"


def test_a_replica_with_the_data_of_another_master_refuses_the_session(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    master.close()
    replica.wait_for("listening")
    request = master.session_begin(configuration=OTHER)
    assert refused_at_once(replica, request) is ErrorCode.WRONG_CONFIGURATION
    assert replica.state == "listening"


def test_an_empty_replica_takes_on_any_master_and_remembers_it(tmp_path: Path) -> None:
    with ReplicaProcess(tmp_path / "data") as replica:
        with RawMaster(replica, configuration=OTHER) as master:
            master.finish()
        begin = SessionBegin(SESSION_PROTOCOL, CONFIGURATION, 0, 1)
        assert refused_at_once(replica, begin) is ErrorCode.WRONG_CONFIGURATION
        assert replica.stop() == 0
    with LocalReplica.at(tmp_path / "data") as again:
        assert refused_at_once(again, begin) is ErrorCode.WRONG_CONFIGURATION
        with RawMaster(again, configuration=OTHER) as master:
            assert again.state == "open"


@pytest.mark.parametrize("step", [-1, 1])
def test_a_master_at_another_epoch_is_refused(
    replica: ReplicaProcess, master: RawMaster, step: int
) -> None:
    """In both directions."""
    epoch = replica.epoch + 1
    assert isinstance(master.commit(epoch), Ack)
    master.finish()
    code = refused_at_once(replica, master.session_begin(epoch=epoch + step))
    assert code is ErrorCode.WRONG_POSITION
    assert replica.state == "listening"
    assert replica.epoch == epoch


def test_a_master_with_another_history_is_refused_at_the_same_epoch() -> None:
    """Both sides are at epoch 1, but different masters have written it."""
    stamp = Entry(Kind.PUT, b"life of one", STAMP_KEY, STAMP_STORAGE, write_version=1 << 64)
    with LocalReplica() as replica:
        with RawMaster(replica) as master:
            batch = encode_channel_batch(0, 1, 1, [stamp])
            master.lane().ack(LogEntryWrite(1, session_begin=True, session_end=True), batch.data)
            assert isinstance(master.commit(1), Ack)
            master.finish()
        for other in ("", "life of another"):
            begin = SessionBegin(SESSION_PROTOCOL, CONFIGURATION, 1, 1, other)
            assert refused_at_once(replica, begin) is ErrorCode.WRONG_POSITION
            assert replica.state == "listening"
        with Connection(replica.address) as control:
            begin = SessionBegin(SESSION_PROTOCOL, CONFIGURATION, 1, 1, "life of one")
            assert isinstance(control.ask(begin), SessionBegun)


@pytest.mark.parametrize("wrong", ["", "short", OTHER.upper(), "g" * 32, OTHER + "00"])
def test_an_id_that_cannot_be_kept_is_refused(wrong: str) -> None:
    """An empty replica would not know its master again."""
    with LocalReplica() as replica:
        with Connection(replica.address) as control:
            begin = SessionBegin(SESSION_PROTOCOL, wrong, 0, 1)
            assert control.error(begin) is ErrorCode.WRITE_FAILED
            assert control.is_hung_up
        with RawMaster(replica, configuration=OTHER):
            assert replica.state == "open"


def test_a_second_session_is_refused_while_one_is_open(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    assert refused_at_once(replica, master.session_begin()) is ErrorCode.SESSION_OPEN
    assert master.control.error(master.session_begin()) is ErrorCode.SESSION_OPEN
    assert is_unharmed(master)


def test_more_log_channels_than_there_can_be_are_refused(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    master.finish()
    begin = SessionBegin(SESSION_PROTOCOL, CONFIGURATION, replica.epoch, 1 << 62)
    assert refused_at_once(replica, begin) is ErrorCode.TOO_MANY_CHANNELS
    assert replica.state == "listening"


# -- the control channel -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_", [SessionEnd(), GroupCommit(1 << 40), GcBoundarySwitch(VERSION)]
)
def test_requests_of_a_session_need_one(
    replica: ReplicaProcess, master: RawMaster, request_: Request
) -> None:
    """Whether another connection has a session, or nobody."""
    before = replica.epoch, replica.boundary
    assert refused_at_once(replica, request_) is ErrorCode.NO_SESSION
    assert is_unharmed(master)
    master.finish()
    assert refused_at_once(replica, request_) is ErrorCode.NO_SESSION
    assert replica.state == "listening"
    assert (replica.epoch, replica.boundary) == (before[0] + 1, before[1])


def test_a_group_commit_must_be_beyond_the_last_one(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    """Numbers may be skipped."""
    epoch = replica.epoch + 5
    assert isinstance(master.commit(epoch), Ack)
    assert isinstance(master.commit(epoch + 4), Ack)
    for old in (epoch + 4, epoch + 3, epoch, 0):
        assert master.control.error(GroupCommit(old)) is ErrorCode.BAD_EPOCH
        assert replica.epoch == epoch + 4
    assert is_unharmed(master)


def test_a_group_commit_covers_all_lower_epochs(tmp_path: Path) -> None:
    with ReplicaProcess(tmp_path / "data") as replica, RawMaster(replica) as master:
        assert isinstance(master.write(0, 6, b"six"), Ack)
        assert isinstance(master.write(1, 7, b"seven", flush=False), Ack)
        assert isinstance(master.commit(9), Ack)
        replica.kill()
    found = run_json("restore", "--from", tmp_path / "data", "--to", tmp_path / "new")
    assert (found["epoch"], found["entries"]) == (9, 2)


def test_a_group_commit_waits_for_log_sessions_of_its_epoch(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    epoch = replica.epoch + 1
    assert isinstance(master.write(0, epoch, b"a", end=False), Ack)
    for at in (epoch, epoch + 1):
        assert master.control.error(GroupCommit(at)) is ErrorCode.LOG_SESSION_OPEN
    assert replica.epoch == epoch - 1
    assert isinstance(master.write(0, epoch, b"b", begin=False), Ack)
    assert isinstance(master.commit(epoch), Ack)
    assert is_unharmed(master)


def test_a_log_session_of_a_later_epoch_does_not_hold_a_group_commit_back(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    epoch = replica.epoch + 1
    assert isinstance(master.write(1, epoch, b"a"), Ack)
    assert isinstance(master.write(0, epoch + 1, b"a", end=False), Ack)
    assert isinstance(master.commit(epoch), Ack)
    assert isinstance(master.write(0, epoch + 1, b"b", begin=False), Ack)
    assert isinstance(master.commit(epoch + 1), Ack)


def test_the_boundary_never_goes_back(replica: ReplicaProcess, master: RawMaster) -> None:
    """The same again is no error."""
    boundary = (replica.epoch << 64) + (1 << 32)
    assert isinstance(master.boundary(boundary), Ack)
    answer = master.boundary(boundary - 1)
    assert isinstance(answer, Error)
    assert answer.code == ErrorCode.BAD_BOUNDARY
    assert isinstance(master.boundary(boundary), Ack)
    assert replica.boundary == boundary
    assert is_unharmed(master)


def test_safe_snapshots_are_reserved(replica: ReplicaProcess, master: RawMaster) -> None:
    assert master.control.error(SafeSnapshotSwitch(VERSION)) is ErrorCode.NOT_SUPPORTED
    assert refused_at_once(replica, SafeSnapshotSwitch(VERSION)) is ErrorCode.NOT_SUPPORTED
    assert is_unharmed(master)


@pytest.mark.parametrize("request_", [LogEntryWrite(1), LogChannelFlush(), LogChannelDispose()])
def test_the_control_channel_takes_no_requests_of_log_channels(
    master: RawMaster, request_: Request
) -> None:
    assert master.control.error(request_) is ErrorCode.UNEXPECTED_MESSAGE
    assert is_unharmed(master)


# -- log channels --------------------------------------------------------------------------------


def test_a_log_channel_needs_the_secret_of_the_open_session(
    replica: ReplicaProcess, recorded: dict[int, int]
) -> None:
    """That of an earlier session, ended or dead, is as wrong as any."""
    with RawMaster(replica, recorded) as earlier:
        earlier.finish()
    assert refused_at_once(replica, LogChannelCreate(earlier.secret, 0)) is ErrorCode.WRONG_SECRET
    with RawMaster(replica, recorded) as dead:
        pass
    with RawMaster(replica, recorded) as master:
        secrets = earlier.secret, dead.secret, "", master.secret[:-1], master.secret.upper()
        assert len({earlier.secret, dead.secret, master.secret}) == 3
        for secret in secrets:
            code = refused_at_once(replica, LogChannelCreate(secret, 0))
            assert code is ErrorCode.WRONG_SECRET
        assert is_unharmed(master)


def test_there_are_no_more_log_channels_than_the_session_has(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    """The last one is taken, the next refused, and so is one that is there."""
    master.lane(1)
    for number in (2, 3, 1 << 62):
        create = LogChannelCreate(master.secret, number)
        assert refused_at_once(replica, create) is ErrorCode.TOO_MANY_CHANNELS
    create = LogChannelCreate(master.secret, 1)
    assert refused_at_once(replica, create) is ErrorCode.CHANNEL_TAKEN
    assert is_unharmed(master)


@pytest.mark.parametrize(
    "request_", [LogChannelDispose(), LogEntryWrite(1 << 40), LogChannelFlush(), BlobWrite(1, 0, 0)]
)
def test_requests_of_a_log_channel_need_one(
    replica: ReplicaProcess, master: RawMaster, request_: Request
) -> None:
    assert refused_at_once(replica, request_) is ErrorCode.NO_CHANNEL
    assert is_unharmed(master)


@pytest.mark.parametrize("request_", [LogEntryWrite(1 << 40), LogChannelFlush()])
def test_a_log_channel_that_was_disposed_of_takes_nothing(
    master: RawMaster, request_: Request
) -> None:
    lane = master.lane(1)
    lane.ack(LogChannelDispose())
    assert lane.error(request_) is ErrorCode.NO_CHANNEL
    assert lane.is_hung_up
    assert is_unharmed(master)


def test_a_log_channel_that_was_disposed_of_can_be_had_again(master: RawMaster) -> None:
    master.lane(1).ack(LogChannelDispose())
    master.lanes.pop(1).close()
    epoch = master.replica.epoch + 1
    assert isinstance(master.write(1, epoch, b"again"), Ack)
    assert is_unharmed(master)


@pytest.mark.parametrize(
    "request_", [SessionEnd(), GroupCommit(1 << 40), GcBoundarySwitch(VERSION)]
)
def test_a_log_channel_takes_no_requests_of_the_control_channel(
    master: RawMaster, request_: Request
) -> None:
    assert master.lane().error(request_) is ErrorCode.UNEXPECTED_MESSAGE
    assert is_unharmed(master)


@pytest.mark.parametrize("back", [0, 1])
def test_entries_of_an_epoch_that_was_committed_are_refused(
    replica: ReplicaProcess, master: RawMaster, back: int
) -> None:
    epoch = replica.epoch + 2
    assert isinstance(master.write(0, epoch + 3, b"ahead"), Ack)
    assert isinstance(master.commit(epoch), Ack)
    answer = master.write(1, epoch - back, b"late")
    assert isinstance(answer, Error)
    assert answer.code == ErrorCode.EPOCH_COMMITTED
    assert isinstance(master.commit(epoch + 3), Ack)
    assert is_unharmed(master)


def test_epochs_of_a_log_channel_never_fall(replica: ReplicaProcess, master: RawMaster) -> None:
    """Those of another channel may be lower, and the same again is legal."""
    epoch = replica.epoch + 1
    assert isinstance(master.write(0, epoch + 1, b"a"), Ack)
    answer = master.write(0, epoch, b"b")
    assert isinstance(answer, Error)
    assert answer.code == ErrorCode.EPOCH_WENT_BACK
    assert isinstance(master.write(1, epoch, b"c"), Ack)
    assert isinstance(master.write(0, epoch + 1, b"d"), Ack)
    assert isinstance(master.commit(epoch + 1), Ack)
    assert is_unharmed(master)


@pytest.mark.parametrize(
    ("begin", "end", "abort"),
    [(False, False, False), (False, True, False), (False, False, True), (True, True, True)],
)
def test_begin_and_end_of_log_sessions_must_fit(
    master: RawMaster, begin: bool, end: bool, abort: bool
) -> None:
    epoch = master.replica.epoch + 1
    batch = master.batch(0, epoch, b"a")
    request = LogEntryWrite(epoch, begin, end, abort)
    assert master.lane().error(request, batch.data) is ErrorCode.NO_LOG_SESSION
    assert is_unharmed(master)


def test_a_log_session_is_not_begun_inside_another_nor_changes_its_epoch(
    master: RawMaster,
) -> None:
    epoch = master.replica.epoch + 1
    assert isinstance(master.write(0, epoch, b"a", end=False), Ack)
    for write, at in (
        (LogEntryWrite(epoch, session_begin=True), epoch),
        (LogEntryWrite(epoch + 1), epoch + 1),
    ):
        batch = master.batch(0, at, b"b")
        assert master.lane().error(write, batch.data) is ErrorCode.NO_LOG_SESSION
    assert master.control.error(GroupCommit(epoch)) is ErrorCode.LOG_SESSION_OPEN
    assert isinstance(master.write(0, epoch, b"b", begin=False), Ack)
    assert isinstance(master.commit(epoch), Ack)
    assert is_unharmed(master)


def test_entries_of_an_aborted_log_session_are_gone(master: RawMaster) -> None:
    epoch = master.replica.epoch + 1
    end = master.end(0)
    batch = master.batch(0, epoch, b"aborted")
    master.lane().ack(LogEntryWrite(epoch, session_begin=True, flush=True), batch.data)
    master.lane().ack(LogEntryWrite(epoch, session_abort=True))
    assert master.end(0) == end
    assert isinstance(master.write(0, epoch, b"instead"), Ack)
    assert isinstance(master.commit(epoch), Ack)
    assert is_unharmed(master)


@pytest.mark.parametrize("kind", ["damaged", "gap", "again", "channel", "epoch", "garbage"])
def test_entries_that_do_not_continue_their_channel_are_refused(
    master: RawMaster, kind: str
) -> None:
    epoch = master.replica.epoch + 1
    assert isinstance(master.write(0, epoch, b"first"), Ack)
    batch = master.batch(0, epoch, b"key", b"other")
    data = bytearray(batch.data)
    match kind:
        case "damaged":
            data[-1] ^= 1
        case "gap":
            data = bytearray(master.batch(0, epoch, b"key", gap=1).data)
        case "again":
            data += batch.data
        case "channel":
            data = bytearray(master.batch(1, epoch, b"key").data)
        case "epoch":
            data = bytearray(master.batch(0, epoch + 1, b"key").data)
        case "garbage":
            data = bytearray(b"garbage" * 100)
    write = LogEntryWrite(epoch, session_begin=True, session_end=True)
    assert master.lane().error(write, bytes(data)) is ErrorCode.BAD_ENTRIES
    assert master.replica.state == "open"
    assert isinstance(master.commit(epoch), Ack)
    assert is_unharmed(master)


def test_parts_of_a_blob_must_continue_it(master: RawMaster) -> None:
    lane = master.lane()
    for request, data in (
        (BlobWrite(1, 1, 10), b"x"),
        (BlobWrite(1, 0, 10), b"x" * 11),
        (BlobWrite(1, 0, 10), b""),
        (BlobWrite(1, 0, 0), b"x"),
    ):
        assert lane.error(request, data) is ErrorCode.BAD_BLOB
    lane.ack(BlobWrite(1, 0, 10), b"12345")
    for request, data in (
        (BlobWrite(1, 4, 10), b"x"),
        (BlobWrite(1, 6, 10), b"x"),
        (BlobWrite(2, 5, 10), b"x"),
        (BlobWrite(1, 5, 11), b"x"),
        (BlobWrite(1, 5, 10), b"x" * 6),
    ):
        assert lane.error(request, data) is ErrorCode.BAD_BLOB
    lane.ack(BlobWrite(1, 5, 10), b"67890")
    assert is_unharmed(master)


def test_entries_come_behind_their_blobs(master: RawMaster) -> None:
    epoch = master.replica.epoch + 1
    answer = master.write(0, epoch, b"early", blobs=(77,))
    assert isinstance(answer, Error)
    assert answer.code == ErrorCode.BAD_BLOB
    master.lane().ack(BlobWrite(77, 0, 2), b"x")
    answer = master.write(0, epoch, b"early", blobs=(77,))
    assert isinstance(answer, Error)
    assert answer.code == ErrorCode.BAD_BLOB
    master.lane().ack(BlobWrite(77, 1, 2), b"x")
    assert isinstance(master.write(0, epoch, b"early", blobs=(77,)), Ack)
    assert is_unharmed(master)


# -- any connection ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [b"", b"garbage", b"\x91\x00", b"\x91\x63", b"\x94\x01\x01\x01\x01\x01", b"\xc1" * 3000],
    ids=["empty", "garbage", "tag 0", "unknown tag", "wrong types", "long"],
)
def test_a_first_message_that_is_none_is_answered_and_hung_up_on(
    replica: ReplicaProcess, master: RawMaster, message: bytes
) -> None:
    with Connection(replica.address) as connection:
        connection.send_bytes(encode_frame(message, request=1))
        connection._numbers = 1
        answer = connection.answer()
        assert isinstance(answer, Error)
        assert answer.code == ErrorCode.UNEXPECTED_MESSAGE
        assert connection.is_hung_up
    assert is_unharmed(master)


@pytest.mark.parametrize("number", [0, 2, 1 << 62])
def test_requests_are_numbered_one_after_the_other(
    replica: ReplicaProcess, master: RawMaster, number: int
) -> None:
    with Connection(replica.address) as connection:
        connection._numbers = number - 1
        code = connection.error(LogChannelCreate(master.secret, 1))
        assert code is ErrorCode.UNEXPECTED_MESSAGE
        assert connection.is_hung_up
    assert is_unharmed(master)


def test_garbage_on_the_control_channel_ends_the_session(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    lane = master.lane()
    master.control.send_bytes(encode_frame(b"garbage", request=2))
    master.control._numbers += 1
    answer = master.control.answer()
    assert isinstance(answer, Error)
    assert answer.code == ErrorCode.UNEXPECTED_MESSAGE
    assert master.control.is_hung_up
    assert lane.is_hung_up
    assert replica.state == "listening"


def test_garbage_on_a_log_channel_breaks_the_session(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    lane = master.lane()
    lane.send_bytes(encode_frame(b"garbage", request=2))
    lane._numbers += 1
    assert isinstance(lane.answer(), Error)
    assert lane.is_hung_up
    assert replica.state == "broken"


def test_bytes_attached_where_none_belong_are_refused(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    lane = master.lane()
    assert lane.error(LogChannelFlush(), b"attached") is ErrorCode.UNEXPECTED_MESSAGE
    assert lane.is_hung_up
    assert replica.state == "broken"


# -- peers that die ------------------------------------------------------------------------------


def test_a_master_that_dies_leaves_room_for_the_next_one(
    replica: ReplicaProcess, recorded: dict[int, int]
) -> None:
    """Nothing of what was not committed is left."""
    with RawMaster(replica, recorded) as dying:
        epoch = replica.epoch + 1
        assert isinstance(dying.write(0, epoch, b"lost"), Ack)
        lane = dying.lane()
        dying.control.close()
        assert lane.is_hung_up
    with RawMaster(replica, recorded) as master:
        assert master.end(0) == recorded.get(0, 1)
        assert is_unharmed(master)


def test_a_session_may_follow_one_that_ended(
    replica: ReplicaProcess, recorded: dict[int, int]
) -> None:
    """Also on the very same connection."""
    with RawMaster(replica, recorded) as master:
        lane = master.lane()
        master.control.ack(SessionEnd())
        assert lane.is_hung_up
        assert replica.state == "listening"
        assert isinstance(master.control.ask(master.session_begin()), SessionBegun)
        assert replica.state == "open"


def test_a_session_that_lost_a_log_channel_takes_only_its_end(
    replica: ReplicaProcess, recorded: dict[int, int]
) -> None:
    with RawMaster(replica, recorded) as master:
        epoch = replica.epoch + 1
        assert isinstance(master.write(0, epoch, b"a"), Ack)
        assert isinstance(master.write(1, epoch, b"b"), Ack)
        master.lane(1).close()
        replica.wait_for("broken")
        batch = master.batch(0, epoch, b"c")
        write = LogEntryWrite(epoch, session_begin=True, session_end=True)
        assert master.lane(0).error(write, batch.data) is ErrorCode.SESSION_BROKEN
        assert master.lane(0).error(LogChannelFlush()) is ErrorCode.SESSION_BROKEN
        assert master.lane(0).error(BlobWrite(1, 0, 1), b"x") is ErrorCode.SESSION_BROKEN
        assert master.control.error(GroupCommit(epoch)) is ErrorCode.SESSION_BROKEN
        boundary = GcBoundarySwitch(((1 << 128) - 1).to_bytes(16))
        assert master.control.error(boundary) is ErrorCode.SESSION_BROKEN
        master.lane(0).ack(LogChannelDispose())
        create = LogChannelCreate(master.secret, 1)
        assert refused_at_once(replica, create) is ErrorCode.SESSION_BROKEN
        assert replica.epoch == epoch - 1
        master.finish()
    with RawMaster(replica, recorded) as master:
        assert is_unharmed(master)


def test_what_was_refused_is_counted(replica: ReplicaProcess, master: RawMaster) -> None:
    before = replica.metrics().get("refused_total{BAD_EPOCH}", 0)
    assert master.control.error(GroupCommit(0)) is ErrorCode.BAD_EPOCH
    wait_until(lambda: replica.metrics()["refused_total{BAD_EPOCH}"] == before + 1, "it is counted")
