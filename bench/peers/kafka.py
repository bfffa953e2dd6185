"""Kafka in KRaft mode: three nodes that are broker and controller, a topic with three replicas.

``acks=all`` with ``min.insync.replicas=2``: an acknowledgement comes when all replicas that keep up
have the record in memory.  By default files are never synced on purpose; ``flush.messages=1`` syncs
each batch as it is written.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any, Final

from bench.peers.installing import JavaModule, Store, java
from bench.peers.interface import NODES, Client, Cluster, Reading, Variant
from bench.peers.kafka_wire import (
    WireError,
    check_produced,
    fetch_request,
    fetched,
    produce_request,
)
from bench.peers.lean import Frame, LeanClient, Link, PeerError, open_link
from bench.peers.processes import HOST, Processes, Unavailable, free_ports

MODULE: Final = JavaModule("org.apache.kafka", "kafka_2.13", "4.3.1")
LOCK: Final = Path(__file__).parent / "files" / "kafka.lock"
FORMAT_SECONDS: Final = 120.0
ANSWER_SECONDS: Final = 60.0
HEAP: Final = "1g"
CONSUME: Final = 10_000
_CONFIG: Final = """
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor={nodes}
min.insync.replicas=2
message.max.bytes=4194304
replica.fetch.max.bytes=4194304
group.initial.rebalance.delay.ms=0
"""


class Kafka:
    """The peer."""

    name = "Kafka"
    orders_streams = False
    variants = (
        Variant("default", "in memory of all in-sync replicas"),
        Variant("fsync", "synced by all in-sync replicas", syncs=True),
    )

    def install(self, store: Store) -> None:
        self._java = java()
        try:
            import confluent_kafka  # noqa: F401
        except ImportError as error:
            raise Unavailable("confluent-kafka is not installed") from error
        self._classes = os.pathsep.join(map(str, store.jars(MODULE, LOCK)))

    @contextmanager
    def start(self, variant: Variant, directory: Path) -> Iterator[KafkaCluster]:
        ports = free_ports(2 * NODES)
        brokers, controllers = ports[:NODES], ports[NODES:]
        voters = ",".join(f"{n}@{HOST}:{port}" for n, port in enumerate(controllers, 1))
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        with Processes(directory / "logs") as processes:
            for number, (port, controller) in enumerate(zip(brokers, controllers, strict=True), 1):
                config = directory / f"k{number}.properties"
                config.write_text(
                    _CONFIG.format(
                        number=number,
                        voters=voters,
                        host=HOST,
                        port=port,
                        controller=controller,
                        data=directory / f"k{number}",
                        nodes=NODES,
                    )
                )
                self._format(cluster_id, config)
                program = [self._java, f"-Xmx{HEAP}", f"-Xms{HEAP}", "-XX:+UseG1GC"]
                words = ["-cp", self._classes, "kafka.Kafka", str(config)]
                processes.start(f"k{number}", [*program, *words])
            processes.wait_for_ports(brokers)
            yield KafkaCluster(MODULE.version, processes, directory, brokers, variant.syncs)

    def _format(self, cluster_id: str, config: Path) -> None:
        """Prepare the directory of a node."""
        command = [self._java, "-cp", self._classes, "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*command, "--cluster-id", cluster_id, "--config", str(config)],
            capture_output=True,
            text=True,
            timeout=FORMAT_SECONDS,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"Kafka's storage could not be formatted: {done.stderr[-500:]}")


@dataclass(slots=True)
class KafkaCluster(Cluster):
    ports: list[int]
    syncs: bool

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def make_topic(self, name: str, streams: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(_settings(self.servers))
        self.processes.wait_for(lambda: _brokers(admin) == NODES, "not all brokers are there")
        config = {"flush.messages": "1"} if self.syncs else {}
        topic = NewTopic(name, streams, NODES, config=config)
        admin.create_topics([topic], request_timeout=ANSWER_SECONDS)[name].result()

    def clients(self, topic: str) -> Sequence[Client]:
        facts = self._facts(topic)
        leader = facts.brokers[facts.topics[topic].partitions[0].leader]
        return LeanKafka(leader.port, topic), StockKafka(self.servers, topic, 1)

    def readers(self, topic: str) -> Sequence[Client]:
        partitions = self._facts(topic).topics[topic].partitions
        return (StockKafka(self.servers, topic, len(partitions)),)

    def _facts(self, topic: str) -> Any:
        """What the brokers know of a topic, once all replicas keep up and its leaders serve it."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(_settings(self.servers))
        self.processes.wait_for(lambda: _is_led(admin, topic), f"nobody leads {topic}")
        facts = admin.list_topics(topic, timeout=ANSWER_SECONDS)
        for number, partition in facts.topics[topic].partitions.items():
            serves = partial(_serves, facts.brokers[partition.leader].port, topic, number)
            self.processes.wait_for(serves, f"nobody serves {topic}")
        return facts


def _settings(servers: str) -> dict[str, Any]:
    """What all clients have in common: where the brokers are, and that only errors are told."""
    return {"bootstrap.servers": servers, "log_level": 3}


def _brokers(admin: Any) -> int:
    return len(admin.list_topics(timeout=ANSWER_SECONDS).brokers)


def _is_led(admin: Any, topic: str) -> bool:
    facts = admin.list_topics(topic, timeout=ANSWER_SECONDS)
    found = facts.topics[topic].partitions.values()
    return bool(found) and all(p.leader in facts.brokers and len(p.isrs) == NODES for p in found)


def _serves(port: int, topic: str, partition: int) -> bool:
    """Whether a broker knows that it leads; the others may have heard of it before."""
    with (
        socket.create_connection((HOST, port), ANSWER_SECONDS) as link,
        link.makefile("rb") as file,
    ):
        link.sendall(fetch_request(topic, partition, 0))
        answer = file.read(int.from_bytes(file.read(4), "big"))
    try:
        fetched(answer, topic)
    except WireError:
        return False
    return True


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
    batch_window = 2
    small_links = 64
    small_per_write = 1
    small_window = 1
    rate_links = 32

    def __init__(self, port: int, topic: str) -> None:
        super().__init__()
        self._port = port
        self._topic = topic

    async def new_link(self) -> Link:
        return await open_link(KafkaLink(self._topic), self._port)

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
                **_settings(self._servers),
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
            **_settings(self._servers),
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4_000_000,
            "queued.min.messages": 1_000_000,
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
