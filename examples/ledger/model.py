"""The same results by plain Python over all movements at once: what the pipeline has to equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from examples.ledger.accounts import Finding
from examples.ledger.movements import MINUTE_MS, Movement, Plan, deliveries


@dataclass(slots=True)
class Minute:
    """What was paid in one minute."""

    movements: int = 0
    paid_in: int = 0
    paid_out: int = 0

    def take(self, amount: int) -> None:
        self.movements += 1
        self.paid_in += max(amount, 0)
        self.paid_out += min(amount, 0)


@dataclass(slots=True)
class Model:
    """All that reached the log, each movement once, by account and sequence."""

    movements: list[Movement]
    entries: int
    """How many entries the log has, counting those that came twice."""
    balances: dict[str, int] = field(init=False)
    """Account → balance after its last movement, without those that are closed."""

    def __post_init__(self) -> None:
        newest = {movement.account: movement for movement in self.movements}
        self.balances = {name: last.balance for name, last in newest.items() if not last.closes}

    @classmethod
    def of(cls, plan: Plan) -> Model:
        found: Counter[Movement] = Counter()
        for branch in range(plan.branches):
            found.update(delivery.movement for delivery in deliveries(plan, branch))
        return cls(sorted(found), found.total())

    def minutes(self, watermark_ms: int) -> dict[int, Minute]:
        """Begin of each minute that is over by then → what was paid."""
        found: dict[int, Minute] = {}
        for movement in self.movements:
            begin = movement.at_ms // MINUTE_MS * MINUTE_MS
            if begin + MINUTE_MS <= watermark_ms and not movement.closes:
                found.setdefault(begin, Minute()).take(movement.amount)
        return found

    def findings(self, watermark_ms: int) -> set[tuple[str, Finding]]:
        """What is wrong, as far as it can be known by then."""
        by_account = groupby(self.movements, lambda movement: movement.account)
        return {
            (account, finding)
            for account, found in by_account
            for finding in _wrong_with(found, watermark_ms)
        }


def _wrong_with(account: Iterator[Movement], watermark_ms: int) -> Iterator[Finding]:
    following = 1
    for movement in account:
        missing = movement.sequence - following
        if missing and movement.at_ms > watermark_ms:
            return  # What is missing may still come.
        if missing:
            yield Finding("gap", following, missing)
        if movement.balance < 0 and movement.amount < 0:
            yield Finding("overdrawn", movement.sequence, movement.balance)
        following = movement.sequence + 1
