"""An address that takes connections and never says a word on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BlackHole:
    def __init__(self) -> None:
        self.address = ""
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def callers(self) -> int:
        """How many connections were made so far."""
        return len(self._writers)

    def take(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def black_hole() -> AsyncIterator[BlackHole]:
    """There while the context lasts."""
    hole = BlackHole()
    server = await asyncio.start_server(hole.take, "127.0.0.1", 0)
    hole.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield hole
    finally:
        hole.close()
        server.close()
        await server.wait_closed()
