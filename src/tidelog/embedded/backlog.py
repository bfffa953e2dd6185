"""Holds commits back when segments are written more slowly than entries come.

B1  What stopped the worker stops the log; a full disk only once the backlog is full.
B2  WAL files whose entries are not ordered yet hold nobody back: only an order helps them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.embedded.maintenance import Maintenance, Worker
from tidelog.errors import Busy, DiskFull, LogError, StorageFailed


@dataclass(slots=True)
class Backlog:
    """Of the rolled WAL files of one log; ``worker`` is None if appends do its work."""

    maintenance: Maintenance
    worker: Worker | None
    timeout_seconds: float

    def before_frame(self, rolled: bool) -> None:
        """Set the flush of a rolled WAL file going; hold the commit back if too many wait."""
        if self.worker is None:
            self._flush_inline()
            return
        if rolled:
            self.worker.wake()
        if self._is_in_the_way():
            if not self.worker.wait_for_room(self.timeout_seconds):
                raise Busy("segments are written more slowly than appends come: try again later")
            self.check_worker()

    def after_order(self) -> None:
        """Entries were ordered, or dropped: their WAL files may go now."""
        if self.worker is not None and self.maintenance.node.backlog:
            self.worker.wake()

    def check_worker(self) -> None:
        """Raise what stopped the worker (B1)."""
        error = self.worker.error if self.worker else None
        if error is None or (isinstance(error, LogError) and not self._is_in_the_way()):
            return
        if isinstance(error, LogError):
            if self.worker is not None:
                self.worker.wake()  # There may be room by now.
            raise error
        raise StorageFailed(f"the log has stopped: {error}") from error

    def stop(self) -> None:
        if self.worker is not None:
            self.worker.stop()
        self.maintenance.close()

    def _is_in_the_way(self) -> bool:
        node = self.maintenance.node
        return node.backlog_is_full and node.can_flush()

    def _flush_inline(self) -> None:
        try:
            self.maintenance.flush_rolled()
        except DiskFull:
            if self._is_in_the_way():
                raise
