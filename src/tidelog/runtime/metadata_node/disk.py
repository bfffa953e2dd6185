"""The writes of a metadata node on their way to its disk, in groups.

A small group on a quick disk is synced in the event loop: to wake a thread and to be woken by it
takes longer than the sync.  All others are synced in a thread.

Invariants:
  Q1  writes reach the store in the order of their sequence numbers
  Q2  while one group waits for its sync, what comes in waits for the next group
  Q3  a full disk loses nothing: what did not fit is tried again
  Q4  after any other error nothing is written any more
  Q5  the event loop uses the store only while the thread has nothing to do, or prepares a file
  Q6  what was sent before a write was added leaves before the write begins
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final

from tidelog.core.raft.entries import (
    NO_INDEX,
    NO_TERM,
    Membership,
    Snapshot,
    SnapshotHead,
    Stored,
)
from tidelog.core.raft.output import Write
from tidelog.errors import Busy, DiskFull, LogClosed, LogError
from tidelog.runtime.events import tell
from tidelog.storage.raft_store import RaftStore
from tidelog.storage.vfs import Vfs
from tidelog.types import NodeId

_logger: Final = logging.getLogger(__name__)

FULL_PAUSE: Final = 0.5
"""Seconds after which a full disk is tried again."""
QUICK_SECONDS: Final = 0.002
"""If the last group took longer, the event loop does not wait for the next one."""
PIECE_PAUSE: Final = 0.05
"""Seconds between two pieces of the next log file, which nobody waits for."""


class MetadataDisk:
    """One store, and a thread that uses it.  All calls belong into the event loop."""

    def __init__(
        self,
        vfs: Vfs,
        directory: str,
        *,
        node: NodeId,
        cluster_id: bytes,
        on_written: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._vfs = vfs
        self._directory = directory
        self._node = node
        self._cluster_id = cluster_id
        self._on_written = on_written
        self._on_failure = on_failure
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tidelog-raft")
        self._store: RaftStore | None = None
        self._queue: deque[Write] = deque()
        self._group: asyncio.Future[tuple[int, int]] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._is_due = False
        """Whether a group begins in this turn of the loop, or the next."""
        self._is_quick = True
        """Whether the last group was."""
        self._is_ended = False
        self.groups = 0
        """Syncs since the start: an idle node makes none."""
        self.seconds = 0.0
        """What all of them took, writing included."""
        self.is_full = False

    async def open(self, first_members: tuple[NodeId, ...] | None) -> Stored:
        """Read what is there; see ``RaftStore.open`` for ``first_members``."""
        first = None if first_members is None else _beginning(first_members)
        self._store, stored = await self._loop.run_in_executor(
            self._pool,
            lambda: RaftStore.open(
                self._vfs, self._directory, node=self._node, group=self._cluster_id, first=first
            ),
        )
        return stored

    def add(self, write: Write) -> None:
        """Take a write; ``on_written`` is called when it is durable."""
        self._queue.append(write)
        self._begin_group()

    async def close(self) -> None:
        """Wait for the group that is under way, and close the store."""
        self._is_ended = True
        if self._retry is not None:
            self._retry.cancel()
        if self._group is not None:
            await asyncio.wait([self._group])
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait([self._preparing])
        store, self._store = self._store, None
        if store is not None:
            try:
                await self._loop.run_in_executor(self._pool, store.close)
            except LogError as error:  # All is durable; only the mark of a good end lacks.
                tell(_logger, "not closed well", logging.WARNING, error=str(error))
        await asyncio.to_thread(self._pool.shutdown)

    @property
    def _open_store(self) -> RaftStore:
        if self._store is None:
            raise LogClosed(f"the Raft log in {self._directory} is not open")
        return self._store

    def _begin_group(self) -> None:
        """Write all that waits, unless a group is under way (Q2)."""
        if self._queue and not self._is_due and self._is_free:
            self._is_due = True
            self._loop.call_soon(self._write_group)  # Q6

    @property
    def _is_free(self) -> bool:
        """Whether the thread has nothing to do, and nothing keeps it from more (Q5)."""
        return self._group is None and self._retry is None and not self._is_ended

    def _write_group(self) -> None:
        self._is_due = False
        if not self._is_free:
            return
        group = tuple(self._queue)
        if self._is_quick and self._open_store.is_quick(group):
            self._write_here(group)
        else:
            self._group = self._loop.run_in_executor(self._pool, self._carry_out, group)
            self._group.add_done_callback(self._end_group)

    def _write_here(self, group: tuple[Write, ...]) -> None:
        try:
            done, last = self._carry_out(group)
        except BaseException as error:
            self._fail(error)
            return
        self._end(done, last)

    def _carry_out(self, group: tuple[Write, ...]) -> tuple[int, int]:
        """Write and sync; return how many fitted, and the number of the last."""
        store = self._open_store
        done, last, begin = 0, 0, perf_counter()
        try:
            for write in group:
                store.write(write)
                done, last = done + 1, write.sequence
        except (DiskFull, Busy) as error:
            _logger.debug("a write has to wait: %s", error)
        if done:
            store.sync()
        seconds = perf_counter() - begin
        self.seconds += seconds
        self._is_quick = seconds < QUICK_SECONDS
        return done, last

    def _end_group(self, group: asyncio.Future[tuple[int, int]]) -> None:
        self._group = None
        if group.cancelled():
            return
        error = group.exception()
        if error is not None:
            self._fail(error)
        else:
            self._end(*group.result())

    def _fail(self, error: BaseException) -> None:
        """Q4."""
        self._is_ended = True
        self._on_failure(error)

    def _end(self, done: int, last: int) -> None:
        for _ in range(done):
            self._queue.popleft()
        self.groups += done > 0
        self._note_room(is_full=not done)
        if self.is_full and not self._is_ended:
            self._retry = self._loop.call_later(FULL_PAUSE, self._try_again)
        self._begin_group()
        if self._preparing is None and not self._is_ended and self._open_store.needs_preparing():
            self._preparing = self._loop.create_task(self._prepare())
        if done:
            self._on_written(last)

    async def _prepare(self) -> None:
        """Have the next log file ready before this one is full."""
        store = self._open_store
        try:
            while not self._is_ended and store.needs_preparing():
                await self._loop.run_in_executor(self._pool, store.prepare)
                await asyncio.sleep(PIECE_PAUSE)
        except Exception as error:
            if not self._is_ended:
                self._fail(error)
        finally:
            self._preparing = None

    def _try_again(self) -> None:
        self._retry = None
        self._begin_group()

    def _note_room(self, *, is_full: bool) -> None:
        if is_full != self.is_full:
            self.is_full = is_full
            event, level = ("disk full", logging.WARNING) if is_full else ("disk ok", logging.INFO)
            tell(_logger, event, level, directory=self._directory)


def _beginning(members: tuple[NodeId, ...]) -> Snapshot:
    """What a group begins with; without members, what a node begins with that is to join."""
    return Snapshot(SnapshotHead(NO_INDEX, NO_TERM, Membership(tuple(sorted(members)))), b"")
