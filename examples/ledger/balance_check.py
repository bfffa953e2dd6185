"""A check with memory: no balance below zero, no movement missing.

Spark calls it for each account with what is new, and keeps what it remembers in RocksDB; both go
with the position in the log, so nothing is checked twice or left out, whatever is killed when.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from examples.ledger import accounts
from examples.ledger.accounts import Account, Finding, Waiting

# Spark's workers get these modules by content: they need not find the examples on their path.
_send_along: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
_send_along(sys.modules[__name__])
_send_along(accounts)

FINDING_COLUMNS: Final = "account STRING, kind STRING, sequence BIGINT, detail BIGINT"
_STATE_COLUMNS: Final = (
    "next BIGINT, balance BIGINT, "
    "waiting ARRAY<STRUCT<sequence: BIGINT, at_ms: BIGINT, amount: BIGINT, balance: BIGINT>>"
)


class BalanceCheck(StatefulProcessor):
    """Puts each account's movements into the order of their numbers, and looks at them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("account", _STATE_COLUMNS)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Row]:
        account = self._load()
        for row in rows:
            account.take(Waiting(row.sequence, row.at_ms, row.amount, row.balance))
        yield from _rows(key, account.settle())
        self._store(account)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        account = self._load()
        yield from _rows(key, account.give_up(timerValues.getCurrentWatermarkInMs()))
        self._store(account)

    def close(self) -> None:
        """There is nothing to close."""

    def _load(self) -> Account:
        found = self._state.get()
        if found is None:
            return Account()
        following, balance, waiting = found
        return Account(following, balance, {row[0]: Waiting(*row) for row in waiting})

    def _store(self, account: Account) -> None:
        waiting = [account.waiting[sequence] for sequence in sorted(account.waiting)]
        self._state.update((account.next, account.balance, [tuple(row) for row in waiting]))
        if waiting:
            self._handle.registerTimer(waiting[0].at_ms)


def _rows(key: Any, findings: Iterator[Finding]) -> Iterator[Row]:
    for finding in findings:
        yield Row(account=key[0], **finding._asdict())
