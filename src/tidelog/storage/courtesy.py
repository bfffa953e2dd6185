"""Background work steps aside for appends.

An append that comes back from its fsync needs the interpreter's lock.  A thread that only computes
gives it up every few milliseconds, which is many appends' time; so long loops over batches let
others go first after every piece of work.
"""

from __future__ import annotations

import time
from typing import Final

from tidelog.limits import KIB

_PIECE_BYTES: Final = 64 * KIB


class Courtesy:
    """Counts the bytes that a loop has worked on, and gives way after each piece."""

    __slots__ = ("_worked",)

    def __init__(self) -> None:
        self._worked = 0

    def worked(self, size: int) -> None:
        self._worked += size
        if self._worked >= _PIECE_BYTES:
            self._worked = 0
            time.sleep(0)  # Sleeps no time: it lets go of the interpreter's lock.
