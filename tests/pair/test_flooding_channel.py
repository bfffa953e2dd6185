"""A log channel that floods its session: memory stays bounded, the other channels go on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.replica_service.raw_master import Connection, RawMaster
from tests.replica_service.replica_process import ReplicaProcess
from tidelog.core.session.messages import Ack, ErrorCode, LogEntryWrite
from tidelog.errors import ConnectionLost
from tidelog.formats.channel_batch import encode_channel_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.session_messages import encode_session_message
from tidelog.formats.wire import encode_frame
from tidelog.limits import BATCH_ENTRIES_MAX, MIB

MILLION = BATCH_ENTRIES_MAX
MESSAGES = 20_000
EMPTY = Entry(Kind.DELETE_STORAGE, b"", b"", 3, 1)
GOOD, BAD = 0, 1


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[ReplicaProcess]:
    program = ("tests.pair.impatient_replica",)
    with ReplicaProcess(tmp_path / "replica", program=program) as running:
        yield running
        assert running.process.poll() is None, running.errors()
        assert "Traceback" not in running.errors()


@pytest.fixture
def master(replica: ReplicaProcess) -> Iterator[RawMaster]:
    with RawMaster(replica) as running:
        yield running


def work(master: RawMaster, epochs: int = 3) -> None:
    """The good channel writes, and its epochs are committed."""
    for _ in range(epochs):
        epoch = master.replica.epoch + 1
        assert isinstance(master.write(GOOD, epoch, b"key"), Ack)
        assert isinstance(master.commit(epoch), Ack)


def test_a_million_empty_entries_in_one_message_are_taken_in_bounded_memory(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    work(master)
    epoch = master.replica.epoch + 1
    batch = encode_channel_batch(BAD, epoch, 1, [EMPTY] * MILLION)
    before = replica.peak_bytes
    lane = master.lane(BAD)
    lane.send(LogEntryWrite(epoch, True, True, False, True), batch.data)
    assert isinstance(lane.answer(), Ack)
    assert isinstance(master.commit(epoch), Ack)
    work(master)
    assert replica.peak_bytes - before < 4 * len(batch.data) + 32 * MIB


def test_a_batch_that_claims_more_entries_than_allowed_is_refused(master: RawMaster) -> None:
    work(master)
    epoch = master.replica.epoch + 1
    data = bytearray(encode_channel_batch(BAD, epoch, 1, [EMPTY]).data)
    data[16:20] = (0xFFFFFFFF).to_bytes(4, "little")
    request = LogEntryWrite(epoch, True, True, False, True)
    assert master.lane(BAD).error(request, bytes(data)) is ErrorCode.BAD_ENTRIES
    work(master)


def flood(lane: Connection, epoch: int, count: int) -> None:
    """Messages without entries, one behind the other, without a look at the answers."""
    message = encode_session_message(LogEntryWrite(epoch))
    for first in range(0, count, 1_000):
        numbers = range(first + 2, first + 1_002)  # The lane was created by request 1.
        frames = (encode_frame(message, request=number) for number in numbers)
        try:
            lane.send_bytes(b"".join(frames))
        except OSError:
            return  # It was sent away.


def read_answers(lane: Connection, count: int) -> int:
    """How many of them came."""
    for number in range(count):
        try:
            lane.receive()
        except ConnectionLost:
            return number
    return count


def flooded(replica: ReplicaProcess, master: RawMaster, count: int) -> None:
    work(master)
    before = replica.peak_bytes
    lane = master.lane(BAD)
    epoch = master.replica.epoch + 1_000_000
    with ThreadPoolExecutor(2) as pool:
        pool.submit(flood, lane, epoch, count)
        reading = pool.submit(read_answers, lane, count)
        try:
            work(master, 5)
            assert reading.result() == count
        finally:
            lane.close()
    assert replica.peak_bytes - before < 64 * MIB


def test_a_flood_of_messages_without_entries_holds_nobody_up(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    flooded(replica, master, MESSAGES)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_million_messages_without_entries_are_answered_in_bounded_memory(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    flooded(replica, master, 1_000_000)
