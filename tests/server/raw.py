"""A node to talk to, and a client that speaks the protocol frame by frame, also badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self, TypeVar

from tests.embedded.logs import INLINE, WAIT_SECONDS
from tidelog.embedded.engine import Engine
from tidelog.embedded.options import Options
from tidelog.errors import ConnectionLost
from tidelog.formats.batch import Batch, BatchBody, decode_batch, encode_values, seal_batch
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.messages import (
    Answer,
    AppendBatches,
    Hello,
    Page,
    ReadPage,
    Receipts,
    Refused,
    Request,
    Welcome,
    decode_answer,
    encode_message,
)
from tidelog.formats.wire import (
    HEADER_BYTES,
    FrameHeader,
    check_message,
    decode_header,
    encode_frame,
)
from tidelog.interface.records import Record, records_of
from tidelog.limits import ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX
from tidelog.net.endpoint import Endpoint, TcpEndpoint, UnixEndpoint
from tidelog.net.loops import run as run_in_loop
from tidelog.net.security import ServerSecurity
from tidelog.server.node import NodeOptions, ServedNode
from tidelog.storage.vfs import Vfs
from tidelog.testing.disk import SimDisk

T = TypeVar("T")
TOPIC: Final = "default"
LOCAL: Final = TcpEndpoint("127.0.0.1", 0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine in the loop that a node runs in; it must come to an end."""
    return run_in_loop(asyncio.wait_for(main, WAIT_SECONDS * 2))


async def until(condition: Callable[[], bool], what: str) -> None:
    """Look again and again; fails after WAIT_SECONDS."""
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.001)


class Served:
    """A node that serves, where it is, and its clients."""

    def __init__(self, node: ServedNode, endpoints: list[Endpoint]) -> None:
        self.node = node
        self.endpoints = endpoints

    @property
    def engine(self) -> Engine:
        return self.node.parts.engine

    def client(self, number: int = 0) -> RawClient:
        return RawClient(self.endpoints[number])


@asynccontextmanager
async def serving(
    disk: SimDisk | None = None,
    *,
    endpoints: Sequence[Endpoint] = (LOCAL,),
    streams: int = 1,
    versions: str = "log",
    options: Options = INLINE,
    node_options: NodeOptions | None = None,
    vfs: Vfs | None = None,
    security: ServerSecurity | None = None,
) -> AsyncIterator[Served]:
    """A node on a simulated disk; stopped at the end unless the test has stopped it."""
    context = None if security is None else security.context_for(endpoints)
    vfs = vfs or (disk or SimDisk()).vfs()
    engine = Engine(vfs, "/log", options, create=True)
    if TOPIC not in engine.topic_names():
        engine.create_topic(TOPIC, streams=streams, versions=versions)
    node = ServedNode(engine, endpoints, options=node_options, security=security, context=context)
    try:
        yield Served(node, await node.start())
    finally:
        await node.stop()


class RawClient:
    """One connection; requests are numbered from 1 on."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._next = 1
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self._early: dict[int, tuple[Answer, memoryview]] = {}

    async def connect(self) -> Self:
        if isinstance(self._endpoint, UnixEndpoint):
            opened = asyncio.open_unix_connection(self._endpoint.path)
        else:
            opened = asyncio.open_connection(self._endpoint.host, self._endpoint.port)
        self.reader, self.writer = await opened
        return self

    async def __aenter__(self) -> Self:
        await self.connect()
        welcome = await self.ask(Hello("test"))
        assert isinstance(welcome, Welcome)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass  # The node has closed it first.

    def send(self, message: Request, attachment: bytes = b"", *, timeout_ms: int = 0) -> int:
        number, self._next = self._next, self._next + 1
        self.send_bytes(
            encode_frame(
                encode_message(message),
                request=number,
                timeout_ms=timeout_ms,
                attachment_bytes=len(attachment),
            )
            + attachment
        )
        return number

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive_frame(self) -> tuple[FrameHeader, Answer, memoryview]:
        """The next frame; ConnectionLost at the end of the connection."""
        try:
            head = await self.reader.readexactly(HEADER_BYTES)
            header = decode_header(
                head, message_max=MESSAGE_BYTES_MAX, attachment_max=ATTACHMENT_BYTES_MAX
            )
            message = await self.reader.readexactly(header.message_bytes)
            attachment = await self.reader.readexactly(header.attachment_bytes)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ConnectionLost(str(error)) from error
        check_message(header, head, message)
        return header, decode_answer(message), memoryview(attachment)

    async def answer(self, number: int) -> tuple[Answer, memoryview]:
        """The answer to a request, whatever comes before it."""
        while number not in self._early:
            header, message, attachment = await self.receive_frame()
            self._early[header.request] = message, attachment
        return self._early.pop(number)

    async def ask(
        self, message: Request, attachment: bytes = b"", *, timeout_ms: int = 0
    ) -> Answer:
        return (await self.answer(self.send(message, attachment, timeout_ms=timeout_ms)))[0]

    async def refusal(
        self, message: Request, attachment: bytes = b"", *, timeout_ms: int = 0
    ) -> Refused:
        answer = await self.ask(message, attachment, timeout_ms=timeout_ms)
        assert isinstance(answer, Refused)
        return answer

    async def append(self, *values: bytes, stream: int = 1, topic: str = TOPIC) -> Receipts:
        answer = await self.ask(AppendBatches(topic, (stream,)), batch_of(*values))
        assert isinstance(answer, Receipts), answer
        return answer

    async def page(self, message: ReadPage, *, timeout_ms: int = 0) -> tuple[Page, list[Record]]:
        answer, attachment = await self.answer(self.send(message, timeout_ms=timeout_ms))
        assert isinstance(answer, Page), answer
        return answer, page_records(answer, attachment)


def sealed(body: BatchBody, stream: int = 1) -> bytes:
    return seal_batch(body, stream=stream, term=1, first_llsn=1) + body.data


def batch_of(*values: bytes) -> bytes:
    return sealed(encode_values(values, timestamp_us=1))


def page_records(page: Page, attachment: memoryview) -> list[Record]:
    """The records of a page in GLSN order."""
    records: list[Record] = []
    offset = 0
    for piece in page.pieces:
        batch: Batch = decode_batch(attachment, offset)
        assert batch.length == piece.length
        offset += piece.length
        records += records_of(
            piece.stream, BatchSlice(batch, piece.begin, piece.end, GlsnRuns(piece.runs))
        )
    assert offset == len(attachment)
    return sorted(records, key=lambda record: record.glsn)


def socket_path(directory: Path) -> UnixEndpoint:
    return UnixEndpoint(str(directory / "node.socket"))
