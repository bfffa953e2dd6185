"""What the handles of one client share: its connections, its appends, its default deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final, TypeVar

from msgspec.structs import replace

from tidelog.client.channel import Channel
from tidelog.client.joined import Joined
from tidelog.client.orders import OneEntry, checked_size
from tidelog.client.pool import Pool
from tidelog.client.run import attachments_of, receipts_of
from tidelog.client.shipments import Loose, Ticket, Waiter, Whole, fail
from tidelog.client.shipper import Shipper
from tidelog.errors import BadFrame, BadOption, LogClosed, LogError
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import Answer, AppendBatches, Describe, Receipts, Request
from tidelog.formats.messages import TopicDescription as Description
from tidelog.interface.appends import Append
from tidelog.interface.records import Receipt

CLOSE_SECONDS: Final = 5.0
"""What was appended before a close may take this long to arrive."""
TIMEOUT_SECONDS_MAX: Final = 365 * 86400.0
"""For ever, as far as timers and frames can tell it."""
DESCRIBE_SECONDS: Final = 30.0
"""How old what is known of a topic may be while appends are made to it."""

A = TypeVar("A")


class Session:
    """One client.  All calls belong into its event loop, unless they say otherwise."""

    def __init__(self, channel: Channel, *, timeout: float) -> None:
        self.channel: Final = channel
        """The first connection."""
        self.pool: Final = Pool(channel)
        self.pool.on_read = self._look_again
        self.shipper: Final = Shipper(self.pool)
        self.timeout: Final = min(timeout, TIMEOUT_SECONDS_MAX)
        self.loop: Final = asyncio.get_running_loop()
        self._closing = False
        self._described: dict[str, float] = {}
        """When each topic was described last, by the loop's clock."""
        self._describing: set[asyncio.Task[Description]] = set()

    async def ask(
        self,
        request: Request,
        kind: type[A],
        *,
        seconds: float | None = None,
        attachments: Sequence[Buffer] = (),
        repeat: bool = True,
        waits: bool = False,
        doubt: LogError | None = None,
        telling: tuple[type[LogError], ...] = (),
    ) -> A:
        """The answer to a request, which must be of this kind; see ``Channel.ask``."""
        reply = await self.channel.ask(
            request,
            seconds=self.seconds(seconds),
            attachments=attachments,
            repeat=repeat,
            waits=waits,
            doubt=doubt,
            telling=telling,
        )
        return expect(reply.answer, kind)

    async def describe(self, topic: str, *, seconds: float | None = None) -> Description:
        described = await self.ask(Describe(topic), Description, seconds=seconds)
        self.learn(described)
        return described

    def learn(self, described: Description) -> None:
        """Take in what a node says of a topic."""
        self.pool.learn(described)
        self._described[described.name] = self.loop.time()

    def _look_again(self, topic: str) -> None:
        """Learn now and then of log streams that were added, and of replicas that moved."""
        now = self.loop.time()
        if now - self._described.get(topic, now) > DESCRIBE_SECONDS:
            self._described[topic] = now
            task = self.loop.create_task(self.describe(topic), name="tidelog-describe")
            self._describing.add(task)
            task.add_done_callback(self._on_described)

    def _on_described(self, task: asyncio.Task[Description]) -> None:
        self._describing.discard(task)
        if not task.cancelled():
            task.exception()  # Next time, then.

    def seconds(self, timeout: float | None) -> float:
        """A call's time: its own, or the client's default.  For any thread."""
        if timeout is None:
            return self.timeout
        if not timeout >= 0:
            raise BadOption(f"timeout is {timeout}, but must not be negative")
        return min(timeout, TIMEOUT_SECONDS_MAX)

    def left(self, deadline: float) -> float:
        """What is left of a call that makes several requests; by the loop's clock."""
        return max(deadline - self.loop.time(), 0.0)

    # -- appends ------------------------------------------------------------------------------

    def loose(self, order: OneEntry, waiter: Waiter[Receipt], timeout: float | None) -> Loose:
        """A ticket for one entry, to which others may be added.  For any thread."""
        deadline = monotonic() + self.seconds(timeout)
        return Loose(waiter, order.size, deadline, [order.content], order.version, order.ack)

    def wholes(
        self,
        append: Append,
        waiter: Waiter[tuple[Receipt, ...]],
        timeout: float | None,
        *,
        apart: bool = False,
    ) -> list[tuple[int, Whole]]:
        """Tickets for encoded batches, with the log stream that each begins with.  For any thread.

        On several nodes, the log streams of an append have leaders of their own: each batch is an
        append by itself there.  With ``apart`` it is so everywhere: then none of them waits for
        what was appended to another one's log stream before.
        """
        deadline = monotonic() + self.seconds(timeout)
        size, parts = checked_size(append.parts), append.parts
        if len(parts) == 1 or not (apart or self.pool.is_cluster):
            return [(parts[0].stream, Whole(waiter, size, deadline, parts, append.ack))]
        joined = Joined(waiter, len(parts))
        return [
            (part.stream, Whole(joined.part(i), checked_size([part]), deadline, [part], append.ack))
            for i, part in enumerate(parts)
        ]

    def submit(self, topic: str, stream: int, ticket: Ticket) -> None:
        """Send an append; its waiter is told what becomes of it."""
        if self._accepts(topic, ticket):
            self.shipper.submit(topic, stream, ticket)

    def gather(self, topic: str, stream: int, ticket: Loose) -> None:
        """The same, but entries may be added to it while it is open."""
        if self._accepts(topic, ticket):
            self.shipper.gather(topic, stream, ticket)

    def _accepts(self, topic: str, ticket: Ticket) -> bool:
        if self._closing:
            fail(ticket, LogClosed("the client is closed: connect again"))
        elif self.pool.is_cluster:
            self._look_again(topic)
        return not self._closing

    def submit_all(self, topic: str, tickets: Sequence[tuple[int, Ticket]]) -> None:
        for stream, ticket in tickets:
            self.submit(topic, stream, ticket)

    def withdraw(self, tickets: Sequence[tuple[int, Ticket]]) -> None:
        """Nobody waits any more; what was not sent never will be."""
        for _, ticket in tickets:
            self.shipper.withdraw(ticket)

    async def append_one(self, topic: str, order: OneEntry, timeout: float | None) -> Receipt:
        waiter: asyncio.Future[Receipt] = self.loop.create_future()
        ticket = self.loose(order, waiter, timeout)
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
        tickets = self.wholes(append, waiter, timeout)
        self.submit_all(append.topic, tickets)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.withdraw(tickets)
            raise

    async def _append_as_told(self, append: Append, timeout: float | None) -> tuple[Receipt, ...]:
        """An append that its caller numbered: it goes as it is, and may be a duplicate."""
        checked_size(append.parts)
        request = AppendBatches(
            append.topic,
            tuple([part.stream for part in append.parts]),
            append.producer,
            append.sequence,
            ack=append.ack.value,
        )
        # Its number makes it harmless to repeat.
        answer = await self.ask(
            request, Receipts, seconds=timeout, attachments=attachments_of(append.parts)
        )
        return tuple(
            [
                replace(receipt, duplicate=told.duplicate)
                for receipt, told in zip(
                    receipts_of(append.topic, answer.receipts, append.ack),
                    answer.receipts,
                    strict=True,
                )
            ]
        )

    # -- end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let appends under way arrive, then hang up; closing twice is fine."""
        self._closing = True
        await self.shipper.close(CLOSE_SECONDS)
        await self.pool.close()
        if self._describing:
            await asyncio.wait(self._describing)


def expect(answer: Answer, kind: type[A]) -> A:
    """The answer, if it is what was asked for."""
    if not isinstance(answer, kind):
        raise BadFrame(f"a node answered with {type(answer).__name__} instead of {kind.__name__}")
    return answer
