"""Every checker of the simulated pair fires on the break that it is for, and is silent without."""

from __future__ import annotations

import pytest

from tidelog.core.session.messages import (
    Ack,
    BlobWrite,
    Error,
    ErrorCode,
    GcBoundarySwitch,
    GroupCommit,
    LogChannelFlush,
    LogEntryWrite,
    Request,
    SessionBegin,
    SessionBegun,
    SessionEnd,
)
from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.core.session.output import (
    CONTROL,
    ChannelBatch,
    Durability,
    FlushLocally,
    MasterOutput,
    Notice,
    Send,
)
from tidelog.errors import ReplicationFailed
from tidelog.testing.checkers.blobs import check_blobs
from tidelog.testing.checkers.epoch_durable import check_durable
from tidelog.testing.checkers.equal_sides import check_equal
from tidelog.testing.checkers.group_commit import check_order, check_present
from tidelog.testing.checkers.kept_epochs import check_kept, check_only_recorded
from tidelog.testing.checkers.notices import Notices
from tidelog.testing.checkers.refusals import check_refusal
from tidelog.testing.checkers.replica_promises import check_acknowledged
from tidelog.testing.checkers.serial_steps import check_steps
from tidelog.testing.checkers.session_answers import check_answer, check_answered, check_hung_up
from tidelog.testing.checkers.session_entries import check_recorded
from tidelog.testing.checkers.session_secrets import Secrets
from tidelog.testing.checkers.stopped_master import check_stopped
from tidelog.testing.session_image import (
    AppendBatches,
    Change,
    EpochImage,
    KeepBlob,
    MakeReady,
    RaiseBoundary,
    RecordEpoch,
)
from tidelog.testing.session_ledger import Ledger
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

N1, N2 = NodeId(1), NodeId(2)


def batch(begin: int, data: bytes = b"x") -> ChannelBatch:
    return ChannelBatch(begin, begin + 1, data)


def append(epoch: int, begin: int, data: bytes = b"x") -> AppendBatches:
    return AppendBatches(0, epoch, (batch(begin, data),))


def store(*changes: Change) -> EpochImage:
    image = EpochImage()
    for change in (MakeReady("id", 1), *changes):
        image.apply(change)
    return image


def ledger(*written: tuple[int, bytes]) -> Ledger:
    """One channel, with a log session of one batch for each epoch and its entries."""
    book = Ledger(1, store())
    for place, (epoch, data) in enumerate(written, 1):
        book.begin(0, epoch, place)
        book.write(0, [batch(place, data)])
        book.end(0)
    return book


# Notices.


def told(*notices: tuple[int, Durability], has_failed: bool = False) -> None:
    checker = Notices()
    for epoch, durability in notices:
        checker.on_notice(Notice(epoch, durability), has_failed=has_failed)


STORED, PROPAGATED = Durability.STORED, Durability.PROPAGATED


def test_notices_in_their_order_are_well() -> None:
    told((1, STORED), (3, STORED), (3, PROPAGATED), (4, STORED))
    told((1, STORED), has_failed=True)


@pytest.mark.parametrize(
    "notices",
    [((2, STORED), (2, STORED)), ((2, STORED), (1, STORED)), ((1, STORED), (2, PROPAGATED))],
    ids=["twice", "back", "ahead"],
)
def test_notices_out_of_order_are_found(notices: tuple[tuple[int, Durability], ...]) -> None:
    with pytest.raises(Violation, match="notices"):
        told(*notices)


def test_a_propagated_epoch_after_a_failure_is_found() -> None:
    with pytest.raises(Violation, match="after replication has failed"):
        told((1, STORED), (1, PROPAGATED), has_failed=True)


def test_an_epoch_that_is_told_and_not_recorded_is_found() -> None:
    book, notice = ledger((2, b"a"), (3, b"b")), Notice(2, STORED)
    check_durable(notice, book, N1, store(append(2, 1, b"a"), RecordEpoch(2)))
    with pytest.raises(Violation, match="epoch_durable"):
        check_durable(notice, book, N1, store(append(2, 1, b"a")))
    with pytest.raises(Violation, match="epoch_durable"):
        check_durable(notice, book, N1, EpochImage())


# Entries.


def test_a_record_of_what_was_written_is_well() -> None:
    image = store(append(2, 1, b"a"), append(3, 2, b"b"), RecordEpoch(2))
    check_recorded(N1, image, ledger((2, b"a"), (3, b"b")))


@pytest.mark.parametrize(
    "written",
    [((2, b"other"),), ((2, b"a"), (2, b"b")), (), ((1, b"a"),)],
    ids=["changed", "lost", "made up", "epoch"],
)
def test_a_record_of_anything_else_is_found(written: tuple[tuple[int, bytes], ...]) -> None:
    image = store(append(2, 1, b"a"), RecordEpoch(2))
    with pytest.raises(Violation, match="session_entries"):
        check_recorded(N1, image, ledger(*written))


