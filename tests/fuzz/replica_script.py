"""Hostile masters against the core of a replica: a script of bytes says who does what, and when.

The script also says when the store gets on with what it was asked for, and when it fails.  Rules
of the store and of the answers are checked here, whatever the masters say:

  F1  nothing is raised; every request has one answer, unless its connection is gone
  F2  a store is prepared when it has nothing else to do; entries continue their channel, are of
      epochs that are not committed, and nothing that is committed is ever cut
  F3  epochs of group commits ascend; none is begun while entries of it are being written
  F4  what the core says of epoch, boundary and configuration is what the store has
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    BlobWrite,
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
from tidelog.core.session.output import (
    ChannelBatch,
    Commit,
    DropBlob,
    Hang,
    Prepare,
    Reply,
    SetBoundary,
    StoreOutput,
    Write,
    WriteBlob,
)
from tidelog.core.session.replica import ReplicaSessions

_CONNECTIONS_MAX: Final = 6
_FAR: Final = ((1 << 63) - 1, 1 << 40)


class Script:
    """Numbers, one byte each; 0 once they are used up."""

    def __init__(self, data: bytes) -> None:
        self._bytes: Iterator[int] = iter(data)
        self.is_over = not data

    def number(self, end: int) -> int:
        byte = next(self._bytes, None)
        if byte is None:
            self.is_over = True
            return 0
        return byte % end


class Store:
    """What the store of a replica would hold, with its checks (F2, F3)."""

    def __init__(self) -> None:
        self.configuration_id: str | None = None
        self.epoch = 0
        self.boundary = 0
        self.blobs: set[int] = set()
        self.steps: list[StoreOutput | DropBlob] = []
        """What was asked for and is not done yet."""
        self._recorded: dict[int, int] = {}
        """Where the recorded entries of each channel end."""
        self._unrecorded: dict[int, list[tuple[int, int]]] = {}
        """Epoch and end of each batch behind them."""

    def ask(self, step: StoreOutput | DropBlob) -> None:
        match step:
            case Prepare():
                assert not [one for one in self.steps if not isinstance(one, DropBlob)], "F2"
            case Commit():
                asked = [one for one in self.steps if isinstance(one, Write)]
                assert all(write.epoch > step.epoch for write in asked), "F3"
            case Write():
                commits = [one.epoch for one in self.steps if isinstance(one, Commit)]
                assert all(step.epoch > epoch for epoch in commits) or not step.batches, "F3"
        self.steps.append(step)

    def carry_out(self, step: StoreOutput | DropBlob) -> tuple[int, ...]:
        """Do it; the ends of the channels for a Prepare."""
        match step:
            case Prepare():
                assert self.configuration_id in (None, step.configuration_id), "F4"
                self.configuration_id = step.configuration_id
                self._unrecorded.clear()
                return tuple(self.end(channel) for channel in range(step.channels))
            case Write():
                self._write(step)
            case Commit():
                assert step.epoch > self.epoch, "F3: epochs ascend"
                self.epoch = step.epoch
                self._record()
            case SetBoundary():
                assert step.version > self.boundary
                self.boundary = step.version
            case WriteBlob():
                assert step.offset + len(step.data) <= step.size
                if step.offset + len(step.data) == step.size:
                    self.blobs.add(step.blob)
        return ()

    def end(self, channel: int) -> int:
        tail = self._unrecorded.get(channel)
        return tail[-1][1] if tail else self._recorded.get(channel, 1)

    def _record(self) -> None:
        for channel, tail in self._unrecorded.items():
            while tail and tail[0][0] <= self.epoch:
                self._recorded[channel] = tail.pop(0)[1]

    def _write(self, step: Write) -> None:
        tail = self._unrecorded.setdefault(step.channel, [])
        for batch in step.batches:
            assert batch.llsn_begin == self.end(step.channel), "F2: entries continue their channel"
            assert step.epoch > self.epoch, "F2: the epoch is not committed"
            assert not tail or step.epoch >= tail[-1][0], "F2: epochs of a channel never fall"
            tail.append((step.epoch, batch.llsn_end))
        if step.cut_to is not None:
            while tail and tail[-1][1] > step.cut_to:
                tail.pop()
            assert self.end(step.channel) == step.cut_to, "F2: cuts come between batches"


class Connection:
    """What a master knows of its connection."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.awaits = False
        self.channel = 0


