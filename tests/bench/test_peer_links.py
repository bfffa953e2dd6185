"""How the lean clients of the benchmark drive a system, against one that only counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from bench.peers.lean import Frame, LeanClient, Link, PeerError, open_link


class Counting(Link):
    """A byte is an acknowledgement."""

    def acknowledgements_in(self, data: bytes) -> int:
        return len(data)


class Client(LeanClient):
    batch_links = 2
    batch_window = 3
    small_per_write = 10
    small_window = 2
    rate_links = 2

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    async def new_link(self) -> Link:
        return await open_link(Counting(), self._port)

    def frame(self, values: Sequence[bytes]) -> Frame:
        return Frame(b"".join(values), len(values))


class Answering(asyncio.Protocol):
    """A connection of the system: each byte is answered by a byte, a turn of the loop later."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._system.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self._system.received += len(data)
        self._system.unanswered_max = max(self._system.unanswered_max, len(data))
        if self._system.hangs_up:
            self._transport.close()
        else:
            asyncio.get_running_loop().call_soon(self._transport.write, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


@dataclass
class System:
    """Knows how much was unanswered on a connection at most."""

    hangs_up: bool = False
    unanswered_max: int = 0
    received: int = 0
    connections: list[Answering] = field(default_factory=list)


async def with_system(system: System, work: Callable[[System, Client], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(system), "127.0.0.1", 0)
    client = Client(server.sockets[0].getsockname()[1])
    await client.connect()
    try:
        await work(system, client)
    finally:
        await client.disconnect()
        for connection in system.connections:
            await connection.lost.wait()
        server.close()
        await server.wait_closed()


def test_no_more_than_a_window_is_unanswered() -> None:
    async def work(system: System, client: Client) -> None:
        await client._spread(Frame(b"xy", 2), 101, 2, 3)
        assert system.received == 202
        assert system.unanswered_max <= 6

    asyncio.run(with_system(System(), work))


def test_every_append_at_a_rate_is_timed() -> None:
    async def work(system: System, client: Client) -> None:
        late = await client._at_rate(Frame(b"x"), 10_000, 50)
        assert len(late) == 50
        assert min(late) > 0

    asyncio.run(with_system(System(), work))


def test_one_by_one_there_is_one_under_way() -> None:
    async def work(system: System, client: Client) -> None:
        (link,) = await client._some_links(1)
        taken = await link.one_by_one(Frame(b"x"), 20)
        assert (len(taken), system.unanswered_max) == (20, 1)

    asyncio.run(with_system(System(), work))


def test_a_connection_that_breaks_is_an_error_and_not_a_wait() -> None:
    async def work(system: System, client: Client) -> None:
        with pytest.raises(PeerError, match="connection was lost"):
            await client._spread(Frame(b"x"), 10, 3, 1)

    asyncio.run(with_system(System(hangs_up=True), work))
