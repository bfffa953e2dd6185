"""Brings appends from event loops to a committing thread, and their outcomes back.

All appends that a group commit finishes travel back together: a loop is woken once for each
group, however many of its appends were in it.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeAlias

from tidelog.embedded.engine import Engine
from tidelog.embedded.requests import AppendRequest
from tidelog.errors import DeadlineExceeded
from tidelog.interface.appends import Append
from tidelog.interface.records import Receipt

Outcome: TypeAlias = "asyncio.Future[tuple[Receipt, ...]]"


class LoopCommits:
    """The committing thread of a log, for appends that event loops post."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-commit")
        self._lock = threading.Lock()
        self._finished: dict[asyncio.AbstractEventLoop, list[tuple[AppendRequest, Outcome]]] = {}
        self._committing: int | None = None
        """The thread that leads a commit for us; it wakes the loops when the group is done."""
        self._leads_again = False

    def post(self, append: Append) -> Outcome:
        """Queue an append behind all that were posted before; the future tells its outcome.

        Raises what ``Engine.post`` raises: the append was not queued then.
        """
        request = AppendRequest(append)
        loop = asyncio.get_running_loop()
        outcome: Outcome = loop.create_future()
        request.listener = lambda: self._on_wake(request, loop, outcome)
        if self._engine.post(request):
            self._thread.submit(self._lead)
        return outcome

    async def commit(self, append: Append, timeout: float | None) -> tuple[Receipt, ...]:
        """Append and wait, for ``timeout`` seconds or the log's default."""
        seconds = self._engine.options.append_timeout_seconds if timeout is None else timeout
        try:
            return await asyncio.wait_for(self.post(append), seconds)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the append was not committed within {seconds} s; it may still take effect"
            ) from None

    def stop(self) -> None:
        """Wait until the thread has ended; close the engine first."""
        self._thread.shutdown(wait=True)

    # -- in the committing thread, ours or that of a caller who blocks ------------------------

    def _lead(self) -> None:
        self._committing = threading.get_ident()
        try:
            again = True
            while again:
                self._leads_again = False
                self._engine.lead()
                self._wake_loops()
                again = self._leads_again
        finally:
            self._committing = None
            self._wake_loops()

    def _on_wake(
        self, request: AppendRequest, loop: asyncio.AbstractEventLoop, outcome: Outcome
    ) -> None:
        ours = self._committing == threading.get_ident()
        if request.done:
            with self._lock:
                self._finished.setdefault(loop, []).append((request, outcome))
            if not ours:
                self._wake_loops()
        elif ours:
            self._leads_again = True
        else:
            self._thread.submit(self._lead)

    def _wake_loops(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, {}
        for loop, requests in finished.items():
            with suppress(RuntimeError):  # The loop is gone, and with it whoever waited.
                loop.call_soon_threadsafe(_resolve, requests)


def _resolve(requests: list[tuple[AppendRequest, Outcome]]) -> None:
    for request, outcome in requests:
        if outcome.done():
            continue
        if request.error is not None:
            outcome.set_exception(request.error)
        else:
            outcome.set_result(request.receipts)