def test_a_record_of_an_aborted_log_session_is_found() -> None:
    book = ledger()
    book.begin(0, 2, 1)
    book.write(0, [batch(1, b"a")])
    book.abort(0)
    with pytest.raises(Violation, match="aborted"):
        check_recorded(N1, store(append(2, 1, b"a"), RecordEpoch(2)), book)


def test_a_record_without_its_blob_is_found() -> None:
    entries = ChannelBatch(1, 2, b"a", blobs=(5,))
    changes = (AppendBatches(0, 2, (entries,)), RecordEpoch(2))
    check_blobs(N1, store(KeepBlob(5, b"whole"), *changes), {5: b"whole"})
    for image in (store(*changes), store(KeepBlob(5, b"who"), *changes)):
        with pytest.raises(Violation, match="blobs"):
            check_blobs(N1, image, {5: b"whole"})


# Group commits.


def test_a_group_commit_with_a_log_session_open_is_found() -> None:
    book = ledger((2, b"a"))
    book.begin(0, 3, 2)
    check_order(2, book, [])
    with pytest.raises(Violation, match="open"):
        check_order(3, book, [])


def test_a_group_commit_before_an_answer_is_found() -> None:
    asked = [Send(0, 0, LogEntryWrite(3)), Send(0, CONTROL, GcBoundarySwitch(bytes(16)))]
    check_order(2, ledger(), asked)
    with pytest.raises(Violation, match="before the answer"):
        check_order(3, ledger(), asked)


def test_a_group_commit_without_its_entries_is_found() -> None:
    book, whole, empty = ledger((2, b"a")), store(append(2, 1, b"a")), store()
    check_present(2, book, N1, whole, whole)
    check_present(2, book, N1, whole, None)
    check_present(1, book, N1, empty, empty)
    with pytest.raises(Violation, match="synced are 0"):
        check_present(2, book, N1, whole, empty)
    with pytest.raises(Violation, match="group_commit"):
        check_present(2, book, N1, empty, None)


def test_entries_of_an_aborted_log_session_at_a_group_commit_are_found() -> None:
    with pytest.raises(Violation, match="group_commit"):
        check_present(2, ledger(), N1, store(append(2, 1)), None)


# Serial steps.

APPENDED, FLUSHED = store(append(2, 1)), store(append(2, 1), RecordEpoch(2))
WRITE = Send(0, 0, LogEntryWrite(2, session_begin=True), (batch(1),))
FLUSHING = Send(0, 0, LogEntryWrite(2, session_end=True, flush=True))
DEFERRED = FlushAt.GROUP_COMMIT
BOUNDARY = store(RaiseBoundary(7))
SEVEN = Send(0, CONTROL, GcBoundarySwitch((7).to_bytes(16, "big")))


@pytest.mark.parametrize(
    ("options", "output", "seen", "durable", "is_right"),
    [
        (MasterOptions(), WRITE, store(), store(), True),
        (MasterOptions(parallel_append=False), WRITE, store(), store(), False),
        (MasterOptions(parallel_append=False), WRITE, APPENDED, store(), True),
        (MasterOptions(), FLUSHING, APPENDED, store(), True),
        (MasterOptions(parallel_flush=False), FLUSHING, APPENDED, APPENDED, False),
        (MasterOptions(flush_at=DEFERRED), FLUSHING, APPENDED, APPENDED, False),
        (MasterOptions(), Send(0, 0, LogChannelFlush()), APPENDED, store(), False),
        (MasterOptions(), Send(0, 0, LogChannelFlush()), APPENDED, APPENDED, True),
        (MasterOptions(), Send(0, CONTROL, GroupCommit(2)), APPENDED, APPENDED, True),
        (
            MasterOptions(parallel_commit=False),
            Send(0, CONTROL, GroupCommit(2)),
            FLUSHED,
            APPENDED,
            False,
        ),
        (
            MasterOptions(parallel_commit=False),
            Send(0, CONTROL, GroupCommit(2)),
            FLUSHED,
            FLUSHED,
            True,
        ),
        (MasterOptions(flush_at=DEFERRED), FlushLocally(0, 1), APPENDED, store(), False),
        (MasterOptions(), SEVEN, BOUNDARY, store(), False),
        (MasterOptions(), SEVEN, BOUNDARY, BOUNDARY, True),
    ],
)
def test_steps_that_must_wait_are_found_if_they_do_not(
    options: MasterOptions,
    output: MasterOutput,
    seen: EpochImage,
    durable: EpochImage,
    is_right: bool,
) -> None:
    if is_right:
        check_steps(options, output, seen, durable)
    else:
        with pytest.raises(Violation, match="serial_steps"):
            check_steps(options, output, seen, durable)


def test_a_stopped_master_that_goes_on_is_found() -> None:
    check_stopped(N1, None, [WRITE])
    check_stopped(N1, ReplicationFailed("lost"), [])
    with pytest.raises(Violation, match="stopped_master"):
        check_stopped(N1, ReplicationFailed("lost"), [WRITE])


# Replicas.

