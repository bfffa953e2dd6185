"""What happened in a simulation: the digest of all of it, and the last events to be read.

Invariants:
  J1  equal digests mean equal histories: every noted event is in it, the forgotten ones too
  J2  memory is bounded, however long the simulation runs; text is made only when it is asked for
"""

from __future__ import annotations

from array import array
from collections import deque
from enum import IntEnum
from hashlib import blake2b
from typing import Final

EVENTS_KEPT: Final = 400
NUMBERS_BUFFERED: Final = 8_192
DETAIL_CHARS_MAX: Final = 160


class Happened(IntEnum):
    """Kinds of events."""

    START = 1
    CRASH = 2
    KILL = 3
    PAUSE = 4
    RESUME = 5
    WIPE = 6
    FAULT = 7
    HEAL = 8
    DELIVER = 9
    LOSE = 10
    WRITE = 12
    SYNC = 13
    LEADER = 14
    APPLY = 15
    INSTALL = 16
    PROPOSE = 17
    ACKNOWLEDGE = 18
    READ = 19
    SERVE = 20
    CHANGE = 21
    CUT = 22
    REPORT = 23
    COMMIT = 24
    TERM = 25


class Journal:
    """Takes events, four numbers each; ``detail`` is kept for reading and is not hashed."""

    __slots__ = ("_hash", "_numbers", "_recent", "now")

    def __init__(self) -> None:
        self.now = 0
        """Virtual time, in microseconds; the world moves it."""
        self._hash = blake2b(digest_size=16)
        self._numbers = array("q")
        self._recent: deque[tuple[int, Happened, int, int, int, object]] = deque(maxlen=EVENTS_KEPT)

    def note(
        self, what: Happened, node: int, a: int = 0, b: int = 0, detail: object = None
    ) -> None:
        """Take an event of a node; what ``a`` and ``b`` mean depends on its kind."""
        self._numbers.extend((self.now, what, node, a, b))
        self._recent.append((self.now, what, node, a, b, detail))
        if len(self._numbers) > NUMBERS_BUFFERED:
            self._hash_buffered()

    def absorb(self, data: bytes) -> None:
        """Take bytes that must be the same in a repetition."""
        self._hash_buffered()
        self._hash.update(data)

    def digest(self) -> str:
        """Return the digest of everything so far."""
        self._hash_buffered()
        return self._hash.hexdigest()

    def last(self, count: int) -> list[str]:
        """Return the last events as text, oldest first."""
        return [_line(*event) for event in list(self._recent)[-count:]]

    def _hash_buffered(self) -> None:
        if self._numbers:
            self._hash.update(self._numbers.tobytes())
            del self._numbers[:]


def _line(time: int, what: Happened, node: int, a: int, b: int, detail: object) -> str:
    text = "" if detail is None else str(detail)
    if len(text) > DETAIL_CHARS_MAX:
        text = text[: DETAIL_CHARS_MAX - 1] + "…"
    where = f"node {node}" if node else "-"
    return f"{time / 1000:>12,.3f} ms  {where:<8} {what.name.lower():<11} {a} {b}  {text}".rstrip()
