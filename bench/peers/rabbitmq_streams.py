"""Clients of RabbitMQ's streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final

from bench.peers import rabbitmq_wire as wire
from bench.peers.interface import NODES, Reading
from bench.peers.lean import Frame, LeanClient, Link, LoopClient, PeerError, open_link, until
from bench.peers.processes import HOST

CREDIT: Final = 50
WAIT_SECONDS: Final = 60.0
IN_FLIGHT: Final = 20_000
SMALL_IN_FLIGHT: Final = 200_000
"""rstream sends single records twice a second, all that came since."""


class StreamLink(Link):
    """Answers to requests go to whoever waits; confirms are counted, and so are deliveries."""

    def __init__(self) -> None:
        super().__init__()
        self._received = bytearray()
        self._answers: list[tuple[int, bytes]] = []
        self._requests = 0

    def acknowledgements_in(self, data: bytes) -> int:
        received = self._received
        received += data
        begin = found = chunks = 0
        while len(received) - begin >= 4:
            end = begin + 4 + int.from_bytes(received[begin : begin + 4], "big")
            if len(received) < end:
                break
            kind = int.from_bytes(received[begin + 4 : begin + 6], "big")
            if kind == wire.CONFIRM:
                found += int.from_bytes(received[begin + 9 : begin + 13], "big")
            elif kind == wire.DELIVER:
                found += int.from_bytes(received[begin + 13 : begin + 17], "big")
                chunks += 1
            elif kind == wire.PUBLISH_ERROR:
                self.fail("a record was refused")
            else:
                self._answers.append((kind, bytes(received[begin + 8 : end])))
                self.wake()
            begin = end
        del received[:begin]
        if chunks:
            self.transport.write(wire.credit(chunks))
        return found

    async def ask(self, kind: int, body: bytes) -> None:
        """Make a request, and wait until it was granted."""
        self._requests += 1
        self.transport.write(wire.request(kind, self._requests, body))
        answer = await self.answer(kind | wire.RESPONSE)
        if (code := int.from_bytes(answer[4:6], "big")) != wire.OK:
            raise PeerError(f"request {kind} was refused: {code}")

    async def answer(self, kind: int) -> bytes:
        while True:
            for number, (found, body) in enumerate(self._answers):
                if found == kind:
                    del self._answers[number]
                    return body
            await self.changed()

    async def log_in(self) -> None:
        await self.ask(wire.PEER_PROPERTIES, wire.properties({"product": "bench"}))
        await self.ask(wire.SASL_HANDSHAKE, b"")
        await self.ask(wire.SASL_AUTHENTICATE, wire.text("PLAIN") + wire.blob(wire.LOGIN))
        limits = await self.answer(wire.TUNE)
        self.transport.write(wire.frame(wire.TUNE, limits[:4] + bytes(4)))
        await self.ask(wire.OPEN, wire.text("/"))


async def new_stream_link(port: int) -> StreamLink:
    link = StreamLink()
    await open_link(link, port)
    await link.log_in()
    return link


async def create_stream(port: int, name: str) -> None:
    """A stream on all nodes, led by the one that is asked."""
    link = await new_stream_link(port)
    settings = {"initial-cluster-size": str(NODES), "queue-leader-locator": "client-local"}
    await link.ask(wire.CREATE, wire.text(name) + wire.properties(settings))
    link.transport.close()


class LeanStream(LeanClient):
    batch_links = 2
    batch_window = 16

    def __init__(self, port: int, topic: str) -> None:
        super().__init__()
        self._port = port
        self._topic = topic

    async def new_link(self) -> Link:
        link = await new_stream_link(self._port)
        await link.ask(wire.DECLARE_PUBLISHER, b"\x01" + wire.text("") + wire.text(self._topic))
        return link

    def frame(self, values: Sequence[bytes]) -> Frame:
        return Frame(wire.publish(values), len(values))

    def consume(self, count: int) -> Reading:
        return self.run(self._consume(count))

    async def _consume(self, count: int) -> Reading:
        link = await new_stream_link(self._port)
        link.transport.write(wire.subscribe(self._topic, 99, CREDIT))
        reading = Reading()
        while reading.records < count:
            await link.changed()
            if link.acknowledged > reading.records:
                reading.took(link.acknowledged - reading.records)
        link.transport.close()
        return reading


class StockStream(LoopClient):
    name = "rstream"

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic

    async def connect(self) -> None:
        from rstream import Producer

        self._producer: Any = Producer(
            HOST,
            self._port,
            username=wire.GUEST,
            password=wire.GUEST,
        )
        await self._producer.start()

    async def disconnect(self) -> None:
        await self._producer.close()

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        self.run(self._append_batches(values, count))

    async def _append_batches(self, values: Sequence[bytes], count: int) -> None:
        confirms = _Confirms()
        for _ in range(count):
            await self._producer.send_batch(
                self._topic, list(values), on_publish_confirm=confirms.on_confirm
            )
            confirms.sent += len(values)
            await confirms.wait(IN_FLIGHT)
        await confirms.wait(0)

    def append_small(self, value: bytes, count: int) -> None:
        self.run(self._append_small(value, count))

    async def _append_small(self, value: bytes, count: int) -> None:
        confirms = _Confirms()
        for _ in range(count):
            await self._producer.send(self._topic, value, on_publish_confirm=confirms.on_confirm)
            confirms.sent += 1
            await confirms.wait(SMALL_IN_FLIGHT)
        await confirms.wait(0)

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        return self.run(self._one_by_one(value, count))

    async def _one_by_one(self, value: bytes, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begin = perf_counter()
            await self._producer.send_wait(self._topic, value)
            taken.append(perf_counter() - begin)
        return taken

    def append_at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        return self.run(self._at_rate(value, rate, count))

    async def _at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        late: list[float] = []

        async def append(due: float) -> None:
            await self._producer.send_wait(self._topic, value)
            late.append(perf_counter() - due)

        begin = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                due = await until(begin + number / rate)
                tasks.create_task(append(due))
        return late

    def consume(self, count: int) -> Reading:
        return self.run(self._consume(count))

    async def _consume(self, count: int) -> Reading:
        from rstream import Consumer, ConsumerOffsetSpecification, OffsetType

        done, reading = asyncio.Event(), Reading()
        got = 0

        def on_message(message: object, context: object) -> None:
            nonlocal got
            got += 1
            if got == 1:
                reading.took(1)
            if got == count:
                reading.took(count - 1)
                done.set()

        consumer = Consumer(HOST, self._port, username=wire.GUEST, password=wire.GUEST)
        await consumer.start()
        decoder: Callable[[bytes], bytes] = bytes
        await consumer.subscribe(
            self._topic,
            on_message,
            decoder=decoder,
            offset_specification=ConsumerOffsetSpecification(OffsetType.FIRST, None),
            initial_credit=CREDIT,
        )
        await asyncio.wait_for(done.wait(), WAIT_SECONDS)
        await consumer.close()
        return reading


class _Confirms:
    """How many records were sent and not confirmed."""

    def __init__(self) -> None:
        self.sent = 0
        self._confirmed = 0
        self._changed = asyncio.Event()

    def on_confirm(self, status: object) -> None:
        self._confirmed += 1
        self._changed.set()

    async def wait(self, most: int) -> None:
        while self.sent - self._confirmed > most:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), WAIT_SECONDS)
