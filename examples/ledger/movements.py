"""What happens in the bank: the same movements for the same seed, on every machine.  No state.

Every account belongs to one branch.  Its movements have sequence numbers 1, 2, 3, ... and each says
which balance it leaves.  Some things go wrong on purpose:

  overdrawn   a few movements take a balance below zero
  lost        a few movements never reach the log
  late        some reach it minutes after newer ones
  repeated    some reach it twice, as two entries
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

BEGIN_MS: Final = 1_767_603_600_000
"""2026-01-05 09:00:00 UTC, when the branches open."""
MINUTE_MS: Final = 60_000
OPEN_MINUTES: Final = 60

LATE_SHARE: Final = 0.05
LATE_MS_MAX: Final = 5 * MINUTE_MS
REPEATED_SHARE: Final = 0.02
REPEATED_MS_MAX: Final = 2 * MINUTE_MS
ROUNDS: Final = OPEN_MINUTES + (LATE_MS_MAX + REPEATED_MS_MAX) // MINUTE_MS
"""Minutes until the last movement has reached the log."""

FAULTS_PER_BRANCH: Final = 3
CLOSED_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Plan:
    """How much happens."""

    events: int = 1_000_000
    accounts: int = 2_000
    branches: int = 4
    seed: int = 1

    def __post_init__(self) -> None:
        if self.events < 100 * self.branches or self.accounts < self.branches:
            raise ValueError("use at least 100 events and one account for each branch")

    def events_of(self, branch: int) -> int:
        return self.events // self.branches + (branch < self.events % self.branches)

    def accounts_of(self, branch: int) -> int:
        return self.accounts // self.branches + (branch < self.accounts % self.branches)


class Movement(NamedTuple):
    """One line of an account."""

    account: str
    sequence: int
    at_ms: int
    amount: int
    """In cents; what is paid out is negative."""
    balance: int
    """What is left after it."""
    closes: bool = False
    """The last one: the balance is paid out and the account is gone."""


class Delivery(NamedTuple):
    """A movement on its way to the log."""

    due_ms: int
    """When it gets there; for most, the time of the movement."""
    movement: Movement


@dataclass(slots=True)
class _Account:
    name: str
    sequence: int = 0
    balance: int = 0

    def move(self, at_ms: int, amount: int, *, closes: bool = False) -> Movement:
        self.sequence += 1
        self.balance += amount
        return Movement(self.name, self.sequence, at_ms, amount, self.balance, closes)


def movements(plan: Plan, branch: int) -> Iterator[Movement]:
    """All that happens at one branch, in the order of time."""
    random = Random(f"movements {plan.seed} {branch}")  # noqa: S311 - no secrets here.
    share = random.random
    count = plan.events_of(branch)
    accounts = [_Account(f"{branch}-{number:05d}") for number in range(plan.accounts_of(branch))]
    overdrawn = frozenset(random.sample(range(count), FAULTS_PER_BRANCH))
    closing = frozenset(random.sample(range(count), int(len(accounts) * CLOSED_SHARE)))
    for number in range(count):
        at_ms = BEGIN_MS + number * OPEN_MINUTES * MINUTE_MS // count
        place = int(share() * len(accounts))
        account = accounts[place]
        if number in closing and len(accounts) > 1:
            accounts[place] = accounts[-1]
            accounts.pop()
            yield account.move(at_ms, -account.balance, closes=True)
        elif number in overdrawn:
            yield account.move(at_ms, -max(account.balance, 0) - 1 - int(share() * 10_000))
        elif account.balance < 100 or share() < 0.5:
            yield account.move(at_ms, 1 + int(share() * 50_000))
        else:
            yield account.move(at_ms, -1 - int(share() * account.balance))


def deliveries(plan: Plan, branch: int) -> Iterator[Delivery]:
    """The movements of one branch as they reach the log: some late, some twice, some never."""
    random = Random(f"deliveries {plan.seed} {branch}")  # noqa: S311
    share = random.random
    lost = frozenset(random.sample(range(plan.events_of(branch)), FAULTS_PER_BRANCH))
    for number, movement in enumerate(movements(plan, branch)):
        due_ms = movement.at_ms
        if share() < LATE_SHARE:
            due_ms += int(share() * LATE_MS_MAX)
        if number not in lost:
            yield Delivery(due_ms, movement)
            if share() < REPEATED_SHARE:
                yield Delivery(due_ms + int(share() * REPEATED_MS_MAX), movement)


def rounds(plan: Plan, branch: int) -> Iterator[list[Movement]]:
    """What reaches the log in each of ``ROUNDS`` minutes, in this order."""
    minutes: list[list[Delivery]] = [[] for _ in range(ROUNDS)]
    done = 0
    for delivery in deliveries(plan, branch):
        while done < _minute_of(delivery.movement.at_ms):
            yield _in_order(minutes[done])  # Nothing gets there before it has happened.
            done += 1
        minutes[_minute_of(delivery.due_ms)].append(delivery)
    for minute in minutes[done:]:
        yield _in_order(minute)


def _minute_of(at_ms: int) -> int:
    return (at_ms - BEGIN_MS) // MINUTE_MS


def _in_order(minute: list[Delivery]) -> list[Movement]:
    # Sorting is stable, so what is due at the same time keeps the order in which it happened.
    return [delivery.movement for delivery in sorted(minute, key=lambda found: found.due_ms)]
