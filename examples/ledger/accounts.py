"""What the check knows about one account, and what it concludes.  Nothing here knows Spark.

A1  all movements below ``next`` are settled, and ``balance`` is what they left
A2  what waits has a number at or above ``next``, and each number waits once
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Waiting(NamedTuple):
    """A movement that came before one with a lower number."""

    sequence: int
    at_ms: int
    amount: int
    balance: int


class Finding(NamedTuple):
    """Something is wrong with an account."""

    kind: str
    """``overdrawn``: ``detail`` is the balance; ``gap``: as many movements are missing."""
    sequence: int
    """Of the movement that overdraws, or of the first one that is missing."""
    detail: int


@dataclass(slots=True)
class Account:
    """What is remembered about an account: all its movements below ``next`` are settled."""

    next: int = 1
    balance: int = 0
    waiting: dict[int, Waiting] = field(default_factory=dict)

    def take(self, movement: Waiting) -> None:
        """What is settled came twice; else it waits, if only for a moment."""
        if movement.sequence >= self.next:
            self.waiting[movement.sequence] = movement

    def settle(self) -> Iterator[Finding]:
        """Go on as far as no number is missing."""
        while self.next in self.waiting:
            movement = self.waiting.pop(self.next)
            self.balance += movement.amount
            self.next += 1
            if self.balance < 0 and movement.amount < 0:
                yield Finding("overdrawn", movement.sequence, self.balance)

    def give_up(self, watermark_ms: int) -> Iterator[Finding]:
        """Nothing up to the watermark comes any more: what is missing by then is lost."""
        while self.waiting and (first := self.first_waiting).at_ms <= watermark_ms:
            yield Finding("gap", self.next, first.sequence - self.next)
            self.next = first.sequence
            self.balance = first.balance - first.amount
            yield from self.settle()

    @property
    def first_waiting(self) -> Waiting:
        return self.waiting[min(self.waiting)]
