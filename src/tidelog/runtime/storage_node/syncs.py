"""Makes writes durable, a group at a time: while one is synced, the next one queues up.

A small group on a quick disk is synced in the event loop: to wake a thread and to be woken by it
takes longer than the sync.  All others are synced in a thread.

Invariants:
  K1  one sync runs at a time; the next begins as soon as it is over if anything was begun by then
      that cannot wait, or that was asked for
  K2  what the disk had no room for stays queued and is tried again when ``retry`` is called
  K3  after any other failure nothing is tried again
  K4  the event loop writes to the WAL only while the thread has nothing to do
  K5  what was sent before a sync was asked for leaves before it begins, and so does what the
      metadata node of the same process makes of it
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Final

from tidelog.errors import DiskFull, LogError, StorageFailed
from tidelog.runtime.events import tell
from tidelog.runtime.storage_node.counters import Histogram
from tidelog.runtime.storage_node.ports import Disk

_logger: Final = logging.getLogger(__name__)

QUICK_SECONDS: Final = 0.002
"""If the last sync took longer, the event loop does not wait for the next one."""


class Syncs:
    """Belongs to one event loop, but for what runs in the thread."""

    def __init__(
        self,
        disk: Disk,
        *,
        wait_for_room: Callable[[], None],
        on_durable: Callable[[int], None],
        on_failed: Callable[[LogError], None],
    ) -> None:
        """``wait_for_room`` is called in the thread before each sync."""
        self._loop = asyncio.get_running_loop()
        self._disk = disk
        self._wait_for_room = wait_for_room
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_busy = False
        self._wanted = self._durable = 0
        """The last write that was asked for, and the last one that is durable."""
        self._rolls = 0
        """New WAL files that were asked for and are not there yet."""
        self._is_quick = True
        """Whether the last sync was."""
        self._has_failed = False
        self._is_stopping = False
        self.is_full = False
        """Whether the last sync found no room on the disk."""
        self.seconds = Histogram()
        """How long syncs took."""
        self.inline = 0
        """How many of them were in the event loop."""
        self._thread = threading.Thread(target=self._run, name="tidelog-disk", daemon=True)
        self._thread.start()

    def kick(self) -> None:
        """Sync what was begun, unless that is going on already (K1) or has to wait (K2).

        What can wait for company is left until something comes that cannot, or ``flush``.
        """
        is_wanted = self._disk.is_urgent or self._durable < self._wanted
        if is_wanted and not self.is_full:
            self._order()

    def flush(self) -> None:
        """Sync all that was begun by now, be it that it could wait."""
        self._wanted = self._disk.last_begun
        self.kick()

    def retry(self) -> None:
        """Try again after the disk was full."""
        if self.is_full:
            self._order()

    async def roll(self) -> None:
        """Begin a new WAL file, so that what was begun by now can go into segments (K4)."""
        done: Future[int] = Future()
        done.set_running_or_notify_cancel()  # Who gives up waiting does not stop the thread.
        done.add_done_callback(lambda ended: self._loop.call_soon_threadsafe(self._rolled, ended))
        self._rolls += 1
        self._orders.put(partial(self._roll, done))
        await asyncio.wrap_future(done)

    def _rolled(self, done: Future[int]) -> None:
        self._rolls -= 1
        if done.exception() is None and not self._is_stopping:
            self._tell(done.result())

    def _tell(self, number: int) -> None:
        """Go on with what was begun meanwhile, and tell of what is durable."""
        is_news, self._durable = number > self._durable, max(number, self._durable)
        self.kick()
        if is_news:
            self._on_durable(number)

    async def stop(self) -> None:
        """Sync what was begun, unless the disk failed or is full; nobody is told of it any more."""
        self._is_stopping = True
        if not (self._has_failed or self.is_full):
            self._orders.put(self._sync)
        self._orders.put(None)
        await asyncio.to_thread(self._thread.join)

    def _order(self) -> None:
        if not (self._is_busy or self._has_failed) and self._disk.has_begun:
            self._is_busy = True
            if self._is_quick and not self._rolls and not self.is_full:
                # One turn of the loop later, in which frames leave that are made in the next (K5).
                self._loop.call_soon(self._loop.call_soon, self._sync_here)
            else:
                self._orders.put(self._sync)

    def _sync_here(self) -> None:
        """Sync in the event loop, if that is surely quick; else in the thread."""
        if self._is_stopping:
            return
        begin = perf_counter()
        try:
            number = None if self._rolls else self._disk.sync_quickly()
        except BaseException as error:
            self._failed(error)
            return
        if number is None:
            self._orders.put(self._sync)
        else:
            self.inline += 1
            self._done(number, perf_counter() - begin)

    def _done(self, number: int, seconds: float) -> None:
        self._is_busy = False
        if self._is_stopping:
            return
        if self.is_full:
            self.is_full = False
            tell(_logger, "disk has room again")
        self._is_quick = seconds < QUICK_SECONDS
        self.seconds.observe(seconds)
        self._tell(number)

    def _failed(self, error: BaseException) -> None:
        self._is_busy = False
        if self._is_stopping:
            return
        if isinstance(error, DiskFull):
            if not self.is_full:
                self.is_full = True
                tell(_logger, "disk full", logging.WARNING, why=str(error))
            return
        self._has_failed = True
        told = error if isinstance(error, LogError) else StorageFailed(f"the disk: {error!r}")
        self._on_failed(told)

    # --- in the thread ---

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            order()

    def _sync(self) -> None:
        try:
            self._wait_for_room()
            begin = perf_counter()
            number = self._disk.sync()
            seconds = perf_counter() - begin
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._failed, error)
        else:
            self._loop.call_soon_threadsafe(self._done, number, seconds)

    def _roll(self, done: Future[int]) -> None:
        """Sync, as far as there is room, and go on in the next file."""
        number = 0
        try:
            self._wait_for_room()
            with suppress(DiskFull):  # K2
                number = self._disk.sync()
            self._disk.roll()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(number)
