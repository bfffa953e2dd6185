"""Clients of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, time_ns
from typing import Any, Final

from bench.peers.interface import Client, Reading
from bench.peers.kafka_wire import (
    WireError,
    check_produced,
    fetch_request,
    fetched,
    produce_request,
)
from bench.peers.lean import Frame, LeanClient, Link, PeerError, open_link

ANSWER_SECONDS: Final = 60.0
CONSUME: Final = 10_000


def settings_of(servers: str) -> dict[str, Any]:
    """What all clients have in common: where the brokers are, and that only errors are told."""
    return {"bootstrap.servers": servers, "log_level": 3}


# -- a lean client ---------------------------------------------------------------------------------


class KafkaLink(Link):
    """Counts answers; what each says is left to ``check``."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._received = bytearray()
        self.answer = b""

    def acknowledgements_in(self, data: bytes) -> int:
        received = self._received
        received += data
        begin = found = 0
        while len(received) - begin >= 4:
            end = begin + 4 + int.from_bytes(received[begin : begin + 4], "big")
            if len(received) < end:
                break
            self._on_answer(bytes(received[begin + 4 : end]))
            found += 1
            begin = end
        del received[:begin]
        return found

    def _on_answer(self, answer: bytes) -> None:
        try:
            check_produced(answer, self._topic)
        except WireError as error:
            self.fail(str(error))


class KafkaReader(KafkaLink):
    def _on_answer(self, answer: bytes) -> None:
        self.answer = answer


class LeanKafka(LeanClient):
    """A broker answers the requests of a connection one by one, so there are several of them."""

    batch_links = 4
    batch_window = 1
    rate_links = 32
    unit_bytes = 800_000

    def __init__(self, port: int, topic: str) -> None:
        super().__init__()
        self._port = port
        self._topic = topic

    async def new_link(self) -> Link:
        return await open_link(KafkaLink(self._topic), self._port)

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        """Several make one batch, as clients of Kafka do it: it likes large ones best."""
        times = min(max(self.unit_bytes // sum(map(len, values)), 1), count)
        units, rest = divmod(count, times)
        super().append_batches([*values] * times, units)
        if rest:
            super().append_batches([*values] * rest, 1)

    def append_small(self, value: bytes, count: int) -> None:
        """Small appends share batches, which the usual client makes as it goes."""
        Client.append_small(self, value, count)

    def frame(self, values: Sequence[bytes]) -> Frame:
        return Frame(produce_request(self._topic, 0, values, time_ns() // 1_000_000))

    def consume(self, count: int) -> Reading:
        return self.run(self._consume(count))

    async def _consume(self, count: int) -> Reading:
        link = KafkaReader(self._topic)
        await open_link(link, self._port)
        reading, offset = Reading(), 0
        while reading.records < count:
            await link.pump(Frame(fetch_request(self._topic, 0, offset)), 1, 1)
            records, offset = fetched(link.answer, self._topic)
            if not records:
                raise PeerError(f"{self._topic} ends after {reading.records} records")
            reading.took(records)
        link.transport.close()
        return reading


# -- the usual client ------------------------------------------------------------------------------


class StockKafka(Client):
    """confluent-kafka, which is librdkafka: it makes batches of its own."""

    name = "confluent-kafka"

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._servers = servers
        self._topic = topic
        self._partitions = partitions
        self._failures: list[str] = []

    def open(self) -> None:
        self._producers: dict[int, Any] = {}

    def close(self) -> None:
        for producer in self._producers.values():
            producer.flush(ANSWER_SECONDS)
        self._producers.clear()

    def _producer(self, linger_ms: int) -> Any:
        import confluent_kafka

        if linger_ms not in self._producers:
            settings = {
                **settings_of(self._servers),
                "acks": "all",
                "linger.ms": linger_ms,
                "batch.size": 1_000_000,
                "batch.num.messages": 10_000,
                "message.max.bytes": 4_000_000,
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
            }
            producer = confluent_kafka.Producer(settings)
            producer.list_topics(self._topic, timeout=ANSWER_SECONDS)
            self._producers[linger_ms] = producer
        return self._producers[linger_ms]

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        self._produce(self._producer(10), values, count)

    def append_small(self, value: bytes, count: int) -> None:
        self._produce(self._producer(1), [value], count)

    def _produce(self, producer: Any, values: Sequence[bytes], count: int) -> None:
        produce, topic, partitions = producer.produce, self._topic, self._partitions
        for number in range(count):
            partition = number % partitions
            for value in values:
                while True:
                    try:
                        produce(topic, value, partition=partition, on_delivery=self._on_delivery)
                        break
                    except BufferError:
                        producer.poll(0.01)
            producer.poll(0)
        self._flush(producer)

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _flush(self, producer: Any) -> None:
        if producer.flush(ANSWER_SECONDS) or self._failures:
            raise PeerError(f"not all was delivered: {self._failures[:1]}")

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        producer = self._producer(0)
        taken = []
        for _ in range(count):
            begin = perf_counter()
            producer.produce(self._topic, value, partition=0, on_delivery=self._on_delivery)
            self._flush(producer)
            taken.append(perf_counter() - begin)
        return taken

    def append_at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        producer = self._producer(1)
        late: list[float] = []
        begin = perf_counter()
        for number in range(count):
            due = begin + number / rate
            while (left := due - perf_counter()) > 0:
                producer.poll(left)
            producer.produce(
                self._topic,
                value,
                partition=0,
                on_delivery=lambda *_, due=due: late.append(perf_counter() - due),
            )
        self._flush(producer)
        return late

    def consume(self, count: int) -> Reading:
        import confluent_kafka

        settings = {
            **settings_of(self._servers),
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4_000_000,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.queue.backoff.ms": 1,
        }
        consumer = confluent_kafka.Consumer(settings)
        try:
            places = range(self._partitions)
            consumer.assign([confluent_kafka.TopicPartition(self._topic, p, 0) for p in places])
            reading = Reading()
            while (left := count - reading.records) > 0:
                records = consumer.consume(min(CONSUME, left), timeout=ANSWER_SECONDS)
                if not records:
                    raise PeerError(f"{self._topic} ends after {reading.records} records")
                reading.took(len(records))
            return reading
        finally:
            consumer.close()
