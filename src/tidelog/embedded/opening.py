"""Opens a log in another thread, for somebody who may not wait to the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.embedded.log import Log


@dataclass(slots=True)
class Opening:
    """A thread cannot be called off: a log that nobody wants any more is closed once it is open."""

    call: Callable[[], Log]
    _log: Log | None = None
    _is_given_up: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> Log:
        log = self.call()
        with self._lock:
            self._log = log
            is_given_up = self._is_given_up
        if is_given_up:
            log.close()
        return log

    def give_up(self) -> None:
        """Nobody will get the log."""
        with self._lock:
            self._is_given_up = True
            log = self._log
        if log is not None:
            log.close()