class Replica:
    """The core, its store and its masters."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.store = Store()
        self.core = self._start()
        self.requests = 0
        self.answers = 0
        self.given_up = 0
        """Requests whose connection was gone before their answer."""
        self._connections: list[Connection] = []
        self._numbers = 0
        self._secrets = ["none"]

    def _start(self) -> ReplicaSessions:
        return ReplicaSessions(
            configuration_id=self.store.configuration_id,
            epoch=self.store.epoch,
            boundary=self.store.boundary,
            blob_exists=lambda blob: blob in self.store.blobs,
        )

    def run(self) -> None:
        while not self._script.is_over:
            self.step()
        self.finish()

    def step(self) -> None:
        match self._script.number(8):
            case 0:
                self._connect()
            case 1 if self._connections and self._script.number(4) == 0:
                self._leave()
            case 2 if self._script.number(8) == 0:
                self._babble()
            case 3 | 4:
                self._get_on(fails=self._script.number(16) == 15)
            case _:
                self._request()
        self._carry_out()

    def finish(self) -> None:
        """The store does all that it was asked for; then everybody has an answer (F1)."""
        while self.store.steps:
            self._get_on(fails=False)
            self._carry_out()
        assert not any(connection.awaits for connection in self._connections), "F1"
        assert self.answers + self.given_up == self.requests, "F1"
        assert self.core.epoch == self.store.epoch, "F4"
        assert self.core.boundary == self.store.boundary, "F4"
        assert self.core.configuration_id == self.store.configuration_id, "F4"

    # -- masters --------------------------------------------------------------------------------

    def _connect(self) -> None:
        if len(self._connections) < _CONNECTIONS_MAX:
            self._numbers += 1
            self._connections.append(Connection(self._numbers))
            self.core.connected(self._numbers)

    def _leave(self) -> None:
        number = self._script.number(len(self._connections))
        connection = self._connections.pop(number)
        self.given_up += connection.awaits
        self.core.lost(connection.number)

    def _babble(self) -> None:
        for connection in self._free()[:1]:
            self.requests += 1
            connection.awaits = True
            self.core.undecodable(connection.number)

    def _free(self) -> list[Connection]:
        return [one for one in self._connections if not one.awaits]

    def _request(self) -> None:
        free = self._free()
        if not free:
            return
        connection = free[self._script.number(len(free))]
        request = self._any_request(connection)
        batches = self._batches(connection) if isinstance(request, LogEntryWrite) else ()
        data = bytes(self._script.number(4)) if isinstance(request, BlobWrite) else b""
        self.requests += 1
        connection.awaits = True
        secret = f"secret {self.requests}"
        self.core.received(
            connection.number, request, fresh_secret=secret, batches=batches, data=data
        )

    def _any_request(self, connection: Connection) -> Request:
        number = self._script.number
        match number(12):
            case 0 | 1:
                version = SESSION_PROTOCOL + (number(16) == 15)
                name = "ab"[number(8) == 7]
                return SessionBegin(version, name, self._epoch(-1), self._any_number(4))
            case 2 | 3:
                connection.channel = number(3)
                channel = _FAR[0] if number(16) == 15 else connection.channel
                secret = self._secrets[-1 - number(2) * (len(self._secrets) > 1)]
                return LogChannelCreate(secret, channel)
            case 4 | 5 | 6 | 7:
                flags = number(16)
                return LogEntryWrite(self._epoch(0), *(bool(flags & bit) for bit in (1, 2, 4, 8)))
            case 8:
                return GroupCommit(self._epoch(0))
            case 9:
                version = number(256) << 64 * number(2)
                return GcBoundarySwitch(version.to_bytes(16, "big"))
            case 10:
                return BlobWrite(number(3), self._any_number(3), self._any_number(6))
            case _:
                return (
                    SessionEnd(),
                    LogChannelDispose(),
                    LogChannelFlush(),
                    SafeSnapshotSwitch(bytes(16)),
                )[number(4)]

    def _epoch(self, more: int) -> int:
        """One that may fit, mostly."""
        return max(self.store.epoch + self._any_number(4) + more, 0) % (1 << 63)

    def _any_number(self, end: int) -> int:
        number = self._script.number(end + 1)
        return number if number < end else _FAR[self._script.number(len(_FAR))]

    def _batches(self, connection: Connection) -> tuple[ChannelBatch, ...] | None:
        kind = self._script.number(16)
        if kind == 15:
            return None
        begin = self.store.end(connection.channel) + (kind == 14)
        found = []
        for _ in range(self._script.number(3)):
            end = begin + 1 + self._script.number(2)
            blobs = (self._script.number(3),) if kind > 11 else ()
            found.append(ChannelBatch(begin, end, b"", blobs))
            begin = end
        return tuple(found)

    # -- the replica ----------------------------------------------------------------------------

    def _get_on(self, *, fails: bool) -> None:
        """The store ends one step: the first of any lane, for within a lane they have an order."""
        lanes: dict[int, StoreOutput | DropBlob] = {}
        for step in self.store.steps:
            lanes.setdefault(_lane_of(step), step)
        if not lanes:
            return
        step = list(lanes.values())[self._script.number(len(lanes))]
        self.store.steps.remove(step)
        if isinstance(step, DropBlob):
            self.store.carry_out(step)
        elif fails:
            self.core.failed(step.ticket, "the disk is full")
        elif isinstance(step, Prepare):
            self.core.prepared(step.ticket, self.store.carry_out(step))
        else:
            self.store.carry_out(step)
            self.core.done(step.ticket)

    def _carry_out(self) -> None:
        for output in self.core.take():
            match output:
                case Reply():
                    self._answered(output)
                case Hang(connection=number):
                    self._hung_up(number)
                case _:
                    self.store.ask(output)

    def _answered(self, reply: Reply) -> None:
        for connection in self._connections:
            if connection.number == reply.connection:
                assert connection.awaits, "F1: an answer that nobody awaits"
                connection.awaits = False
                self.answers += 1
                if isinstance(reply.answer, SessionBegun):
                    self._secrets.append(reply.answer.secret)
                return
        raise AssertionError("F1: an answer on a connection that is gone")

    def _hung_up(self, number: int) -> None:
        """The connection is closed; the core is told of that, too."""
        for connection in list(self._connections):
            if connection.number == number:
                self.given_up += connection.awaits
                self._connections.remove(connection)
                self.core.lost(number)


def _lane_of(step: StoreOutput | DropBlob) -> int:
    match step:
        case Write(channel=channel) | WriteBlob(channel=channel) | DropBlob(channel=channel):
            return channel
        case _:
            return -1
