"""What the handles of one client share: its channel, its appends, its default deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final, TypeVar

from tidelog.client.channel import Channel
from tidelog.client.lanes import Single, Ticket, Waiter, Whole, fail
from tidelog.client.orders import OneEntry, checked_size, lane_of
from tidelog.client.shipper import Shipper, attachments_of
from tidelog.errors import BadFrame, BadOption, LogClosed
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import Answer, AppendBatches, Describe, Receipts, Request
from tidelog.formats.messages import TopicDescription as Description
from tidelog.interface.appends import Append
from tidelog.interface.records import Receipt

CLOSE_SECONDS: Final = 5.0
"""What was appended before a close may take this long to arrive."""

A = TypeVar("A")


class Session:
    """One client.  All calls belong into its event loop, unless they say otherwise."""

    def __init__(self, channel: Channel, *, timeout: float) -> None:
        self.channel: Final = channel
        self.shipper: Final = Shipper(channel)
        self.timeout: Final = timeout
        self.loop: Final = asyncio.get_running_loop()
        self._closing = False

    async def ask(
        self,
        request: Request,
        kind: type[A],
        *,
        seconds: float | None = None,
        attachments: Sequence[Buffer] = (),
        repeat: bool = True,
        waits: bool = False,
    ) -> A:
        """The answer to a request, which must be of this kind."""
        reply = await self.channel.ask(
            request,
            seconds=self.seconds(seconds),
            attachments=attachments,
            repeat=repeat,
            waits=waits,
        )
        return expect(reply.answer, kind)

    async def describe(self, topic: str, *, seconds: float | None = None) -> Description:
        return await self.ask(Describe(topic), Description, seconds=seconds)

    def seconds(self, timeout: float | None) -> float:
        """A call's time: its own, or the client's default.  For any thread."""
        if timeout is None:
            return self.timeout
        if not timeout >= 0:
            raise BadOption(f"timeout is {timeout}, but must not be negative")
        return timeout

    # -- appends ------------------------------------------------------------------------------

    def single(self, order: OneEntry, waiter: Waiter[Receipt], timeout: float | None) -> Single:
        """A ticket for one entry.  For any thread."""
        deadline = monotonic() + self.seconds(timeout)
        return Single(waiter, order.size, deadline, order.value, order.entry)

    def whole(
        self, append: Append, waiter: Waiter[tuple[Receipt, ...]], timeout: float | None
    ) -> Whole:
        """A ticket for encoded batches.  For any thread."""
        deadline = monotonic() + self.seconds(timeout)
        return Whole(waiter, checked_size(append.parts), deadline, append.parts)

    def submit(self, topic: str, stream: int, ticket: Ticket) -> None:
        """Send an append; its waiter is told what becomes of it."""
        if self._closing:
            fail(ticket, LogClosed("the client is closed: connect again"))
        else:
            self.shipper.submit(topic, stream, ticket)

    async def append_one(self, topic: str, order: OneEntry, timeout: float | None) -> Receipt:
        waiter: asyncio.Future[Receipt] = self.loop.create_future()
        ticket = self.single(order, waiter, timeout)
        self.submit(topic, order.stream, ticket)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.shipper.withdraw(ticket)
            raise

    async def append(self, append: Append, timeout: float | None) -> tuple[Receipt, ...]:
        if append.producer:
            return await self._append_as_told(append, timeout)
        waiter: asyncio.Future[tuple[Receipt, ...]] = self.loop.create_future()
        ticket = self.whole(append, waiter, timeout)
        self.submit(append.topic, lane_of(append.parts), ticket)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.shipper.withdraw(ticket)
            raise

    async def _append_as_told(self, append: Append, timeout: float | None) -> tuple[Receipt, ...]:
        """An append that its caller numbered: it goes as it is, and may be a duplicate."""
        checked_size(append.parts)
        streams = tuple([part.stream for part in append.parts])
        answer = await self.ask(
            AppendBatches(append.topic, streams, append.producer, append.sequence),
            Receipts,
            seconds=timeout,
            attachments=attachments_of(append.parts),
        )
        return tuple(
            [
                Receipt(append.topic, r.stream, r.glsn, r.llsn, r.count, duplicate=r.duplicate)
                for r in answer.receipts
            ]
        )

    # -- end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let appends under way arrive, then hang up; closing twice is fine."""
        self._closing = True
        await self.shipper.close(CLOSE_SECONDS)
        await self.channel.close()


def expect(answer: Answer, kind: type[A]) -> A:
    """The answer, if it is what was asked for."""
    if not isinstance(answer, kind):
        raise BadFrame(f"a node answered with {type(answer).__name__} instead of {kind.__name__}")
    return answer
