"""Who reads from this process, and how far: what readers told last.

Kept in memory alone: a reader's own checkpoint counts, and this is for those who look.

Invariants:
  U1  at most ``READERS_MAX`` readers are known; who was heard of longest ago makes room
  U2  who was not heard of for ``SILENT_SECONDS_MAX`` is not told of
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from tidelog.interface.readers import ReaderFacts, check_reader_name
from tidelog.limits import READERS_MAX

SILENT_SECONDS_MAX: Final = 600.0
"""Longer than most micro-batches take: a reader says nothing while it works on one."""


class Audience:
    """All calls are thread-safe."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: dict[tuple[str, str], tuple[int, float]] = {}
        """Topic and name → GLSN and moment; who was heard of last comes last."""

    def note(self, topic: str, name: str, glsn: int) -> None:
        """A reader goes on at a GLSN; one without a name stays unknown.  BadOption: no name."""
        if not name:
            return
        check_reader_name(name)
        with self._lock:
            self._heard.pop((topic, name), None)
            self._heard[topic, name] = glsn, self._clock()
            self._make_room()

    def _make_room(self) -> None:
        """U1"""
        while len(self._heard) > READERS_MAX:
            del self._heard[next(iter(self._heard))]

    def tell(self) -> tuple[ReaderFacts, ...]:
        """All that were heard of lately, without their lag."""
        now = self._clock()
        with self._lock:
            heard = list(self._heard.items())
        return tuple(
            [
                ReaderFacts(topic, name, glsn, round(now - moment, 3))
                for (topic, name), (glsn, moment) in heard
                if now - moment <= SILENT_SECONDS_MAX
            ]
        )
