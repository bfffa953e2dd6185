"""Takes chance and time out of the log, so that the same calls leave the same bytes.

Crash outcomes can then be compared between runs, and equal ones are checked once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

NOW_NS = 1_700_000_000_000_000_000


class Chance:
    """Numbers that look random, never repeat between phases, and are the same in each run."""

    def __init__(self) -> None:
        self._phase = ""
        self._drawn = 0

    def begin(self, phase: str) -> None:
        """Start over with the numbers of ``phase``; a disk must meet each phase once at most."""
        self._phase, self._drawn = phase, 0

    def token_bytes(self, length: int) -> bytes:
        self._drawn += 1
        return hashlib.blake2b(f"{self._phase} {self._drawn}".encode(), digest_size=length).digest()

    def randbits(self, bits: int) -> int:
        return int.from_bytes(self.token_bytes(bits // 8), "little")


CHANCE = Chance()


@contextmanager
def repeatable() -> Iterator[None]:
    """Within this, logs draw from ``CHANCE`` and the clock stands still."""
    with (
        patch("tidelog.storage.wal.secrets", CHANCE),
        patch("tidelog.storage.log_creation.secrets", CHANCE),
        patch("tidelog.interface.appends.time_ns", lambda: NOW_NS),
    ):
        yield
