"""How much an appender of a thread has under way: bounded bytes.

F1  no more than ``bytes_max`` is under way, unless one entry alone has more
F2  the first failure is kept until a flush tells it
F3  once it is closed nothing is under way, and nothing comes in
F4  nobody waits who would hold up what is waited for
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidelog.errors import BadOption, LogClosed


class Flow:
    """Who brings too much is blocked.

    Nothing waits for ever here, since every append has a deadline of its own.
    """

    def __init__(self, bytes_max: int, check_waiter: Callable[[], None] = lambda: None) -> None:
        """``check_waiter`` raises if the calling thread would wait in vain (F4)."""
        self._bytes_max = checked_bytes(bytes_max)
        self._check_waiter = check_waiter
        self._bytes = 0
        self._blocked = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._failure: BaseException | None = None
        self._closed = False

    def enter(self, size: int) -> None:
        """Wait for room, and take it."""
        with self._lock:
            if self._bytes + size > self._bytes_max:
                self._wait_until(max(self._bytes_max - size, 0))
            if self._closed:
                raise appender_closed()
            self._bytes += size

    def leave(self, size: int, error: BaseException | None) -> None:
        """An append is through, or failed."""
        with self._lock:
            self._bytes -= size
            self._failure = self._failure or error
            if self._blocked:
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until nothing is under way; raises the first failure since the last time."""
        with self._lock:
            self._wait_until(0)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Wait until nothing is under way, whatever became of it, and let nothing in (F3)."""
        with self._lock:
            self._wait_until(0)
            self._closed = True

    def _wait_until(self, bytes_left: int) -> None:
        if self._bytes <= bytes_left:
            return
        self._check_waiter()
        self._blocked += 1
        try:
            self._changed.wait_for(lambda: self._bytes <= bytes_left)
        finally:
            self._blocked -= 1


def checked_bytes(bytes_max: int) -> int:
    """A bound that lets something through."""
    if bytes_max < 1:
        raise BadOption(f"bytes_max is {bytes_max}, but must be positive")
    return bytes_max


def appender_closed() -> LogClosed:
    return LogClosed("the appender's context was left: make another one")