BEGIN = SessionBegin(1, "id", 2, 1)


@pytest.mark.parametrize(
    ("request_", "seen", "durable", "is_so"),
    [
        (LogEntryWrite(2), APPENDED, store(), True),
        (LogEntryWrite(2), store(), store(), False),
        (LogEntryWrite(2, flush=True), APPENDED, APPENDED, True),
        (LogEntryWrite(2, flush=True), APPENDED, store(), False),
        (LogChannelFlush(), APPENDED, store(), False),
        (LogChannelFlush(), APPENDED, APPENDED, True),
        (GroupCommit(2), FLUSHED, APPENDED, False),
        (GroupCommit(2), FLUSHED, FLUSHED, True),
        (GcBoundarySwitch((7).to_bytes(16, "big")), BOUNDARY, BOUNDARY, True),
        (GcBoundarySwitch((8).to_bytes(16, "big")), BOUNDARY, BOUNDARY, False),
        (BlobWrite(5, 0, 1), store(), store(), False),
        (BlobWrite(5, 0, 9), store(), store(), True),
        (BEGIN, FLUSHED, FLUSHED, True),
        (SessionBegin(1, "id", 3, 1), FLUSHED, FLUSHED, False),
        (SessionBegin(1, "another", 2, 1), FLUSHED, FLUSHED, False),
        (SessionBegin(1, "id", 0, 1), APPENDED, APPENDED, False),
    ],
)
def test_what_a_replica_acknowledges_must_be_so(
    request_: Request, seen: EpochImage, durable: EpochImage, is_so: bool
) -> None:
    batches = (batch(1),) if isinstance(request_, LogEntryWrite) else ()
    if is_so:
        check_acknowledged(N2, 0, request_, batches, seen, durable)
    else:
        with pytest.raises(Violation, match="replica_promises"):
            check_acknowledged(N2, 0, request_, batches, seen, durable)


def test_an_answer_that_nobody_asked_for_is_found() -> None:
    check_answer(N2, SessionEnd(), Ack())
    check_answer(N2, BEGIN, SessionBegun("secret"))
    check_answer(N2, BEGIN, Error(ErrorCode.SESSION_OPEN, ""))
    for request, answer in ((None, Ack()), (BEGIN, Ack()), (SessionEnd(), SessionBegun("secret"))):
        with pytest.raises(Violation, match="session_answers"):
            check_answer(N2, request, answer)


def test_a_request_without_an_answer_is_found() -> None:
    check_answered(N2, BEGIN, 10, 10)
    with pytest.raises(Violation, match="has not answered"):
        check_answered(N2, BEGIN, 11, 10)


def test_a_log_channel_of_a_session_that_ended_is_found() -> None:
    check_hung_up(N2, 4, is_living=True)
    with pytest.raises(Violation, match="of a session that ended"):
        check_hung_up(N2, 4, is_living=False)


def test_a_master_that_is_refused_for_what_it_asks_is_found() -> None:
    check_refusal(N2, GroupCommit(3), Error(ErrorCode.SESSION_BROKEN, ""))
    with pytest.raises(Violation, match="refusals"):
        check_refusal(N2, GroupCommit(3), Error(ErrorCode.LOG_SESSION_OPEN, ""))


def test_a_log_channel_for_another_secret_is_found() -> None:
    secrets = Secrets()
    secrets.on_begun(N2, 1, "first")
    secrets.on_channel(N2, "first")
    secrets.on_ended(N2, 9)
    secrets.on_channel(N2, "first")
    secrets.on_ended(N2, 1)
    with pytest.raises(Violation, match="session_secrets"):
        secrets.on_channel(N2, "first")
    secrets.on_begun(N2, 2, "second")
    for secret in ("first", ""):
        with pytest.raises(Violation, match="session_secrets"):
            secrets.on_channel(N2, secret)
    with pytest.raises(Violation, match="again"):
        secrets.on_begun(N2, 3, "first")


# Sides.


def test_sides_at_the_same_epoch_with_another_history_are_found() -> None:
    one, other = (store(append(2, 1, data), RecordEpoch(2)) for data in (b"a", b"b"))
    check_equal(N1, one, N2, one.copy())
    check_equal(N1, one, N2, store())
    with pytest.raises(Violation, match="equal_sides"):
        check_equal(N1, one, N2, other)


def test_a_promised_epoch_that_is_gone_is_found() -> None:
    promised = FLUSHED.cuts[-1]
    check_kept(N1, store(), None)
    check_kept(N1, store(append(2, 1), RecordEpoch(2), append(3, 2), RecordEpoch(3)), promised)
    for image in (store(), store(append(2, 1, b"other"), RecordEpoch(2))):
        with pytest.raises(Violation, match="kept_epochs"):
            check_kept(N1, image, promised)


def test_what_shows_without_a_record_is_found() -> None:
    check_only_recorded(N1, FLUSHED)
    with pytest.raises(Violation, match="kept_epochs"):
        check_only_recorded(N1, APPENDED)
