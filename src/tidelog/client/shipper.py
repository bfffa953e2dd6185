"""Sends the lanes of a client through its channel, and brings the answers back.

S1  the bytes in all lanes are bounded; what comes beyond waits at the door, in order
S2  a ticket whose deadline passes is told whether it was ever sent
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from secrets import randbits
from time import monotonic, time_ns
from typing import Final

from tidelog.client.channel import Channel, timeout_ms
from tidelog.client.lanes import Lane, Shipment, Ticket, fail
from tidelog.client.link import Link, Reply
from tidelog.client.refusals import error_of
from tidelog.errors import (
    BadFrame,
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    LogClosed,
    LogError,
    Unreachable,
)
from tidelog.formats.batch import seal_batch
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import AppendBatches, Receipts, Refused, WireReceipt
from tidelog.interface.appends import Part
from tidelog.interface.records import Receipt
from tidelog.limits import MIB
from tidelog.types import FIRST_LLSN, FIRST_TERM

QUEUED_BYTES_MAX: Final = 32 * MIB


class _Run:
    """A lane and where it stands with the event loop."""

    __slots__ = ("hungry", "lane", "scheduled")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.scheduled = False
        self.hungry = False
        """Whether it waits for a place on the link."""


class Shipper:
    """The appends of one client.  All calls belong into the event loop."""

    def __init__(self, channel: Channel, *, bytes_max: int = QUEUED_BYTES_MAX) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._bytes_max = bytes_max
        self._bytes = 0
        self._door: deque[tuple[_Run, Ticket]] = deque()
        self._runs: dict[tuple[str, int], _Run] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._alarm = 0.0
        """When the timer goes off, by the clock of ``monotonic``."""
        self._drained = asyncio.Event()
        """Set when it is worth while to look whether all is done."""
        channel.on_up = self._on_up
        channel.on_down = self._on_down
        channel.on_hopeless = self._on_hopeless
        channel.wanted = self._is_busy

    @property
    def queued_bytes(self) -> int:
        """What is in the lanes (S1)."""
        return self._bytes

    def submit(self, topic: str, stream: int, ticket: Ticket) -> None:
        """Send an append; its waiter is told what became of it.

        ``stream`` is -1 for appends to several log streams.
        """
        run = self._runs.get((topic, stream))
        if run is None:
            # A number of 64 bits that nobody else has, and not 0.
            lane = Lane(topic, stream, randbits(64) or 1)
            run = self._runs[topic, stream] = _Run(lane)
        self._watch(ticket.deadline)
        if self._door or (self._bytes and self._bytes + ticket.size > self._bytes_max):
            self._door.append((run, ticket))
        else:
            self._let_in(run, ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody waits for the ticket any more; if it was not sent, it never will be."""
        self._fail(ticket, LogClosed("the append was cancelled"))

    def _let_in(self, run: _Run, ticket: Ticket) -> None:
        self._bytes += ticket.size
        ticket.inside = True
        run.lane.offer(ticket)
        self._schedule(run)

    def _release(self, size: int) -> None:
        self._bytes -= size
        while self._door:
            run, ticket = self._door[0]
            if ticket.settled:
                self._door.popleft()
                continue
            if self._bytes and self._bytes + ticket.size > self._bytes_max:
                return
            self._door.popleft()
            self._let_in(run, ticket)

    # -- sending ------------------------------------------------------------------------------

    def _schedule(self, run: _Run) -> None:
        """Send at the end of this turn of the loop: what is appended until then goes along."""
        if not run.scheduled:
            run.scheduled = True
            self._loop.call_soon(self._pump, run)

    def _pump(self, run: _Run) -> None:
        run.scheduled = False
        link = self._channel.link
        if link is None:
            self._channel.want()
            return
        while link.try_reserve():
            shipment = run.lane.next_shipment(time_ns() // 1000)
            if shipment is None:
                link.release()
                return
            self._send(link, run, shipment)
        if not run.hungry:
            run.hungry = True
            link.when_room(partial(self._on_room, run))

    def _on_room(self, run: _Run) -> None:
        run.hungry = False
        self._schedule(run)

    def _send(self, link: Link, run: _Run, shipment: Shipment) -> None:
        lane = run.lane
        link.post(
            AppendBatches(
                lane.topic,
                tuple([part.stream for part in shipment.parts]),
                lane.producer,
                shipment.sequence,
            ),
            partial(self._on_reply, link, run, shipment),
            attachments=attachments_of(shipment.parts),
            timeout_ms=timeout_ms(shipment.deadline - monotonic()),
        )

    def _on_reply(self, link: Link, run: _Run, shipment: Shipment, reply: Reply | None) -> None:
        if reply is None:
            return  # The lane knows by ``_on_down``, and sends again.
        answer = reply.answer
        lane = run.lane
        if isinstance(answer, Receipts) and _fits(answer.receipts, shipment.parts):
            receipts = receipts_of(lane.topic, answer.receipts)
            self._release(lane.answered(shipment.sequence, receipts))
        elif not isinstance(answer, Refused):
            link.abort(BadFrame(f"a node answered an append with {type(answer).__name__}"))
            return
        elif answer.error == LogClosed.__name__:
            # The node is stopping and appended nothing: the next one, or this one once it is back.
            link.abort(Unreachable(f"the node is stopping: {answer.message}"))
            return
        else:
            self._release(lane.refused(shipment.sequence, partial(error_of, answer)))
        self._schedule(run)
        self._drained.set()

    def _on_up(self) -> None:
        for run in self._runs.values():
            if not run.lane.idle:
                self._schedule(run)

    def _on_down(self) -> None:
        for run in self._runs.values():
            run.lane.lost()
        self._drained.set()

    def _is_busy(self) -> bool:
        return next(self._tickets(), None) is not None

    # -- giving up (S2) -----------------------------------------------------------------------

    def _watch(self, deadline: float) -> None:
        """One timer for all tickets: deadlines rarely pass."""
        if self._timer is not None:
            if self._alarm <= deadline:
                return
            self._timer.cancel()
        # By the clock that all threads share: the loop's own may stand still while it waits.
        self._alarm = deadline
        self._timer = self._loop.call_later(max(deadline - monotonic(), 0), self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        now = monotonic()
        for ticket, sent in list(self._tickets()):
            if ticket.deadline <= now:
                self._fail(ticket, self._too_late(sent))
        self._release(0)
        self._drained.set()
        deadlines = [ticket.deadline for ticket, _ in self._tickets()]
        if deadlines:
            self._watch(min(deadlines))

    def _too_late(self, sent: bool) -> LogError:
        if sent:
            return DeadlineExceeded("the append had no answer in time; it may still take effect")
        if self._channel.link is None:
            return Unreachable(f"{self._channel.trouble}; the append was not sent")
        return Busy("the append was not sent in time, since too much was under way")

    def _tickets(self) -> Iterator[tuple[Ticket, bool]]:
        for run in self._runs.values():
            yield from run.lane.tickets()
        yield from ((ticket, False) for _, ticket in self._door if not ticket.settled)

    def _fail(self, ticket: Ticket, error: LogError) -> None:
        size = fail(ticket, error)
        if ticket.inside:
            self._release(size)

    def _fail_all(self, unsent: LogError) -> None:
        for ticket, sent in list(self._tickets()):
            error = type(unsent)(str(unsent))
            if sent:
                error = ConnectionLost(f"{unsent}; the append may have taken effect")
            self._fail(ticket, error)

    def _on_hopeless(self, error: LogError) -> None:
        self._fail_all(error)

    async def close(self, seconds: float) -> None:
        """Let what was appended before go on for a while, then fail the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._is_busy() and self._channel.link is not None:
                    self._drained.clear()
                    await self._drained.wait()
        self._fail_all(LogClosed("the client was closed"))
        if self._timer is not None:
            self._timer.cancel()


def attachments_of(parts: Sequence[Part]) -> list[Buffer]:
    """The batches of an append, back to back; the node gives them their places."""
    buffers: list[Buffer] = []
    for part in parts:
        header = seal_batch(part.body, stream=part.stream, term=FIRST_TERM, first_llsn=FIRST_LLSN)
        buffers += (header, part.body.data)
    return buffers


def receipts_of(topic: str, receipts: tuple[WireReceipt, ...]) -> list[Receipt]:
    """Receipts for what this client numbered itself: a repeated request is no duplicate."""
    return [Receipt(topic, r.stream, r.glsn, r.llsn, r.count) for r in receipts]


def _fits(receipts: tuple[WireReceipt, ...], parts: Sequence[Part]) -> bool:
    return [(r.stream, r.count) for r in receipts] == [(p.stream, p.body.count) for p in parts]
