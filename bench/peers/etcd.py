"""etcd: three members; a record is a key that was not there before.

An acknowledgement comes when a majority has synced the entry of the Raft log.  A batch is a
transaction; a reader asks for ranges of keys, which are in the order of their batches.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from bench.peers.http2 import PREFACE, CallLink
from bench.peers.installing import Store
from bench.peers.interface import NODES, Client, Cluster, Reading, Variant
from bench.peers.lean import Frame, LeanClient, Link, LoopClient, PeerError, open_link, until
from bench.peers.processes import HOST, Processes, Unavailable, free_ports

CALL_SECONDS: Final = 30.0
READ: Final = 10_000
"""A range is counted to its end for each answer, so there are few."""
TRANSACTION_MAX: Final = 1_024
REQUEST_BYTES_MAX: Final = 4 << 20
QUOTA_BYTES: Final = 8 << 30
PUT: Final = "/etcdserverpb.KV/Put"
TRANSACT: Final = "/etcdserverpb.KV/Txn"
RANGE: Final = "/etcdserverpb.KV/Range"
STATUS: Final = "/etcdserverpb.Maintenance/Status"
_NUMBER: Final = b"\x00number\x00"
"""Stands for the number of a request until it is sent."""
_SOURCE: Final = Path(__file__).parent / "files" / "etcd.go"
_MODULE: Final = "go.etcd.io/etcd/server/v3/etcdmain@v3.7.3"


class Etcd:
    """The peer."""

    name = "etcd"
    orders_streams = False
    variants = (Variant("default", "synced by a majority", syncs=True),)

    def install(self, store: Store) -> None:
        try:
            import grpc  # noqa: F401
        except ImportError as error:
            raise Unavailable("grpcio is not installed") from error
        self._environment: dict[str, str] = {}
        try:
            self._program = store.go_program("etcd", _SOURCE, _MODULE)
        except Unavailable:  # The release of Debian is older, but there.
            unpacked = store.debian("etcd-server")
            self._program = unpacked.program("usr/bin/etcd")
            self._environment = unpacked.environment

    @contextmanager
    def start(self, variant: Variant, directory: Path) -> Iterator[EtcdCluster]:
        ports = free_ports(2 * NODES)
        clients = [f"http://{HOST}:{port}" for port in ports[:NODES]]
        peers = [f"http://{HOST}:{port}" for port in ports[NODES:]]
        members = ",".join(f"e{number}={url}" for number, url in enumerate(peers))
        with Processes(directory / "logs") as processes:
            for number in range(NODES):
                words = (
                    f"--name=e{number}",
                    f"--data-dir={directory / f'e{number}'}",
                    f"--listen-client-urls={clients[number]}",
                    f"--advertise-client-urls={clients[number]}",
                    f"--listen-peer-urls={peers[number]}",
                    f"--initial-advertise-peer-urls={peers[number]}",
                    f"--initial-cluster={members}",
                    f"--quota-backend-bytes={QUOTA_BYTES}",
                    f"--max-txn-ops={TRANSACTION_MAX}",
                    f"--max-request-bytes={REQUEST_BYTES_MAX}",
                    "--log-level=error",
                )
                processes.start(
                    f"e{number}", [self._program, *words], environment=self._environment
                )
            processes.wait_for_ports(ports[:NODES])
            found: dict[int, str] = {}
            processes.wait_for(lambda: _find_leader(ports[:NODES], found), "no member leads")
            ((port, version),) = found.items()
            yield EtcdCluster(version, processes, directory, port)


def _find_leader(ports: Sequence[int], found: dict[int, str]) -> bool:
    """Put port and version of the member that leads into ``found``."""
    import grpc

    for port in ports:
        with grpc.insecure_channel(f"{HOST}:{port}") as channel:
            try:
                answer = channel.unary_unary(STATUS)(b"", timeout=CALL_SECONDS)
            except grpc.RpcError:
                return False
        status = fields_of(answer)
        member = fields_of(status[1][0]).get(2, [0])[0]
        if status.get(4, [None])[0] == member:
            found[port] = bytes(status[2][0]).decode()
            return True
    return False


@dataclass(slots=True)
class EtcdCluster(Cluster):
    port: int
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Of requests: no two records have the same key."""

    def make_topic(self, name: str, streams: int) -> None:
        """A prefix is there once there are keys with it."""

    def clients(self, topic: str) -> Sequence[Client]:
        return LeanEtcd(self.port, topic, self.numbers), StockEtcd(self.port, topic, self.numbers)


# -- messages --------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def int_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fields_of(message: bytes) -> dict[int, list[Any]]:
    """The fields of a message of Protocol Buffers, by their numbers."""
    found: dict[int, list[Any]] = {}
    place = 0
    while place < len(message):
        tag, place = _varint_at(message, place)
        number, place = _varint_at(message, place)
        is_bytes = tag & 7 == 2
        found.setdefault(tag >> 3, []).append(
            message[place : place + number] if is_bytes else number
        )
        place += number if is_bytes else 0
    return found


