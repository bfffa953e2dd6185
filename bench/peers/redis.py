"""Redis streams: a primary and two replicas; ``WAIT 1`` after what is appended.

So an acknowledgement comes when the primary and one replica have the record in memory; the
append-only file is synced every second, or with ``appendfsync always`` by the primary before it
answers; WAIT does not wait for the files of replicas.
Redis has no elections of its own: an acknowledged record can be lost when a primary is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from bench.peers.installing import Store
from bench.peers.interface import NODES, Client, Cluster, Reading, Variant
from bench.peers.lean import Frame, LeanClient, Link, PeerError, open_link
from bench.peers.processes import HOST, Processes, Unavailable, free_ports

WAIT_MS: Final = 10_000
READ: Final = 1_000
_FIELD: Final = b"d"


class Redis:
    """The peer."""

    name = "Redis streams"
    orders_streams = False
    variants = (
        Variant("default", "in memory of two, files synced every second"),
        Variant("fsync", "synced by the primary, in memory of a replica", syncs=True),
    )

    def install(self, store: Store) -> None:
        self._unpacked = store.debian("redis-server")
        try:
            import hiredis  # noqa: F401
            import redis  # noqa: F401
        except ImportError as error:
            raise Unavailable("redis-py and hiredis are not installed") from error

    @contextmanager
    def start(self, variant: Variant, directory: Path) -> Iterator[RedisCluster]:
        ports = free_ports(NODES)
        with Processes(directory / "logs") as processes:
            for number, port in enumerate(ports):
                place = directory / f"r{number}"
                place.mkdir()
                settings = {
                    "--bind": HOST,
                    "--port": str(port),
                    "--dir": str(place),
                    "--save": "",
                    "--appendonly": "yes",
                    "--appendfsync": "always" if variant.syncs else "everysec",
                    "--auto-aof-rewrite-percentage": "0",
                    "--repl-diskless-sync-delay": "0",
                }
                words = [word for setting in settings.items() for word in setting]
                if number:
                    words += ["--replicaof", HOST, str(ports[0])]
                program = self._unpacked.program("usr/bin/redis-server")
                environment = self._unpacked.environment
                processes.start(f"r{number}", [program, *words], environment=environment)
            processes.wait_for_ports(ports)
            with _connected(ports[0]) as link:
                processes.wait_for(lambda: _has_replicas(link), "the replicas do not connect")
                version = link.info("server")["redis_version"]
            yield RedisCluster(version, processes, directory, ports[0])


@contextmanager
def _connected(port: int) -> Iterator[Any]:
    import redis

    link = redis.Redis(host=HOST, port=port)
    try:
        yield link
    finally:
        link.close()


def _has_replicas(link: Any) -> bool:
    facts = link.info("replication")
    return facts["connected_slaves"] == NODES - 1 and all(
        facts[f"slave{number}"]["state"] == "online" for number in range(NODES - 1)
    )


@dataclass(slots=True)
class RedisCluster(Cluster):
    port: int

    def make_topic(self, name: str, streams: int) -> None:
        """A stream is there once it is written to."""

    def clients(self, topic: str) -> Sequence[Client]:
        return LeanRedis(self.port, topic), StockRedis(self.port, topic)


class RedisLink(Link):
    """Counts answers to WAIT, the only ones that are integers."""

    def __init__(self) -> None:
        super().__init__()
        self._tail = b"\r\n"

    def acknowledgements_in(self, data: bytes) -> int:
        text = self._tail + data
        if b":0\r" in text or b"\n-" in text:
            self.fail(f"refused, or no replica has it: {text[-200:]!r}")
        self._tail = text[-2:]
        return data.count(b":")


class RedisReader(Link):
    """Takes answers apart with hiredis; what the last one was is left to be looked at."""

    def __init__(self) -> None:
        super().__init__()
        import hiredis

        self._parser: Any = hiredis.Reader()
        self.answer: Any = None

    def acknowledgements_in(self, data: bytes) -> int:
        self._parser.feed(data)
        found = 0
        while (answer := self._parser.gets()) is not False:
            self.answer = answer
            found += 1
        return found


class LeanRedis(LeanClient):
    """After a WAIT a connection takes nothing more, so there are several of them."""

    batch_links = 4
    batch_window = 1
    small_links = 64
    small_per_write = 1
    small_window = 1
    rate_links = 32

    def __init__(self, port: int, topic: str) -> None:
        super().__init__()
        self._port = port
        self._topic = topic.encode()

    async def new_link(self) -> Link:
        return await open_link(RedisLink(), self._port)

    def frame(self, values: Sequence[bytes]) -> Frame:
        parts = [command(b"XADD", self._topic, b"*", _FIELD, value) for value in values]
        return Frame(b"".join(parts) + command(b"WAIT", b"1", b"%d" % WAIT_MS))

    def consume(self, count: int) -> Reading:
        return self.run(self._consume(count))

    async def _consume(self, count: int) -> Reading:
        link = RedisReader()
        await open_link(link, self._port)
        reading, last = Reading(), b"0-0"
        while reading.records < count:
            words = (b"XREAD", b"COUNT", b"%d" % READ, b"STREAMS", self._topic, last)
            await link.pump(Frame(command(*words)), 1, 1)
            if not link.answer:
                raise PeerError(f"{self._topic!r} ends after {reading.records} records")
            records = link.answer[0][1]
            reading.took(len(records))
            last = records[-1][0]
        link.transport.close()
        return reading


def command(*words: bytes) -> bytes:
    """A command as Redis reads it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


class StockRedis(Client):
    """redis-py on hiredis, with a pipeline for a batch."""

    name = "redis-py"

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic

    def open(self) -> None:
        import redis

        self._link: Any = redis.Redis(host=HOST, port=self._port)

    def close(self) -> None:
        self._link.close()

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        for _ in range(count):
            pipeline = self._link.pipeline(transaction=False)
            for value in values:
                pipeline.xadd(self._topic, {_FIELD: value})
            pipeline.execute_command("WAIT", 1, WAIT_MS)
            pipeline.execute()

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begin = perf_counter()
            self._link.xadd(self._topic, {_FIELD: value})
            self._link.wait(1, WAIT_MS)
            taken.append(perf_counter() - begin)
        return taken

    def consume(self, count: int) -> Reading:
        reading, last = Reading(), b"0-0"
        while reading.records < count:
            found = self._link.xread({self._topic: last}, count=READ)
            if not found:
                raise PeerError(f"{self._topic} ends after {reading.records} records")
            records = found[0][1]
            reading.took(len(records))
            last = records[-1][0]
        return reading
