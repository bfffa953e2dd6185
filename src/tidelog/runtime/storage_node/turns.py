"""When a turn is taken: at the end of each iteration of the event loop in which anything came.

Invariants:
  U1  all that comes until a turn is taken is handed in, in its order, in that one turn
  U2  no timer is waited for
  U3  after a failure, or once it was stopped, no turn is taken any more
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from tidelog.invariants import InvariantViolation

Word: TypeAlias = Callable[[], None]


class Turns:
    """Belongs to one event loop."""

    def __init__(self, end: Callable[[], None], on_failed: Callable[[BaseException], None]) -> None:
        """``end`` is called in each turn after all words; what either raises ends it all."""
        self._loop = asyncio.get_running_loop()
        self._end = end
        self._on_failed = on_failed
        self._words: list[Word] = []
        self._is_due = False
        self._is_over = False

    def put(self, word: Word) -> None:
        """Call ``word`` in the next turn (U1)."""
        if not self._is_over:
            self._words.append(word)
            self.wake()

    def wake(self) -> None:
        """Have a turn taken (U2)."""
        if not (self._is_due or self._is_over):
            self._is_due = True
            self._loop.call_soon(self._take_turn)

    def stop(self) -> None:
        """Take no turn any more (U3)."""
        self._is_over = True
        self._words.clear()

    def _take_turn(self) -> None:
        self._is_due = False
        if self._is_over:
            return
        words, self._words = self._words, []
        try:
            for word in words:
                word()
            self._end()
        except (Exception, InvariantViolation) as error:
            self.stop()
            self._on_failed(error)
