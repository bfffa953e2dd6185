"""Lets many requests wait for a topic to grow, and wakes those that have what they wait for.

The committing thread wakes the event loop once, however many cuts come before it looks.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from tidelog.embedded.engine import Engine


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    topic: int
    glsn: int
    reached: asyncio.Future[None]


class Tide:
    """Watches the high watermarks of a log for one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._waiters: set[_Waiter] = set()
        self._woken = False
        self._stopped = False
        self._stop_listening = engine.listen(self._on_commit)

    async def wait_for(self, topic: int, glsn: int, seconds: float) -> bool:
        """Wait until ``glsn`` was issued; False when ``seconds`` passed or the node stops."""
        if self._engine.high_watermark(topic) >= glsn:
            return True
        if self._stopped or seconds <= 0:
            return False
        waiter = _Waiter(topic, glsn, self._loop.create_future())
        self._waiters.add(waiter)
        try:
            # Looked at again: a commit that found nobody waiting has woken nobody.
            if self._engine.high_watermark(topic) < glsn:
                await asyncio.wait_for(waiter.reached, seconds)
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)
        return self._engine.high_watermark(topic) >= glsn

    def stop(self) -> None:
        """Let all who wait go, and nobody wait from now on."""
        self._stopped = True
        self._stop_listening()
        for waiter in self._waiters:
            if not waiter.reached.done():
                waiter.reached.set_result(None)

    def _on_commit(self) -> None:
        """In the committing thread."""
        if self._waiters and not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # The loop is gone, and with it all who waited.
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._woken = False  # First: a commit from here on must wake us again.
        for waiter in self._waiters:
            reached = self._engine.high_watermark(waiter.topic) >= waiter.glsn
            if reached and not waiter.reached.done():
                waiter.reached.set_result(None)
