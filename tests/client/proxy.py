"""A TCP proxy between a client and its node that can swallow either direction, or hang up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from types import TracebackType
from typing import Self

WAIT_SECONDS = 30.0
CHUNK_BYTES = 1 << 16


class Proxy:
    """Forwards everything until it is told otherwise."""

    def __init__(self, target: str) -> None:
        """``target`` is the endpoint of a node on TCP."""
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)
        self.swallow_requests = False
        self.swallow_answers = False
        self.swallowed = 0
        """Bytes that never reached whom they were for."""
        self.connections = 0
        """How many clients got through to the node so far."""
        self._open: set[asyncio.StreamWriter] = set()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, int]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._loop, self._port = self._ready.result(WAIT_SECONDS)

    @property
    def url(self) -> str:
        return f"tidelog://127.0.0.1:{self._port}/"

    def cut(self) -> None:
        """Hang up on everybody."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def wait_until_swallowed(self, more_than: int = 0) -> None:
        """Until a request or answer was swallowed."""
        wait_until(lambda: self.swallowed > more_than, "something is swallowed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(WAIT_SECONDS)

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._on_client, "127.0.0.1", 0)
        self._ready.set_result((asyncio.get_running_loop(), server.sockets[0].getsockname()[1]))
        await self._stopped.wait()
        server.close()
        self._abort_all()

    def _abort_all(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            node_reader, node_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, node_writer}
        self.connections += 1
        try:
            await asyncio.gather(
                self._pump(reader, node_writer, lambda: self.swallow_requests),
                self._pump(node_reader, writer, lambda: self.swallow_answers),
            )
        except OSError:
            pass  # One side hung up in the middle.
        finally:
            for end in (writer, node_writer):
                end.transport.abort()
                self._open.discard(end)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        swallows: Callable[[], bool],
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if swallows():
                self.swallowed += len(data)
            else:
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look again and again; fails after WAIT_SECONDS."""
    deadline = monotonic() + WAIT_SECONDS
    pause = threading.Event()
    while not condition():
        assert monotonic() < deadline, f"never happened: {what}"
        pause.wait(0.001)
