"""The host of a simulated master: each lane has a thread, each replica's lane a connection.

Invariants:
  A1  outputs of a lane are carried out in their order, one after the other; lanes do not wait for
      one another
  A2  answers of a connection are told in their order
  A3  a lost connection shows at once, or, if nobody listens, when an answer is awaited on it or
      something is to be sent
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.core.session.master import Master
from tidelog.core.session.messages import Answer, BlobWrite, Error
from tidelog.core.session.output import (
    CONTROL,
    AppendLocally,
    CutLocally,
    FlushLocally,
    MasterOutput,
    RecordLocally,
    Send,
    SendBlob,
    SetBoundaryLocally,
)
from tidelog.testing.checkers.stopped_master import check_stopped
from tidelog.testing.session_application import Application
from tidelog.testing.session_lateness import lateness
from tidelog.testing.session_wires import Asked, Wire
from tidelog.testing.sometimes import Rare
from tidelog.testing.world import MILLISECOND

if TYPE_CHECKING:
    from tidelog.testing.session_machine import SessionMachine

PATIENCE: Final = 600 * MILLISECOND
"""A replica that has not answered after this is given up."""
WATCH_EVERY: Final = 100 * MILLISECOND
LINGER_MEAN: Final = 10 * MILLISECOND
PART_BYTES: Final = 4


class MasterShell:
    """One life of a master."""

    __slots__ = (
        "_asked",
        "_blob",
        "_busy",
        "_draws",
        "_is_leaving",
        "_lost",
        "_places",
        "_todo",
        "_wires",
        "application",
        "core",
        "ledger",
        "machine",
        "replicas",
    )

    def __init__(self, machine: SessionMachine) -> None:
        cluster, disk = machine.cluster, machine.disk
        self.machine = machine
        self._draws = cluster.chance.stream("master", cluster.lives)
        if disk.durable.configuration_id is None:
            disk.create(cluster.new_configuration_id(), cluster.channel_count)
        self.replicas = cluster.operators.replicas()
        self.ledger = cluster.new_ledger(machine)
        self.core = Master(
            configuration_id=disk.seen.configuration_id or "",
            epoch=disk.seen.epoch,
            ends=disk.seen.ends(),
            replicas=len(self.replicas),
            options=cluster.options,
            boundary=disk.seen.boundary,
            stamp=disk.seen.stamp,
        )
        lanes = (CONTROL, *range(cluster.channel_count))
        self._todo: dict[int, deque[MasterOutput]] = {lane: deque() for lane in lanes}
        self._busy = dict.fromkeys(lanes, False)
        self._wires: dict[tuple[int, int], Wire] = {}
        self._places: dict[int, tuple[int, int]] = {}
        """The replica and the lane of each connection."""
        self._lost: set[tuple[int, int]] = set()
        self._asked: dict[tuple[int, int], deque[tuple[int, Send]]] = {}
        """What was asked and not answered, and when."""
        self._blob: dict[int, tuple[SendBlob, int]] = {}
        """By lane: the BLOB that is on its way, and where its next part begins."""
        self._is_leaving = False
        self.application = Application(machine, self)

    def start(self) -> None:
        """Open the sessions."""
        self.core.open()
        self.machine.after(WATCH_EVERY, self._watch)
        self.settle()

    # What was asked, for checkers.

    def unanswered(self) -> list[Send]:
        """All requests whose answers have not come."""
        return [send for asked in self._asked.values() for _, send in asked]

    # Lanes.

    def settle(self) -> None:
        """Tell what became safe, and let every lane carry out what it can."""
        self._tell()
        for lane in self._todo:
            if not self._busy[lane]:
                self._pump(lane)
        self._tell()
        self.application.settle()
        if (self.core.failure is not None or self.core.is_ended) and not self._is_leaving:
            self._is_leaving = True
            # Threads that are at work go on for a while.
            self.machine.after(int(self._draws.expovariate(1.0) * LINGER_MEAN), self._leave)

    def _leave(self) -> None:
        self.machine.cluster.operators.master_left(self.machine, self.core.failure)

    def _pump(self, lane: int) -> None:
        """Carry out what there is to do on a lane, until something takes time (A1)."""
        todo = self._todo[lane]
        while not self._busy[lane]:
            if not todo:
                todo.extend(self.core.take(lane))
                check_stopped(self.machine.node, self.core.failure, todo)
            if not todo:
                return
            self._carry_out(lane, todo.popleft())

    def _carry_out(self, lane: int, output: MasterOutput) -> None:
        disk, checks = self.machine.disk, self.machine.cluster.checks
        checks.on_master_output(self, output)
        if isinstance(output, FlushLocally | RecordLocally) and self.machine.takes_failure():
            self.machine.cluster.sometimes.count(Rare.WRITE_FAILED)
            self.core.store_failed("the disk takes nothing")
            return
        match output:
            case Send():
                self._send(output)
            case SendBlob():
                self._blob[lane] = (output, 0)
                self._busy[lane] = True
                self._send_part(output, 0)
            case AppendLocally(_, epoch, batches, ticket):
                self._soon(lane, ticket, partial(disk.append, lane, epoch, batches))
            case CutLocally(_, llsn_end, ticket):
                self._soon(lane, ticket, partial(disk.cut, lane, llsn_end))
            case FlushLocally(_, ticket):
                self._busy[lane] = True
                disk.flush(lane, partial(self._carried_out, lane, ticket))
            case RecordLocally(epoch, ticket):
                self._busy[lane] = True
                self._later(partial(disk.record, epoch, partial(self._carried_out, lane, ticket)))
            case SetBoundaryLocally(version, ticket):
                self._busy[lane] = True
                disk.set_boundary(version, partial(self._carried_out, lane, ticket))

    def _later(self, action: partial[None]) -> None:
        self.machine.after(lateness(self._draws), action)

    def _soon(self, lane: int, ticket: int, step: partial[None]) -> None:
        """Carry out a step in memory; now and then the thread is late."""
        if self._draws.random() < 0.5:
            step()
            self.core.stored(ticket)
        else:
            self._busy[lane] = True
            self._later(partial(self._step_late, lane, ticket, step))

    def _step_late(self, lane: int, ticket: int, step: partial[None]) -> None:
        step()
        self._carried_out(lane, ticket)

    def _carried_out(self, lane: int, ticket: int) -> None:
        self._busy[lane] = False
        self.core.stored(ticket)
        self.settle()

    def _tell(self) -> None:
        for notice in self.core.notices():
            self.machine.cluster.on_notice(self, notice)

    # Connections.

    def _send(self, send: Send) -> None:
        place = send.replica, send.lane
        if place in self._lost:
            self.core.failed(send.replica, "the connection is lost")
            return
        self._asked.setdefault(place, deque()).append((self.machine.world.now, send))
        self.machine.cluster.wires.ask(self._wire(place), Asked(send.message, send.batches))

    def _send_part(self, send: SendBlob, offset: int) -> None:
        place = send.replica, send.lane
        if place in self._lost:
            self.core.failed(send.replica, "the connection is lost")
            return
        data = self.machine.disk.seen.blobs[send.blob]
        part = data[offset : offset + PART_BYTES]
        message = BlobWrite(send.blob, offset, len(data))
        self.machine.cluster.wires.ask(self._wire(place), Asked(message, data=part))

    def _wire(self, place: tuple[int, int]) -> Wire:
        wire = self._wires.get(place)
        if wire is None:
            cluster = self.machine.cluster
            replica = cluster.machines[self.replicas[place[0]]]
            wire = self._wires[place] = cluster.wires.connect(self.machine, replica)
            self._places[wire.number] = place
        return wire

    def on_answered(self, wire: Wire, answer: Answer) -> None:
        """A replica has answered."""
        replica, lane = place = self._places[wire.number]
        blob = self._blob.get(lane)
        if blob is not None and blob[0].replica == replica and not self._asked.get(place):
            self._on_part_answered(lane, answer, *blob)
        else:
            if self._asked[place]:
                self.machine.cluster.checks.on_answer(self, self._asked[place].popleft()[1], answer)
            self.core.answered(replica, lane, answer)
        self.settle()

    def _on_part_answered(self, lane: int, answer: Answer, send: SendBlob, offset: int) -> None:
        offset += PART_BYTES
        if isinstance(answer, Error):
            self.core.answered(send.replica, lane, answer)
        elif offset < len(self.machine.disk.seen.blobs[send.blob]):
            self._blob[lane] = (send, offset)
            self._send_part(send, offset)
        else:
            self.machine.cluster.sometimes.count(Rare.BLOB_SENT)
            del self._blob[lane]
            self._busy[lane] = False

    def on_lost(self, wire: Wire) -> None:
        """A connection is gone (A3)."""
        place = self._places[wire.number]
        self._lost.add(place)
        blob = self._blob.get(place[1])
        is_awaited = self._asked.get(place) or (blob is not None and blob[0].replica == place[0])
        # Replicas hang up their log channels before the master knows that its session has ended.
        listens = self.machine.cluster.listens_always and not self.application.is_closing
        if is_awaited or listens:
            self.core.failed(place[0], "the connection is lost")
            self.settle()

    def _watch(self) -> None:
        """Give up who does not answer."""
        self.machine.after(WATCH_EVERY, self._watch)
        oldest = self.machine.world.now - PATIENCE
        for (replica, _), asked in self._asked.items():
            if asked and asked[0][0] < oldest and self.core.failure is None:
                self.machine.cluster.sometimes.count(Rare.DEADLINE_PASSED)
                self.core.failed(replica, "no answer in time")
        self.settle()
