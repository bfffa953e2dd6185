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
from time import perf_counter
from typing import Any, Final

from bench.peers.installing import JavaModule, Store, java
from bench.peers.interface import NODES, Client, Cluster, Variant
from bench.peers.kafka_clients import ANSWER_SECONDS, LeanKafka, StockKafka, settings_of
from bench.peers.kafka_wire import WireError, fetch_request, fetched
from bench.peers.processes import HOST, Processes, Unavailable, free_ports
from bench.peers.spark_reading import Source, SparkReader

MODULE: Final = JavaModule("org.apache.kafka", "kafka_2.13", "4.3.1")
LOCK: Final = Path(__file__).parent / "files" / "kafka.lock"
CONNECTOR: Final = JavaModule("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0")
"""Spark's own, of the newest release that can be had with all that it needs."""
CONNECTOR_LOCK: Final = LOCK.with_name("spark-kafka.lock")
_CONNECTOR_JARS: Final = ("spark-", "kafka-clients-", "commons-pool2-")
"""What of it does not come with Spark anyway."""
FORMAT_SECONDS: Final = 120.0
HEAP: Final = "1g"
COLLECTOR: Final = "-XX:+UseSerialGC"
"""Three JVMs share few processors: threads of their own for collecting do not help them."""
WARM_SECONDS: Final = 10.0
"""Until most of what brokers do is compiled."""
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
        self._connector: list[Path] | Unavailable
        try:
            jars = store.jars(CONNECTOR, CONNECTOR_LOCK)
            self._connector = [jar for jar in jars if jar.name.startswith(_CONNECTOR_JARS)]
        except Unavailable as error:
            self._connector = error

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
                program = [self._java, f"-Xmx{HEAP}", f"-Xms{HEAP}", COLLECTOR]
                words = ["-cp", self._classes, "kafka.Kafka", str(config)]
                processes.start(f"k{number}", [*program, *words])
            processes.wait_for_ports(brokers)
            cluster = KafkaCluster(
                MODULE.version, processes, directory, brokers, variant.syncs, self._connector
            )
            _warm_up(cluster)
            yield cluster

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
    connector: list[Path] | Unavailable
    """Spark's, or why it is not there."""

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def make_topic(self, name: str, streams: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(settings_of(self.servers))
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

    def spark_readers(self, topic: str) -> Sequence[Client]:
        if self.syncs:
            return ()  # What is read is the same.
        source = Source(
            f"Spark's connector {CONNECTOR.version}",
            "kafka",
            {
                "kafka.bootstrap.servers": self.servers,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "kafka.max.poll.records": "10000",
                "kafka.max.partition.fetch.bytes": "8388608",
            },
            self.connector,
        )
        return (SparkReader(source, self.directory / "spark"),)

    def _facts(self, topic: str) -> Any:
        """What the brokers know of a topic, once all replicas keep up and its leaders serve it."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(settings_of(self.servers))
        self.processes.wait_for(lambda: _is_led(admin, topic), f"nobody leads {topic}")
        facts = admin.list_topics(topic, timeout=ANSWER_SECONDS)
        for number, partition in facts.topics[topic].partitions.items():
            serves = partial(_serves, facts.brokers[partition.leader].port, topic, number)
            self.processes.wait_for(serves, f"nobody serves {topic}")
        return facts


def _warm_up(cluster: KafkaCluster) -> None:
    """Have a topic of its own written and read, in large units and small ones."""
    cluster.make_topic("warm", 1)
    value, deadline = bytes(100), perf_counter() + WARM_SECONDS
    with cluster.clients("warm")[0] as client:
        while perf_counter() < deadline:
            client.append_batches([value] * 1_000, 16)
            client.append_one_by_one(value, 50)
            client.consume(16_000)


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
