"""Holds snapshots back while a replica here fills others up: what is live stays where it is.

A snapshot lets dead entries go, and a filling that has not come to them would begin anew.

Invariants:
  S1  snapshots are held back for so many seconds at most, and then let through for as long
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import LogClosed
from tidelog.runtime.storage_node.chores import Chores


class SnapshotHold:
    """Belongs to one event loop."""

    def __init__(self, maintenance: Maintenance, chores: Chores, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._maintenance = maintenance
        self._chores = chores
        self._seconds = seconds
        self._held: ExitStack | None = None
        self._since = 0.0
        self._not_before = 0.0
        self._is_moving = False

    @property
    def is_held(self) -> bool:
        """Whether no snapshot is taken."""
        return self._held is not None

    def look(self, *, is_filling: bool) -> None:
        """Take or release the hold, in a thread: a job of the worker may have to end first."""
        now = self._loop.time()
        if self._is_moving:
            return
        if self._held is None:
            if is_filling and now >= self._not_before:
                self._is_moving = True
                self._chores.run(self._take, self._taken)
        elif not is_filling or now - self._since > self._seconds:
            self._not_before = now + self._seconds if is_filling else 0.0
            self._is_moving = True
            self._chores.run(self._release, self._released)

    def release_now(self) -> None:
        """The node stops; blocks."""
        if self._held is not None:
            self._held.close()

    def _taken(self, held: ExitStack | None) -> None:
        self._is_moving, self._held, self._since = False, held, self._loop.time()

    def _released(self, _: None) -> None:
        self._is_moving, self._held = False, None

    # --- in a thread ---

    def _take(self) -> ExitStack | None:
        stack = ExitStack()
        try:
            stack.enter_context(self._maintenance.live_sets_held())
        except LogClosed:
            return None
        return stack

    def _release(self) -> None:
        if self._held is not None:
            self._held.close()
