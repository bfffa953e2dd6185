"""Clients of RabbitMQ's quorum queues."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from time import perf_counter
from typing import Any, Final

from bench.peers import rabbitmq_wire as wire
from bench.peers.interface import Client
from bench.peers.lean import Frame, LeanClient, Link, open_link
from bench.peers.processes import HOST

_HEAD: Final = Struct(">BHI")
_METHOD: Final = Struct(">HH")
_TAG: Final = Struct(">Q")
_HEAD_BYTES: Final = 7


def declare_queue(port: int, name: str) -> None:
    """A quorum queue on all nodes."""
    with _connected(port) as connection:
        arguments = {"x-queue-type": "quorum"}
        connection.channel().queue_declare(name, durable=True, arguments=arguments)


def _connected(port: int) -> Any:
    import pika

    return pika.BlockingConnection(pika.ConnectionParameters(HOST, port))


class QueueLink(Link):
    """Counts what was confirmed; a confirmation of a message is one of all before it, too (L1)."""

    def __init__(self) -> None:
        super().__init__()
        self._received = bytearray()
        self._confirmed = 0
        self.heard: set[tuple[int, int]] = set()
        """The methods that the node has called so far."""

    def acknowledgements_in(self, data: bytes) -> int:
        received = self._received
        received += data
        begin = found = 0
        while len(received) - begin >= _HEAD_BYTES:
            kind, _, size = _HEAD.unpack_from(received, begin)
            end = begin + _HEAD_BYTES + size + 1
            if len(received) < end:
                break
            if kind == wire.METHOD:
                found += self._on_method(received, begin + _HEAD_BYTES)
            begin = end
        del received[:begin]
        return found

    def _on_method(self, received: bytearray, place: int) -> int:
        name = _METHOD.unpack_from(received, place)
        if name != wire.ACKNOWLEDGED:
            if name in ((10, 50), (20, 40), (60, 120)):
                self.fail(f"the node refused something: {name}")
            self.heard.add(name)
            self.wake()
            return 0
        (tag,) = _TAG.unpack_from(received, place + 4)
        found: int = max(tag - self._confirmed, 0)
        self._confirmed += found
        return found

    async def hear(self, name: tuple[int, int]) -> None:
        while name not in self.heard:
            await self.changed()

    async def log_in(self) -> None:
        self.transport.write(wire.AMQP)
        await self.hear(wire.CONNECTION_START)
        self.transport.write(wire.start_ok())
        await self.hear(wire.CONNECTION_TUNE)
        self.transport.write(wire.tune_ok())
        await self.hear(wire.CONNECTION_OPENED)
        self.transport.write(wire.open_channel())
        await self.hear(wire.CHANNEL_OPENED)
        self.transport.write(wire.select_confirms())
        await self.hear(wire.CONFIRM_SELECTED)


class LeanQueue(LeanClient):
    """A queue has no batches: a batch is so many publications in one write."""

    batch_window = 2
    small_window = 20

    def __init__(self, port: int, topic: str) -> None:
        super().__init__()
        self._port = port
        self._topic = topic

    async def new_link(self) -> Link:
        link = QueueLink()
        await open_link(link, self._port)
        await link.log_in()
        return link

    def frame(self, values: Sequence[bytes]) -> Frame:
        parts = (wire.publish_to_queue(self._topic, value) for value in values)
        return Frame(b"".join(parts), len(values))


class StockQueue(Client):
    """pika, which waits for each confirmation."""

    name = "pika"

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic

    def open(self) -> None:
        import pika

        self._connection = _connected(self._port)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._kept = pika.BasicProperties(delivery_mode=2)

    def close(self) -> None:
        self._connection.close()

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begin = perf_counter()
            self._channel.basic_publish("", self._topic, value, self._kept)
            taken.append(perf_counter() - begin)
        return taken
