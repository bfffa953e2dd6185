"""Tidelog: three nodes with all roles and default settings, a topic with three replicas.

An acknowledgement comes when a majority has synced the record (PROPAGATED), and by default when it
has its place in the total order, too (ORDERED).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, time_ns
from typing import Final, Literal

import msgspec

import tidelog
from bench.peers.installing import Store
from bench.peers.interface import NODES, Client, Cluster, NotOffered, Reading, Variant
from bench.peers.lean import Frame, LeanClient, Link, LoopClient, open_link, until
from bench.peers.processes import Processes, disk_bytes
from bench.peers.spark_reading import Source, SparkReader
from tidelog.formats.batch import encode_values, seal_batch
from tidelog.formats.messages import Answer, AppendBatches, Hello, Receipts, Request, Welcome
from tidelog.formats.wire import HEADER_BYTES, decode_header, encode_frame
from tidelog.limits import ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX
from tidelog.storage.node_store import WAL_DIRECTORY
from tidelog.testing import LocalCluster

Level = Literal["propagated", "ordered"]

IN_FLIGHT: Final = 128
"""Batches under way: what queues up during a sync and a cut goes into the next ones."""
TIMEOUT_MS: Final = 60_000
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Answer)


class Tidelog:
    """This project."""

    name = "Tidelog"
    orders_streams = True
    variants = (
        Variant("ordered", "synced by a majority, in total order", syncs=True),
        Variant("propagated", "synced by a majority", syncs=True),
    )

    def install(self, store: Store) -> None:
        """It is here."""

    @contextmanager
    def start(self, variant: Variant, directory: Path) -> Iterator[TidelogCluster]:
        with LocalCluster(NODES, directory=directory / "nodes", streams=1) as cluster:
            pids = [node.pid for node in cluster.nodes if node.pid is not None]
            with Processes(directory / "logs") as processes:
                processes.adopt(pids)
                level: Level = "ordered" if variant.name == "ordered" else "propagated"
                yield TidelogCluster(
                    version("tidelog"), processes, directory / "nodes", cluster, level
                )


@dataclass(slots=True)
class TidelogCluster(Cluster):
    nodes: LocalCluster
    level: Level

    def make_topic(self, name: str, streams: int) -> None:
        with self.nodes.connect() as log:
            topic = log.create_topic(name, streams=streams, replicas=NODES)
            for stream in topic.streams:
                topic.append(b"", stream=stream)  # Somebody leads it.

    def clients(self, topic: str) -> Sequence[Client]:
        with self.nodes.connect() as log:
            stream = log.topic(topic).streams[0]
        port = self.nodes.leader_of(stream).ports.clients
        lean = LeanTidelog(port, topic, stream, self.level)
        return lean, TidelogClient(self.nodes.url_of(topic), self.level)

    def kept_bytes(self) -> int:
        """Without the files of the WAL, which have all of their blocks from the start."""
        wal = sum(map(disk_bytes, self.directory.rglob(WAL_DIRECTORY)))
        return disk_bytes(self.directory) - wal

    def flushed(self, topic: str, records: int) -> int:
        """As ``tidelog compact run --full`` does: the WAL of every node is moved into segments."""
        with self.nodes.connect(timeout=TIMEOUT_MS / 1_000) as log:
            handle = log.topic(topic)
            handle.compact(full=True)
            return sum(stream.entries for stream in handle.stats().streams)

    def readers(self, topic: str) -> Sequence[Client]:
        return (TidelogClient(self.nodes.url_of(topic), self.level),)

    def spark_readers(self, topic: str) -> Sequence[Client]:
        if self.level != "ordered":
            return ()  # What is read is the same.
        source = Source("Tidelog's source", "tidelog", {"endpoint": self.nodes.url_of(topic)})
        return (SparkReader(source, self.directory / "spark"),)


class TidelogClient(LoopClient):
    """The client as it is."""

    name = "Tidelog's client"

    def __init__(self, url: str, level: Level) -> None:
        self._url = url
        self._level = level

    async def connect(self) -> None:
        self._log = await tidelog.connect_async(self._url)

    async def disconnect(self) -> None:
        await self._log.close()

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        self.run(self._append_batches(values, count))

    async def _append_batches(self, values: Sequence[bytes], count: int) -> None:
        left = iter(range(count))

        async def append_some() -> None:
            for _ in left:
                await self._log.append_batch(values, ack=self._level)

        await asyncio.gather(*(append_some() for _ in range(IN_FLIGHT)))

    def append_small(self, value: bytes, count: int) -> None:
        if self._level != "ordered":
            raise NotOffered("small appends that do not wait for the order")
        self.run(self._append_small(value, count))

    async def _append_small(self, value: bytes, count: int) -> None:
        async with self._log.appender() as appender:
            for _ in range(count):
                await appender.append(value)

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        return self.run(self._one_by_one(value, count))

    async def _one_by_one(self, value: bytes, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begin = perf_counter()
            await self._log.append(value, ack=self._level)
            taken.append(perf_counter() - begin)
        return taken

    def append_at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        return self.run(self._at_rate(value, rate, count))

    async def _at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        late: list[float] = []

        async def append(due: float) -> None:
            await self._log.append(value, ack=self._level)
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
        """As Arrow, in total order; what an engine behind it takes."""
        reading = Reading()
        async with aclosing(self._log.read_arrow(columns=["glsn", "value"])) as batches:
            async for batch in batches:
                reading.took(batch.num_rows)
                if reading.records >= count:
                    break
        return reading


class TidelogLink(Link):
    """Counts receipts; every request has a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._received = bytearray()
        self._requests = 0
        self.request: bytes = _ENCODER.encode(Hello("bench"))
        self.is_welcome = False

    def send(self, frame: Frame) -> None:
        self._requests += 1
        header = encode_frame(
            self.request,
            request=self._requests,
            timeout_ms=TIMEOUT_MS,
            attachment_bytes=len(frame.data),
        )
        self.transport.writelines((header, frame.data) if frame.data else (header,))

    async def greet(self, port: int) -> None:
        """Connect to a node, and be welcome there."""
        await open_link(self, port)
        await self.pump(Frame(b""), 1, 1)

    def acknowledgements_in(self, data: bytes) -> int:
        self._received += data
        found = begin = 0
        while len(self._received) - begin >= HEADER_BYTES:
            header = decode_header(
                memoryview(self._received)[begin : begin + HEADER_BYTES],
                message_max=MESSAGE_BYTES_MAX,
                attachment_max=ATTACHMENT_BYTES_MAX,
            )
            body = begin + HEADER_BYTES
            end = body + header.body_bytes
            if len(self._received) < end:
                break
            answer = _DECODER.decode(self._received[body : body + header.message_bytes])
            self.is_welcome |= isinstance(answer, Welcome)
            if not isinstance(answer, Receipts | Welcome):
                self.fail(repr(answer))
            found += 1
            begin = end
        del self._received[:begin]
        return found


class LeanTidelog(LeanClient):
    """Batches that are encoded once, to the leader of the log stream."""

    name = "lean"
    batch_window = IN_FLIGHT

    def __init__(self, port: int, topic: str, stream: int, level: Level) -> None:
        super().__init__()
        self._port = port
        self._stream = stream
        request: Request = AppendBatches(topic, (stream,), ack=level)
        self.request = _ENCODER.encode(request)

    async def new_link(self) -> Link:
        link = TidelogLink()
        await link.greet(self._port)
        link.request = self.request
        return link

    def frame(self, values: Sequence[bytes]) -> Frame:
        body = encode_values(values, timestamp_us=time_ns() // 1_000)
        header = seal_batch(body, stream=self._stream, term=1, first_llsn=1)
        return Frame(header + bytes(body.data))

    def append_small(self, value: bytes, count: int) -> None:
        """Small appends share batches, which the client makes as it goes."""
        Client.append_small(self, value, count)