def _varint_at(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7


def put_request(topic: str, index: int, value: bytes) -> bytes:
    key = b"/%b/%b/%04d" % (topic.encode(), _NUMBER, index)
    return bytes_field(1, key) + bytes_field(2, value)


def transaction(topic: str, values: Sequence[bytes]) -> bytes:
    """Puts, all or none."""
    puts = (put_request(topic, index, value) for index, value in enumerate(values))
    return b"".join(bytes_field(2, bytes_field(2, put)) for put in puts)


def numbered(request: bytes, number: int) -> bytes:
    """A request with its number in its keys."""
    return request.replace(_NUMBER, b"%08d" % number)


# -- a lean client ---------------------------------------------------------------------------------


class EtcdLink(CallLink):
    def __init__(self, path: str, port: int, numbers: Iterator[int]) -> None:
        super().__init__(path, f"{HOST}:{port}")
        self._numbers = numbers

    def message_of(self, frame: Frame) -> bytes:
        return numbered(frame.data, next(self._numbers))


class LeanEtcd(LeanClient):
    """Calls over HTTP/2 that was written for them: gRPC for Python takes 100 µs for each."""

    small_per_write = 1
    small_window = 1_000

    def __init__(self, port: int, topic: str, numbers: Iterator[int]) -> None:
        super().__init__()
        self._port = port
        self._topic = topic
        self._numbers = numbers

    async def new_link(self) -> Link:
        return await self._link(PUT)

    async def _link(self, path: str) -> Link:
        link = EtcdLink(path, self._port, self._numbers)
        await open_link(link, self._port)
        link.transport.write(PREFACE)
        return link

    def frame(self, values: Sequence[bytes]) -> Frame:
        if len(values) == 1:
            return Frame(put_request(self._topic, 0, values[0]))
        return Frame(transaction(self._topic, values))

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        self.run(self._append_batches(self.frame(values), len(values) > 1, count))

    async def _append_batches(self, frame: Frame, is_transaction: bool, count: int) -> None:
        link = await self._link(TRANSACT if is_transaction else PUT)
        try:
            await link.pump(frame, count, self.batch_window)
        finally:
            link.transport.close()


# -- gRPC ------------------------------------------------------------------------------------------


class StockEtcd(LoopClient):
    """What the clients of etcd for Python are made of."""

    name = "grpcio"
    batch_window = 8
    small_window = 256

    def __init__(self, port: int, topic: str, numbers: Iterator[int]) -> None:
        self._port = port
        self._topic = topic
        self._numbers = numbers

    async def connect(self) -> None:
        import grpc.aio

        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(f"{HOST}:{self._port}", options=options)
        self._put = self._channel.unary_unary(PUT)
        self._transact = self._channel.unary_unary(TRANSACT)
        self._range = self._channel.unary_unary(RANGE)

    async def disconnect(self) -> None:
        await self._channel.close()

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        if len(values) == 1:
            put = put_request(self._topic, 0, values[0])
            self.run(self._calls(self._put, put, count, self.batch_window))
        else:
            request = transaction(self._topic, values)
            self.run(self._calls(self._transact, request, count, self.batch_window))

    def append_small(self, value: bytes, count: int) -> None:
        request = put_request(self._topic, 0, value)
        self.run(self._calls(self._put, request, count, self.small_window))

    async def _calls(
        self, method: Callable[..., Any], request: bytes, count: int, window: int
    ) -> None:
        left = iter(range(count))

        async def call_some() -> None:
            for _ in left:
                await method(numbered(request, next(self._numbers)), timeout=CALL_SECONDS)

        await asyncio.gather(*(call_some() for _ in range(window)))

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        return self.run(self._one_by_one(put_request(self._topic, 0, value), count))

    async def _one_by_one(self, request: bytes, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begin = perf_counter()
            await self._put(numbered(request, next(self._numbers)), timeout=CALL_SECONDS)
            taken.append(perf_counter() - begin)
        return taken

    def append_at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        return self.run(self._at_rate(put_request(self._topic, 0, value), rate, count))

    async def _at_rate(self, request: bytes, rate: int, count: int) -> list[float]:
        late: list[float] = []

        async def put(due: float) -> None:
            await self._put(numbered(request, next(self._numbers)), timeout=CALL_SECONDS)
            late.append(perf_counter() - due)

        begin = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                due = await until(begin + number / rate)
                tasks.create_task(put(due))
        return late

    def consume(self, count: int) -> Reading:
        return self.run(self._consume(count))

    async def _consume(self, count: int) -> Reading:
        """Ranges of keys, from whichever member this is."""
        begin, end = f"/{self._topic}/".encode(), f"/{self._topic}0".encode()
        reading = Reading()
        while reading.records < count:
            request = bytes_field(1, begin) + bytes_field(2, end)
            request += int_field(3, READ) + int_field(7, 1)
            records = fields_of(await self._range(request, timeout=CALL_SECONDS)).get(2, [])
            if not records:
                raise PeerError(f"{self._topic} ends after {reading.records} records")
            reading.took(len(records))
            begin = bytes(fields_of(records[-1])[1][0]) + b"\0"
        return reading
