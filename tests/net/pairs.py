"""A connection whose other end is a bare socket, and one between two handlers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, TypeVar

from tidelog.errors import LogError
from tidelog.formats.wire import FrameHeader
from tidelog.net.connection import FrameConnection, Patience
from tidelog.net.loops import run as run_in_loop

T = TypeVar("T")
WAIT_SECONDS = 20.0
Frame = tuple[int, bytes, bytes]


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; it must come to an end."""
    return run_in_loop(asyncio.wait_for(main, 2 * WAIT_SECONDS))


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while not condition():
        assert monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.001)


class Recorder:
    """Keeps what a connection tells."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.broken: list[LogError] = []
        self.lost = 0
        self.connection: FrameConnection
        self.pause_after = 0
        """Pause after so many frames; 0: never."""
        self.raises: LogError | None = None

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        self.frames.append((header.request, message, bytes(attachment)))
        if self.raises is not None:
            raise self.raises
        if len(self.frames) == self.pause_after:
            self.connection.pause()

    def on_broken(self, error: LogError) -> None:
        self.broken.append(error)
        self.connection.abort()

    def on_lost(self, error: Exception | None) -> None:
        self.lost += 1


@asynccontextmanager
async def connected(
    *, patience: Patience | None = None, opened: bool = True
) -> AsyncIterator[tuple[Recorder, socket.socket]]:
    """A connection and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    recorder = Recorder()
    loop = asyncio.get_running_loop()

    def make() -> FrameConnection:
        recorder.connection = FrameConnection(recorder, patience=patience)
        if opened:
            recorder.connection.open_up()
        return recorder.connection

    await loop.connect_accepted_socket(make, ours)
    try:
        yield recorder, theirs
    finally:
        recorder.connection.abort()
        await recorder.connection.wait_closed()
        theirs.close()
    assert recorder.lost == 1


async def send_all(peer: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(peer, data)


async def receive(peer: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer at the end of the connection."""
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) < size:
        data = await loop.sock_recv(peer, min(size - len(received), 1 << 16))
        if not data:
            break
        received += data
    return bytes(received)
