"""Keeps the files of a node small: the worker thread, and what replicas must know of its work.

Invariants:
  W1  what stopped the worker stops the node; a full disk or a damaged file does not
  W2  while segments are written more slowly than entries come, syncs wait: so acknowledgements do,
      and in the end whoever appends, here and on the leaders that this node follows
"""

from __future__ import annotations

from typing import Final

from tidelog.embedded.maintenance import Maintenance, Worker
from tidelog.errors import CorruptData, DiskFull, LogError, StorageFailed
from tidelog.runtime.storage_node.options import StorageNodeOptions
from tidelog.storage.node_store import NodeStore
from tidelog.storage.stream_store import StreamStore

ROOM_SECONDS: Final = 1.0
"""How long a sync waits for the worker before it looks again."""


class Upkeep:
    """The worker of one node; its thread runs from the beginning."""

    def __init__(self, node: NodeStore, options: StorageNodeOptions) -> None:
        self.maintenance = Maintenance(node, options.compaction, options.snapshot_bytes)
        self._node = node
        self._worker = Worker(self.maintenance, options.upkeep_seconds)
        self._seen = self._work_done()
        self._is_stopping = False

    @property
    def failure(self) -> LogError | None:
        """What stopped the worker for good (W1)."""
        error = self._worker.error
        if error is None or isinstance(error, DiskFull | CorruptData):
            return None
        return error if isinstance(error, LogError) else StorageFailed(f"the worker: {error!r}")

    def synced(self) -> None:
        """A group is durable: there may be something to flush."""
        if self._node.backlog:
            self._worker.wake()

    def trimmed(self, store: StreamStore) -> None:
        """Segments of a stream may have nothing left that is kept."""
        self._worker.drop_trimmed(store)

    def wait_for_room(self) -> None:
        """In the disk thread: wait while too much waits for the segment writer (W2)."""
        while not self._is_stopping and self._node.backlog_is_full and self._node.can_flush():
            error = self._worker.error
            if error is not None:
                self._worker.wake()  # There may be room by now.
                raise error
            self._worker.wait_for_room(ROOM_SECONDS)

    def has_worked(self) -> bool:
        """Whether files were swapped since this was last asked."""
        seen, self._seen = self._seen, self._work_done()
        return seen != self._seen

    def stop_waiting(self) -> None:
        """Let a sync that waits for room go on: nothing comes after it."""
        self._is_stopping = True

    def stop(self) -> None:
        """Wait for the job that runs; blocks."""
        self._worker.stop()
        self.maintenance.close()

    def _work_done(self) -> tuple[int, int, int, int]:
        done = self.maintenance
        return done.flushes, done.snapshots, done.counters.minor_runs, done.counters.major_runs
