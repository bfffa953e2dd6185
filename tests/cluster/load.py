"""Writers and subscribers that go on whatever happens to the cluster, and note all of it.

They run in one event loop in a thread of its own, each with a client of its own.  A writer calls in
order; what it has under way at the same time goes to one log stream, whose order is checked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import tidelog
from tests.cluster.history import Append, Outcome, Seen
from tests.cluster.payload import payload_of, read_payload
from tidelog.client.retries import Reconnect
from tidelog.errors import LogError
from tidelog.net.loops import run

WAIT_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.05
"""Of a writer whose append failed, so that it does not fill its history with failures."""
RECONNECT: Final = Reconnect(pause_max=0.2, attempt=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """How a writer writes."""

    batch: int = 1
    in_flight: int = 1
    stream: int | None = None
    """None: the client chooses; then only one is under way at a time."""
    timeout: float = 30.0
    """Of each append, tries again and all."""


SINGLES: Final = Habit()
BATCHES: Final = Habit(batch=100)
HASTY: Final = Habit(batch=3, timeout=0.4)
"""Gives up early: many appends whose outcome nobody knows."""
DEFAULT: Final = (SINGLES, SINGLES, BATCHES, HASTY)


class Load:
    """Runs from ``start`` to ``stop``; its history is there all the time."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        habits: Sequence[Habit] = DEFAULT,
        subscribers: int = 1,
        first_writer: int = 1,
    ) -> None:
        """``urls``: writer and subscriber number *n* connects to the *n*-th one, and round again.

        ``first_writer``: writers of two loads on one log must not have the same numbers.
        """
        self.appends: list[Append] = []
        self.subscribers = [Seen(f"subscriber {number}") for number in range(subscribers)]
        self.acknowledged = 0
        """Records."""
        self.failures: list[BaseException] = []
        """What should never be raised to a writer or a subscriber."""
        self._urls = urls
        self._habits = habits
        self._first_writer = first_writer
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._leaving: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: run(self._run()), name="load")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the writers finish what they have under way; subscribers go on until ``leave``."""
        self._stopping.set()
        settled = self._wait(lambda: all(a.outcome is not Outcome.OPEN for a in self.appends), 60.0)
        assert settled, "an append does not end"

    def leave(self) -> None:
        """End everything; raises what nobody should have been told."""
        self._stopping.set()
        if self._loop is not None and self._leaving is not None:
            self._loop.call_soon_threadsafe(self._leaving.set)
        if self._thread.is_alive():
            self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), f"the load does not end: {self._still_running()}"
        for failure in self.failures:
            raise AssertionError(f"the load failed: {failure!r}") from failure

    def _still_running(self) -> list[str]:
        """Where tasks are that do not end."""
        assert self._loop is not None
        tasks = asyncio.all_tasks(self._loop)
        return [f"{task.get_coro()} {task.get_stack(limit=1)}" for task in tasks]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.leave()
            return
        try:
            self.leave()
        except AssertionError as also:
            error.add_note(str(also))

    # -- watching -----------------------------------------------------------------------------

    def wait_for_more(self, count: int, seconds: float = WAIT_SECONDS) -> None:
        """Until so many records more are acknowledged than now."""
        enough = self.acknowledged + count
        arrived = self._wait(lambda: self.acknowledged >= enough, seconds)
        assert arrived, (
            f"{self.acknowledged - enough + count} of {count} records were acknowledged within "
            f"{seconds} s; last errors: {self.last_errors()}"
        )

    def wait_for_stream(self, stream: int, count: int, seconds: float = WAIT_SECONDS) -> None:
        """Until so many appends that begin from now on are acknowledged by one log stream."""
        now = monotonic()
        begin = len(self.appends)

        def arrived() -> int:
            return sum(
                1
                for append in self.appends[max(begin - 100, 0) :]
                if append.outcome is Outcome.ACKNOWLEDGED
                and append.stream == stream
                and append.invoked_at >= now
            )

        assert self._wait(lambda: arrived() >= count, seconds), (
            f"{arrived()} of {count} appends to stream {stream} within {seconds} s; "
            f"last errors: {self.last_errors()}"
        )

    def wait_for_failures(self, count: int, seconds: float = WAIT_SECONDS) -> None:
        """Until so many appends more have failed than now."""
        enough = self._failed() + count
        assert self._wait(lambda: self._failed() >= enough, seconds), "no append fails"

    def _failed(self) -> int:
        return self.count(Outcome.REFUSED) + self.count(Outcome.UNKNOWN)

    def wait_for_subscribers(self, end: int, seconds: float = WAIT_SECONDS) -> None:
        """Until every subscriber was shown the last record below ``end`` that there is."""
        arrived = self._wait(
            lambda: all(one.glsns and one.glsns[-1] >= end - 1 for one in self.subscribers), seconds
        )
        places = [one.glsns[-1] if one.glsns else 0 for one in self.subscribers]
        assert arrived, f"subscribers got to {places} of {end} within {seconds} s"

    def last_errors(self) -> list[str]:
        """What writers were told lately."""
        return sorted({append.error for append in self.appends[-200:] if append.error})

    def count(self, outcome: Outcome) -> int:
        return sum(1 for append in self.appends if append.outcome is outcome)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it came true; a load that failed fails here, too."""
        with self._changed:
            ended = self._changed.wait_for(
                lambda: condition() or bool(self.failures), timeout=seconds
            )
        for failure in self.failures:
            raise AssertionError(f"the load failed: {failure!r}") from failure
        return ended

    # -- in the loop --------------------------------------------------------------------------

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leaving = asyncio.Event()
        tasks = [
            self._start(self._write(number, habit)) for number, habit in enumerate(self._habits)
        ]
        tasks += [self._start(self._follow(number)) for number in range(len(self.subscribers))]
        await self._leaving.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)
            self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _url(self, number: int) -> str:
        return self._urls[number % len(self._urls)]

    async def _connect(self, number: int, timeout: float) -> tidelog.AsyncRemoteLog:
        """However long it takes: a fault may be there already."""
        while True:
            try:
                return await tidelog.connect_async(
                    self._url(number), timeout=timeout, reconnect=RECONNECT
                )
            except LogError:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _write(self, number: int, habit: Habit) -> None:
        writer = self._first_writer + number
        log = await self._connect(number, WAIT_SECONDS)
        calls = 0
        under_way: set[asyncio.Task[bool]] = set()
        try:
            while not self._stopping.is_set():
                calls += 1
                under_way.add(
                    asyncio.create_task(
                        self._append(log, habit, Append(writer, calls, habit.batch, 0))
                    )
                )
                if len(under_way) < habit.in_flight:
                    continue
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                acknowledged = [task.result() for task in done]
                if not all(acknowledged):
                    await asyncio.sleep(PAUSE_SECONDS)
            for task in under_way:
                await task
        finally:
            await log.close()

    async def _append(self, log: tidelog.AsyncRemoteLog, habit: Habit, append: Append) -> bool:
        """Whether it was acknowledged."""
        values = [payload_of(ident) for ident in append.idents()]
        append.invoked_at = monotonic()
        self.appends.append(append)
        try:
            if habit.batch == 1:
                receipt = await log.append(values[0], stream=habit.stream, timeout=habit.timeout)
            else:
                receipt = await log.append_batch(values, stream=habit.stream, timeout=habit.timeout)
        except LogError as error:
            append.outcome = Outcome.REFUSED if error.definite else Outcome.UNKNOWN
            append.error = f"{type(error).__name__}: {error}"
            self._tell()
            return False
        append.acknowledged_at = monotonic()
        append.glsn, append.stream = receipt.glsn, receipt.stream
        append.duplicate = receipt.duplicate
        append.outcome = Outcome.ACKNOWLEDGED
        assert receipt.count == append.count, f"{append}: {receipt}"
        self.acknowledged += append.count
        self._tell()
        return True

    async def _follow(self, number: int) -> None:
        seen = self.subscribers[number]
        log = await self._connect(number, WAIT_SECONDS)
        try:
            async for record in log.subscribe(1):
                seen.add(record.glsn, read_payload(record.value))
                self._tell()
        finally:
            await log.close()
