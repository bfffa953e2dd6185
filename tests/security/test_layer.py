"""The layer of TLS between two connections: flow, pieces, ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.net.pairs import Recorder, until
from tests.security.conftest import Run
from tests.security.material import TLS, client, server
from tidelog.formats.checksum import Buffer
from tidelog.limits import KIB, MIB
from tidelog.net.connection import FrameConnection, Patience
from tidelog.net.tls import TlsLayer


class Side(Recorder):
    """One end of a connection over TLS."""

    def __init__(self, patience: Patience | None = None) -> None:
        super().__init__()
        self.connection = FrameConnection(self, patience=patience)
        self.connection.open_up()
        self.layer: TlsLayer

    def on_lost(self, error: Exception | None) -> None:
        super().on_lost(error)
        self.error = error


def layers() -> tuple[Side, Side]:
    ours, theirs = Side(), Side()
    listening, connecting = server().ssl_context(), client().for_endpoint(TLS).ssl_context()
    assert listening is not None
    assert connecting is not None
    ours.layer = ours.connection.over_tls(listening)
    theirs.layer = theirs.connection.over_tls(connecting, server_name="localhost")
    return ours, theirs


@asynccontextmanager
async def pair(*, slowly: bool = False) -> AsyncIterator[tuple[Side, Side]]:
    """A server and a client that talk over TLS; ``slowly``: byte by byte."""
    ours, theirs = layers()
    loop = asyncio.get_running_loop()
    first, second = socket.socketpair()
    tasks: list[asyncio.Task[None]] = []
    if slowly:
        before, after = socket.socketpair()
        tasks = [
            asyncio.ensure_future(carry_bytes(second, before)),
            asyncio.ensure_future(carry_bytes(before, second)),
        ]
        for one in (second, before):
            one.setblocking(False)
        await loop.connect_accepted_socket(lambda: theirs.layer, after)
    else:
        await loop.connect_accepted_socket(lambda: theirs.layer, second)
    await loop.connect_accepted_socket(lambda: ours.layer, first)
    try:
        yield ours, theirs
    finally:
        for side in (ours, theirs):
            side.connection.abort()
            await side.connection.wait_closed()
        if slowly:
            await asyncio.gather(*tasks, return_exceptions=True)
            second.close()
            before.close()
    assert (ours.lost, theirs.lost) == (1, 1)


async def carry_bytes(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, 1):
        await loop.sock_sendall(target, data)
    target.shutdown(socket.SHUT_WR)


def test_frames_arrive_byte_by_byte(run_in_loop: Run) -> None:
    async def main() -> None:
        async with pair(slowly=True) as (ours, theirs):
            theirs.connection.send(b"question", request=1, attachments=[b"x" * 300])
            await until(lambda: bool(ours.frames), "the question arrives")
            ours.connection.send(b"answer", request=1)
            await until(lambda: bool(theirs.frames), "the answer arrives")
            assert ours.frames == [(1, b"question", b"x" * 300)]
            assert theirs.frames == [(1, b"answer", b"")]

    run_in_loop(main())


@pytest.mark.parametrize("size", [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 5 * MIB + 1])
def test_parts_of_every_size_arrive_as_they_were_sent(run_in_loop: Run, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)

    async def main() -> None:
        async with pair() as (ours, theirs):
            parts: list[Buffer] = [
                memoryview(data)[:size],
                b"",
                b"-" * 100,
                memoryview(data)[:size],
            ]
            for number in range(1, 4):
                theirs.connection.send(b"m", request=number, attachments=parts)
            await until(lambda: len(ours.frames) == 3, "all arrive")
            wanted = data[:size] + b"-" * 100 + data[:size]
            assert ours.frames == [(number, b"m", wanted) for number in range(1, 4)]

    run_in_loop(main())


def test_a_side_that_pauses_holds_the_other_one_back_and_loses_nothing(run_in_loop: Run) -> None:
    count, size = 400, 50_000

    async def main() -> None:
        async with pair() as (ours, theirs):
            ours.pause_after = 1
            for number in range(1, count + 1):
                theirs.connection.send(b"m", request=number, attachments=[bytes(size)])
            await until(lambda: bool(ours.frames), "the first one arrives")
            for _ in range(100):  # Turns of the loop, in each of which something could arrive.
                await asyncio.sleep(0)
            assert not theirs.connection.is_writable
            assert len(ours.frames) == 1
            assert ours.layer._arrived.pending <= 2 * 64 * KIB
            ours.connection.resume()
            await until(lambda: len(ours.frames) == count, "all arrive")
            assert [frame[0] for frame in ours.frames] == list(range(1, count + 1))

    run_in_loop(main())


def test_a_side_that_closes_in_the_handshake_still_says_what_it_had_to_say(
    run_in_loop: Run,
) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            ours.connection.send(b"go away", request=0)
            ours.connection.close()
            await ours.connection.wait_closed()
            await theirs.connection.wait_closed()
            assert theirs.frames == [(0, b"go away", b"")]

    run_in_loop(main())


def test_both_sides_may_close_at_once(run_in_loop: Run) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            theirs.connection.send(b"a", request=1)
            await until(lambda: bool(ours.frames), "it arrives")
            ours.connection.close()
            theirs.connection.close()
            await ours.connection.wait_closed()
            await theirs.connection.wait_closed()
            assert (ours.error, theirs.error) == (None, None)

    run_in_loop(main())


def test_a_large_answer_is_delivered_before_the_end(run_in_loop: Run) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            theirs.connection.send(b"a", request=1)
            await until(lambda: bool(ours.frames), "it arrives")
            ours.connection.send(b"b", request=1, attachments=[bytes(20 * MIB)])
            ours.connection.close()
            await theirs.connection.wait_closed()
            assert [len(frame[2]) for frame in theirs.frames] == [20 * MIB]
            await ours.connection.wait_closed()

    run_in_loop(main())


def test_a_peer_that_vanishes_without_a_word_is_lost_once(run_in_loop: Run) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            theirs.connection.send(b"a", request=1)
            await until(lambda: bool(ours.frames), "it arrives")
            theirs.connection.abort()
            await ours.connection.wait_closed()
            ours.connection.send(b"late", request=2)
            ours.connection.close()
            assert ours.broken == []

    run_in_loop(main())
