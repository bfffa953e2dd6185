"""The appends of one connection on their way into the commit queue.

Those that are quickly checked are checked right away; others in a thread, and whatever comes behind
them waits.

Invariants:
  L1  Appends are queued in the order in which they arrived.
  L2  An append counts as pending until its outcome is known, even if nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.errors import LogError
from tidelog.formats.batch_layout import may_have_keys
from tidelog.formats.messages import AppendBatches
from tidelog.interface.appends import Append
from tidelog.limits import KIB, MIB
from tidelog.server.appends import wire_receipts
from tidelog.server.backend import Backend, Outcome, Reply
from tidelog.server.in_flight import InFlight
from tidelog.server.refusals import surprised

_logger: Final = logging.getLogger(__name__)

_INLINE_BYTES: Final = 64 * KIB
"""What is checked in the event loop: to go to a thread would cost more."""
_INLINE_KEYLESS_BYTES: Final = MIB
"""The same for a batch without keys, at which nothing is looked one by one."""


class AppendLane:
    """``answer`` and ``refuse`` are told what became of each append, ``on_room`` that more fit."""

    def __init__(
        self,
        answer: Callable[[InFlight, Reply], None],
        refuse: Callable[[InFlight, LogError], None],
        on_room: Callable[[], None],
    ) -> None:
        self._on_room = on_room
        self._answer = answer
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: asyncio.Task[None] | None = None
        """The append behind which the next one has to wait; None: none."""
        self.pending = 0
        self.bytes = 0
        """What has been received and not been queued."""

    def add(
        self,
        backend: Backend,
        flight: InFlight,
        message: AppendBatches,
        attachment: memoryview,
    ) -> None:
        self.pending += 1
        self.bytes += len(attachment)
        if self._last is None and is_quickly_checked(message, attachment):
            decode = partial(backend.check_append, message, attachment)
            self._post(backend, flight, len(attachment), decode)
            return
        task = self._loop.create_task(
            self._add_later(self._last, backend, flight, message, attachment)
        )
        self._last = task
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def cancel(self) -> None:
        """Drop what has not been queued: nobody waits for it any more."""
        for task in self._tasks:
            task.cancel()

    async def end(self) -> None:
        """Wait until nothing works here any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _add_later(
        self,
        before: asyncio.Task[None] | None,
        backend: Backend,
        flight: InFlight,
        message: AppendBatches,
        attachment: memoryview,
    ) -> None:
        decode = partial(backend.check_append, message, attachment)
        if not is_quickly_checked(message, attachment):
            try:
                append = await backend.readers.run(decode)
            except Exception as error:
                decode = partial(_raise, error)
            else:
                decode = partial(_same, append)
        if before is not None:
            await asyncio.wait([before])
        self._post(backend, flight, len(attachment), decode)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._last is task:
            self._last = None

    def _post(
        self, backend: Backend, flight: InFlight, size: int, decode: Callable[[], Append]
    ) -> None:
        self.bytes -= size
        if not flight.is_open:
            self._end_one()  # Nobody waits for it: better not begin.
            return
        try:
            append = decode()
            outcome = backend.post_append(append, flight.seconds)
        except Exception as error:
            self._end_one()
            self._fail(flight, error)
            return
        outcome.add_done_callback(partial(self._on_outcome, backend, append, flight, size))

    def _end_one(self) -> None:
        self.pending -= 1
        self._on_room()

    def _on_outcome(
        self, backend: Backend, append: Append, flight: InFlight, size: int, outcome: Outcome
    ) -> None:
        self._end_one()
        error = outcome.exception()
        if error is not None:
            self._fail(flight, error)
            return
        receipts = outcome.result()
        entries = sum([0 if receipt.duplicate else receipt.count for receipt in receipts])
        backend.counters.count_append(entries, size, self._loop.time() - flight.since)
        self._answer(flight, Reply.of(wire_receipts(receipts, backend.leader_hint(append))))

    def _fail(self, flight: InFlight, error: BaseException) -> None:
        if not isinstance(error, LogError):
            _logger.error("an append failed", exc_info=error)
            error = surprised(error)
        self._refuse(flight, error)


def is_quickly_checked(message: AppendBatches, attachment: memoryview) -> bool:
    """Whether an append is checked in less time than a change of threads takes."""
    if len(attachment) <= _INLINE_BYTES:
        return True
    is_one = len(message.streams) == 1
    return len(attachment) <= _INLINE_KEYLESS_BYTES and is_one and not may_have_keys(attachment)


def _same(append: Append) -> Append:
    return append


def _raise(error: Exception) -> Append:
    raise error
