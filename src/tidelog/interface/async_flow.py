"""How much an appender of an event loop has under way: bounded bytes.  See ``flow``."""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.interface.flow import appender_closed, checked_bytes


class AsyncFlow:
    """Who brings too much awaits."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = checked_bytes(bytes_max)
        self._bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._failure: BaseException | None = None
        self._closed = False

    async def enter(self, size: int) -> None:
        """Wait for room, and take it."""
        while not self.try_enter(size):
            await self._change()

    def try_enter(self, size: int) -> bool:
        """Take room, if there is enough."""
        if self._closed:
            raise appender_closed()
        if self._bytes and self._bytes + size > self._bytes_max:
            return False
        self._bytes += size
        return True

    def leave(self, size: int, error: BaseException | None) -> None:
        """An append is through, or failed."""
        self._bytes -= size
        self._failure = self._failure or error
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)

    async def flush(self) -> None:
        """Wait until nothing is under way; raises the first failure since the last time."""
        await self._settle()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Wait until nothing is under way, whatever became of it, and let nothing in (F3)."""
        await self._settle()
        self._closed = True
        self._wake()

    async def _settle(self) -> None:
        while self._bytes:
            await self._change()

    async def _change(self) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(woken)
        await woken
