"""The host of a simulated replica service: connections, threads, the store.

Invariants:
  D1  requests of a connection are handed over one at a time, in their order
  D2  what one channel wants from the store is done in its order, and so is what the control
      channel wants; channels do not wait for one another
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.core.session.output import (
    CONTROL,
    Commit,
    DropBlob,
    Hang,
    Prepare,
    ReplicaOutput,
    Reply,
    SetBoundary,
    Write,
    WriteBlob,
)
from tidelog.core.session.replica import ReplicaSessions
from tidelog.testing.checkers.session_answers import check_answer, check_answered
from tidelog.testing.session_lateness import lateness
from tidelog.testing.session_wires import SERVER, Asked, Wire
from tidelog.testing.sometimes import Rare
from tidelog.testing.violation import Violation
from tidelog.testing.world import SECOND

if TYPE_CHECKING:
    from tidelog.testing.session_machine import SessionMachine

PATIENCE: Final = 10 * SECOND
"""A request that is not answered after this never will be."""
LINGER: Final = 500
"""Microseconds that a service still lives when it could not sync."""

Work: TypeAlias = Prepare | Write | Commit | SetBoundary | WriteBlob | DropBlob


class Connection:
    """One connection, with what came on it and was not handed over."""

    __slots__ = ("handed_at", "inbox", "request", "wire")

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.inbox: deque[Asked] = deque()
        self.request: Asked | None = None
        """The one that is not answered."""
        self.handed_at = 0


class ReplicaShell:
    """One life of a replica service."""

    __slots__ = (
        "_connections",
        "_draws",
        "_machine",
        "_parts",
        "_secrets",
        "_work",
        "core",
    )

    def __init__(self, machine: SessionMachine) -> None:
        cluster, image = machine.cluster, machine.disk.seen
        self._machine = machine
        self._draws = cluster.chance.stream("replica", machine.node, machine.incarnation)
        self._secrets = 0
        self.core = ReplicaSessions(
            configuration_id=image.configuration_id,
            epoch=image.epoch,
            boundary=image.boundary,
            blob_exists=self._blob_exists,
            stamp=self._stamp,
        )
        self._connections: dict[int, Connection] = {}
        self._work: dict[int, deque[Work]] = {}
        """By lane; the first one is being done."""
        self._parts: dict[int, bytes] = {}
        """By channel: the parts of the BLOB that comes on it."""

    def _blob_exists(self, blob: int) -> bool:
        return blob in self._machine.disk.seen.blobs

    def _stamp(self) -> str:
        return self._machine.disk.seen.stamp

    # Connections.

    def on_connected(self, wire: Wire) -> None:
        self._connections[wire.number] = Connection(wire)
        self.core.connected(wire.number)

    def on_asked(self, wire: Wire, asked: Asked) -> None:
        connection = self._connections[wire.number]
        connection.inbox.append(asked)
        self._hand_over(connection)
        self.settle()

    def on_lost(self, wire: Wire) -> None:
        del self._connections[wire.number]
        self._machine.cluster.checks.on_replica_lost(self._machine, wire)
        self.core.lost(wire.number)
        self.settle()

    def _hand_over(self, connection: Connection) -> None:
        """Let the core have the next request (D1)."""
        if connection.request is not None or not connection.inbox:
            return
        asked = connection.request = connection.inbox.popleft()
        connection.handed_at = self._machine.world.now
        self._secrets += 1
        self.core.received(
            connection.wire.number,
            asked.message,
            fresh_secret=f"{self._machine.node}/{self._machine.incarnation}/{self._secrets}",
            batches=asked.batches,
            data=asked.data,
        )

    def check_answered(self) -> None:
        """Check that nobody waits for ever."""
        now = self._machine.world.now
        for connection in self._connections.values():
            if connection.request is not None:
                waited = now - connection.handed_at
                check_answered(self._machine.node, connection.request.message, waited, PATIENCE)

    # What the core wants.

    def settle(self) -> None:
        """Carry out all that there is."""
        while outputs := self.core.take():
            for output in outputs:
                self._carry_out(output)
        self._machine.cluster.checks.on_settled(self._machine, self._connections)

    def _carry_out(self, output: ReplicaOutput) -> None:
        match output:
            case Reply():
                self._reply(output)
            case Hang(number):
                connection = self._connections.pop(number, None)
                if connection is not None:
                    self._machine.cluster.checks.on_replica_lost(self._machine, connection.wire)
                    self._machine.cluster.wires.hang(connection.wire, SERVER)
            case Prepare() | Commit() | SetBoundary():
                self._plan(CONTROL, output)
            case Write(channel=channel) | WriteBlob(channel=channel) | DropBlob(channel=channel):
                self._plan(channel, output)

    def _reply(self, reply: Reply) -> None:
        connection = self._connections.get(reply.connection)
        asked = None if connection is None else connection.request
        check_answer(self._machine.node, asked.message if asked else None, reply.answer)
        if connection is None or asked is None:
            return
        connection.request = None
        checks = self._machine.cluster.checks
        checks.on_reply(self._machine, connection.wire, asked, reply.answer)
        self._machine.cluster.wires.answer(connection.wire, reply.answer)
        self._hand_over(connection)

    # Threads.

    def _plan(self, lane: int, work: Work) -> None:
        waiting = self._work.setdefault(lane, deque())
        waiting.append(work)
        if len(waiting) == 1:
            self._begin(lane)

    def _begin(self, lane: int) -> None:
        """Do the next thing on a lane; now and then the thread is late (D2)."""
        self._machine.after(lateness(self._draws), partial(self._do, lane))

    def _do(self, lane: int) -> None:
        work, disk = self._work[lane][0], self._machine.disk
        if not isinstance(work, DropBlob) and self._machine.takes_failure():
            self._fail(lane, work)
            return
        end = partial(self._end, lane)
        match work:
            case Prepare(_, configuration_id, channels):
                if disk.seen.unrecorded():
                    self._machine.cluster.sometimes.count(Rare.DROPPED_AT_SESSION_BEGIN)
                disk.make_ready(configuration_id, channels, end)
            case Write():
                self._write(lane, work, end)
            case Commit(_, epoch):
                disk.record(epoch, end)
            case SetBoundary(_, version):
                disk.set_boundary(version, end)
            case WriteBlob():
                self._write_part(lane, work, end)
            case DropBlob():
                self._machine.cluster.sometimes.count(Rare.BLOB_INTERRUPTED)
                self._parts.pop(lane, None)
                end()

    def _write(self, lane: int, work: Write, end: partial[None]) -> None:
        disk = self._machine.disk
        if work.batches:
            disk.append(lane, work.epoch, work.batches)
        if work.cut_to is not None:
            disk.cut(lane, work.cut_to)
        if work.flush:
            disk.flush(lane, end)
        else:
            end()

    def _write_part(self, lane: int, work: WriteBlob, end: partial[None]) -> None:
        before = self._parts.pop(lane, b"") if work.offset else b""
        if len(before) != work.offset:
            raise Violation("blobs", f"{work} comes after {len(before)} bytes")
        data = before + bytes(work.data)
        if len(data) == work.size:
            self._machine.disk.keep_blob(work.blob, data, end)
        else:
            self._parts[lane] = data
            end()

    def _end(self, lane: int) -> None:
        work = self._next(lane)
        if isinstance(work, Prepare):
            self.core.prepared(work.ticket, self._machine.disk.seen.ends())
        elif not isinstance(work, DropBlob):
            self.core.done(work.ticket)
        self.settle()

    def _fail(self, lane: int, work: Prepare | Write | Commit | SetBoundary | WriteBlob) -> None:
        """The disk is full; or a sync failed, and then the service stops when it has said so."""
        self._next(lane)
        if isinstance(work, Write) and work.batches and self._draws.random() < 0.5:
            self._machine.disk.append(lane, work.epoch, work.batches)
        self._machine.cluster.sometimes.count(Rare.WRITE_FAILED)
        self.core.failed(work.ticket, "the disk takes nothing")
        self.settle()
        if self._draws.random() < 0.5:
            self._machine.after(
                LINGER, partial(self._machine.cluster.operators.service_left, self._machine)
            )

    def _next(self, lane: int) -> Work:
        waiting = self._work[lane]
        work = waiting.popleft()
        if waiting:
            self._begin(lane)
        return work
