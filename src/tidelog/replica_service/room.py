"""Room in memory for what masters send, shared by all connections.

M1  no more than ``bytes_max`` is held, unless by one alone that is larger
M2  who has to wait is served in the order of coming, so that large frames get their turn
M3  a claim is given back exactly once, whether it was granted or not
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.invariants import check


class Claim:
    """A part of the room, held or waited for."""

    __slots__ = ("_wake", "is_granted", "is_over", "size")

    def __init__(self, size: int, wake: Callable[[], None]) -> None:
        self.size = size
        self.is_granted = False
        self.is_over = False
        self._wake = wake

    def wake(self) -> None:
        self._wake()


class Room:
    """Belongs to one event loop."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[Claim] = deque()
        self.held = 0
        """Bytes that were granted and not given back."""

    def claim(self, size: int, wake: Callable[[], None]) -> Claim:
        """Ask for room; if it is not granted at once, ``wake`` is called when it is."""
        claim = Claim(size, wake)
        if not self._waiting and self._fits(claim):
            self._grant(claim)
        else:
            self._waiting.append(claim)
        return claim

    def release(self, claim: Claim) -> None:
        """Give room back, or wait for it no more (M3)."""
        check(not claim.is_over, "M3: room was given back twice")
        claim.is_over = True
        if claim.is_granted:
            self.held -= claim.size
        else:
            self._waiting.remove(claim)
        while self._waiting and self._fits(self._waiting[0]):
            first = self._waiting.popleft()
            self._grant(first)
            first.wake()

    def _fits(self, claim: Claim) -> bool:
        return not self.held or self.held + claim.size <= self._bytes_max

    def _grant(self, claim: Claim) -> None:
        claim.is_granted = True
        self.held += claim.size
