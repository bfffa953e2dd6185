"""The ledger of the kill test notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tidelog
from tests.process import kill_plan as plan
from tests.process.kill_ledger import Ledger
from tests.process.kill_plan import STEP, Told
from tests.process.kill_writer import places_of

FIRST = plan.APPENDERS[0]


def tell(ledger: Ledger, writer: str, number: int, *receipts: tidelog.Receipt) -> None:
    ledger.tell(Told(writer, number, places_of(receipts)))


def lose_an_append(log: tidelog.Log, ledger: Ledger) -> None:
    receipt = log.append(b"something else")
    tell(ledger, FIRST, STEP, receipt)


def double_an_append(log: tidelog.Log, ledger: Ledger) -> None:
    value = plan.value_of(FIRST, STEP)
    tell(ledger, FIRST, STEP, log.append(value))
    log.append(value)


def move_an_append(log: tidelog.Log, ledger: Ledger) -> None:
    value = plan.value_of(FIRST, STEP)
    log.append(b"before it")
    glsn = log.append(value).glsn - 1
    ledger.tell(Told(FIRST, STEP, [(1, 1, glsn, 1)]))


def lose_the_newest_put(log: tidelog.Log, ledger: Ledger) -> None:
    key, value = plan.put_of(STEP)
    tell(ledger, plan.PUTTER, STEP, log.put(key, value or b""))
    later = STEP + plan.PUT_KEYS
    tell(ledger, plan.PUTTER, later, log.append(b""))


def tear_a_batch(log: tidelog.Log, ledger: Ledger) -> None:
    tell(ledger, plan.BATCHER, STEP, *log.put_batch(plan.batch_of(STEP)))
    log.put_batch(plan.batch_of(STEP + 1)[:3])


def leave_a_gap(log: tidelog.Log, ledger: Ledger) -> None:
    for _ in range(60):
        log.put(b"a key of nobody", b"")


def append_once_more_on_retry(log: tidelog.Log, ledger: Ledger) -> None:
    value = plan.value_of(plan.PRODUCER, 1)
    tell(ledger, plan.PRODUCER, 1, log.append(value))
    tell(ledger, plan.PRODUCER, 1, log.append(value))


@pytest.mark.parametrize(
    "harm",
    [
        lose_an_append,
        double_an_append,
        move_an_append,
        lose_the_newest_put,
        tear_a_batch,
        leave_a_gap,
        append_once_more_on_retry,
    ],
)
def test_the_ledger_refuses_a_log_that_was_harmed(
    tmp_path: Path, harm: Callable[[tidelog.Log, Ledger], None]
) -> None:
    ledger = Ledger()
    log, ring = plan.open_log(tmp_path / "log", background=False)

    def harm_and_check() -> None:
        harm(log, ledger)
        ledger.end_round(1)
        ledger.check(log, ring)

    with log, pytest.raises(AssertionError):
        harm_and_check()


def test_the_ledger_accepts_what_was_under_way_at_the_kill(tmp_path: Path) -> None:
    ledger = Ledger()
    log, ring = plan.open_log(tmp_path / "log", background=False)
    with log:
        tell(ledger, FIRST, STEP, log.append(plan.value_of(FIRST, STEP)))
        log.append(plan.value_of(FIRST, STEP + 1))
        log.put_batch(plan.batch_of(STEP))
        log.append(plan.value_of(plan.PRODUCER, 1), producer=plan.PRODUCER, sequence=1)
        ring.append(plan.value_of(plan.RING, STEP))
        ledger.end_round(1)
        ledger.check(log, ring)
        ledger.check(log, ring)
