"""Masters that ask for anything in any order, of a real replica: it answers, lives and stays sound.

What the core makes of such masters is in tests/fuzz; here its store and its threads are real.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.pair.forked import Nursery
from tests.pair.pair import ReplicaProcess
from tests.replica_service.raw_master import CONFIGURATION, Connection
from tidelog.cli.restore_files import restore
from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Ack,
    Answer,
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
from tidelog.errors import ConnectionLost
from tidelog.formats.channel_batch import encode_channel_batch
from tidelog.formats.entry import Entry, Kind

SESSIONS = 25
SOAK_SESSIONS = 1_000
REQUESTS = 60
CHANNELS = 2
CONTINUES = re.compile(r"do not continue (\d+)")
POSITION = re.compile(r"the replica at (\d+)")


class Wild:
    """One master after the other, and what they learnt about the replica."""

    def __init__(self, address: str, random: Random) -> None:
        self._address = address
        self._random = random
        self._epoch = 0
        self._ends: dict[int, int] = {}
        self.met: Counter[str] = Counter()
        self.committed = 0

    def live(self) -> None:
        """One session, from its begin to one end or another."""
        with Connection(self._address) as control:
            begun = self._begin(control)
            if begun is None:
                return
            lanes = [self._lane(begun.secret, channel) for channel in range(CHANNELS)]
            try:
                for _ in range(REQUESTS):
                    if self._ask_anything(control, lanes) is ErrorCode.SESSION_BROKEN:
                        break
            except (ConnectionLost, OSError):
                self.met["hung up"] += 1
            finally:
                for lane in lanes:
                    lane.close()

    def _begin(self, control: Connection) -> SessionBegun | None:
        """It may take a moment until the session of the last master is gone."""
        request = SessionBegin(SESSION_PROTOCOL, CONFIGURATION, self._epoch, CHANNELS)
        answer = control.ask(request)
        self._note(answer)
        if isinstance(answer, Error) and (found := POSITION.search(answer.message)):
            self._epoch = int(found[1])
        return answer if isinstance(answer, SessionBegun) else None

    def _lane(self, secret: str, channel: int) -> Connection:
        lane = Connection(self._address)
        lane.ack(LogChannelCreate(secret, channel))
        return lane

    def _ask_anything(self, control: Connection, lanes: list[Connection]) -> ErrorCode | None:
        """The error that answers it, if any."""
        random = self._random
        if random.random() < 0.25:
            request = self._control_request()
            answer = control.ask(request)
            if isinstance(request, GroupCommit) and isinstance(answer, Ack):
                self._epoch = self.committed = request.epoch
        else:
            channel = random.randrange(CHANNELS)
            request, data = self._log_request(channel)
            answer = lanes[channel].ask(request, data)
            if isinstance(answer, Error) and (found := CONTINUES.search(answer.message)):
                self._ends[channel] = int(found[1])
        return self._note(answer)

    def _note(self, answer: Answer) -> ErrorCode | None:
        code = ErrorCode(answer.code) if isinstance(answer, Error) else None
        self.met[type(answer).__name__ if code is None else code.name] += 1
        return code

    def _control_request(self) -> Request:
        random = self._random
        return random.choice(
            (
                GroupCommit(self._epoch + 1),
                GroupCommit(self._epoch + random.randrange(4)),
                GroupCommit(max(self._epoch - 1, 0)),
                GcBoundarySwitch(random.randrange(1 << 6).to_bytes(16, "big")),
                SafeSnapshotSwitch(bytes(16)),
                SessionBegin(SESSION_PROTOCOL, CONFIGURATION, self._epoch, CHANNELS),
                LogChannelFlush(),
                SessionEnd() if random.random() < 0.05 else GroupCommit(self._epoch + 1),
            )
        )

    def _log_request(self, channel: int) -> tuple[Request, bytes]:
        random = self._random
        if random.random() < 0.15:
            return self._blob_part()
        if random.random() < 0.05:
            return random.choice((LogChannelFlush(), LogChannelDispose())), b""
        epoch = self._epoch + random.randrange(-1, 3)
        flags = [random.random() < share for share in (0.6, 0.6, 0.1, 0.5)]
        return LogEntryWrite(max(epoch, 0), *flags), self._batches(channel, max(epoch, 0))

    def _batches(self, channel: int, epoch: int) -> bytes:
        random = self._random
        begin = self._ends.get(channel, 1)
        data = b""
        for _ in range(random.randrange(3)):
            count = random.randint(1, 5)
            batch = encode_channel_batch(
                channel, epoch, begin, [self._entry() for _ in range(count)]
            )
            data += bytes(batch.data)
            begin = batch.llsn_end
        if data and random.random() < 0.1:
            place = random.randrange(len(data))
            data = data[:place] + bytes((data[place] ^ 0x55,)) + data[place + 1 :]
        return data

    def _entry(self) -> Entry:
        random = self._random
        kind = random.choice((Kind.PUT, Kind.PUT, Kind.DELETE, Kind.DELETE_STORAGE))
        key = b"" if kind is Kind.DELETE_STORAGE else b"key %d" % random.randrange(10)
        blobs = (random.randint(1, 4),) if kind is Kind.PUT and random.random() < 0.1 else ()
        return Entry(
            kind, b"", key, random.randrange(3), random.randrange(1 << 5, 1 << 16), 0, blobs
        )

    def _blob_part(self) -> tuple[Request, bytes]:
        random = self._random
        size = random.choice((0, 1, 1, 1_000, 1_000, 1_000, (1 << 63) - 1))
        offset = random.choice((0, 0, 500, size))
        data = bytes(min(random.choice((0, 1, 500, 1_000)), 1_000))
        return BlobWrite(random.randint(1, 4), offset, size), data


def live_wildly(tmp_path: Path, seed: int, sessions: int) -> Counter[str]:
    nursery = Nursery()
    try:
        replica = ReplicaProcess(nursery, tmp_path / "replica")
        wild = Wild(replica.address, Random(seed))
        for _ in range(sessions):
            wild.live()
        replica.stop()
    finally:
        nursery.close()
    restored = restore(str(tmp_path / "replica"), str(tmp_path / "restored"), lambda _: None)
    assert restored.epoch == wild.committed
    return wild.met


@pytest.mark.slow
def test_a_replica_lives_through_wild_masters_and_stays_sound(tmp_path: Path) -> None:
    met = live_wildly(tmp_path, 1, SESSIONS)
    assert met["Ack"] > 50
    for code in (ErrorCode.BAD_ENTRIES, ErrorCode.EPOCH_COMMITTED, ErrorCode.NO_LOG_SESSION):
        assert met[code.name] > 0, met


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_replica_lives_through_a_thousand_wild_masters(tmp_path: Path) -> None:
    live_wildly(tmp_path, 2, SOAK_SESSIONS)
