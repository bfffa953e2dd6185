"""A TCP proxy between a master and its replica, in a thread of its own, that does harm.

Every connection is held back by itself, so that what is sent on one log channel overtakes what was
sent before on another; within a connection the order stays, as TCP has it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, Self

WAIT_SECONDS: Final = 30.0
CHUNK_BYTES: Final = 1 << 16
SINGLE_BYTES_MAX: Final = 400
"""What of a piece goes byte by byte."""
HANDSHAKE_BYTES: Final = 400
"""About what a master sends on a connection before its first entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What happens to bytes from now on."""

    delay_seconds: float = 0.0
    """Each piece is held back for up to this long."""
    byte_by_byte: bool = False
    """Header, message and the begin of what is attached, at least."""
    cut_after: int = 0
    """So many bytes after the handshake a connection is cut in the middle of a piece; 0: never."""
    stall_after: int = 0
    """So many bytes after the handshake nothing gets through any more; 0: never."""


class FaultProxy:
    """Forwards everything until ``faults`` says otherwise."""

    def __init__(self, target: str, *, seed: int = 0, faults: Faults | None = None) -> None:
        """``target`` is the endpoint of a replica on TCP."""
        self.target = target
        self.faults = faults or Faults()
        self.connections = 0
        """How many masters' connections got through so far."""
        self.cuts = 0
        self.stalled = 0
        self._random = Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._pairs: set[asyncio.Task[None]] = set()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, int]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._loop, self._port = self._ready.result(WAIT_SECONDS)

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    def hang_up(self) -> None:
        """Cut all connections now, wherever they are."""
        self._loop.call_soon_threadsafe(self._abort_all)

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
        assert not self._thread.is_alive()

    # -- in the thread --------------------------------------------------------------------------

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._on_master, "127.0.0.1", 0)
        self._ready.set_result((asyncio.get_running_loop(), server.sockets[0].getsockname()[1]))
        await self._stopped.wait()
        server.close()
        self._abort_all()
        for pair in self._pairs:
            pair.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def _abort_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _on_master(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start(self._join(reader, writer))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._pairs.add(task)
        task.add_done_callback(self._pairs.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.removeprefix("tcp://").rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        number = self.connections
        both = {writer, far_writer}
        self._writers |= both

        def cut() -> None:
            for end in both:
                end.transport.abort()

        try:
            await asyncio.gather(
                self._pump(reader, far_writer, cut, number, from_master=True),
                self._pump(far_reader, writer, cut, number, from_master=False),
            )
        except OSError:
            pass  # One side hung up in the middle.
        finally:
            cut()
            self._writers -= both

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        cut: Callable[[], None],
        connection: int,
        *,
        from_master: bool,
    ) -> None:
        """Forward what comes until it ends."""
        passed = 0
        while data := await reader.read(CHUNK_BYTES):
            faults = self.faults
            passed += len(data)
            if faults.delay_seconds:
                await asyncio.sleep(self._random.random() * faults.delay_seconds)
            if faults.stall_after and passed > HANDSHAKE_BYTES + faults.stall_after:
                self.stalled += 1
                await self._stopped.wait()
                return
            if faults.cut_after and passed > HANDSHAKE_BYTES + faults.cut_after:
                self.cuts += 1
                await _send(writer, data[: self._random.randrange(len(data))], faults)
                break
            await _send(writer, data, faults)
        cut()


async def _send(writer: asyncio.StreamWriter, data: bytes, faults: Faults) -> None:
    if not faults.byte_by_byte:
        writer.write(data)
        await writer.drain()
        return
    single = min(len(data), SINGLE_BYTES_MAX)
    for place in range(single):
        writer.write(data[place : place + 1])
        await writer.drain()
        await asyncio.sleep(0)  # Each byte leaves by itself.
    writer.write(data[single:])
    await writer.drain()
