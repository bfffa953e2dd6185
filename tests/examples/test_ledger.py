"""The ledger's own rules: its data, and the check with memory, without Spark."""

from __future__ import annotations

from itertools import groupby, pairwise
from random import Random

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from examples.ledger.accounts import Account, Finding, Waiting
from examples.ledger.balance_check import BalanceCheck
from examples.ledger.branches import entry_of
from examples.ledger.model import Model
from examples.ledger.movements import (
    BEGIN_MS,
    MINUTE_MS,
    OPEN_MINUTES,
    ROUNDS,
    Movement,
    Plan,
    deliveries,
    movements,
    rounds,
)
from examples.ledger.queries import WATERMARK
from tidelog.formats.entry import check_entry

PLAN = Plan(events=4_000, accounts=60)
WATERMARK_MS = int(WATERMARK.removesuffix(" minutes")) * MINUTE_MS


def movement(sequence: int, amount: int, balance: int, at_ms: int = 0) -> Waiting:
    return Waiting(sequence, at_ms or sequence * 1_000, amount, balance)


def settled(account: Account, *found: Waiting) -> list[Finding]:
    for one in found:
        account.take(one)
    return list(account.settle())


# --- the data ------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_movements_again_and_another_seed_gives_others() -> None:
    assert list(movements(PLAN, 1)) == list(movements(PLAN, 1))
    other = Plan(PLAN.events, PLAN.accounts, seed=2)
    assert list(movements(PLAN, 1)) != list(movements(other, 1))


def test_a_plan_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 100 events"):
        Plan(events=100)


def test_every_account_has_all_numbers_and_each_balance_follows_from_the_one_before() -> None:
    found = sorted(one for branch in range(PLAN.branches) for one in movements(PLAN, branch))
    assert len(found) == PLAN.events
    for _, lines in groupby(found, lambda one: one.account):
        account = list(lines)
        assert [one.sequence for one in account] == list(range(1, len(account) + 1))
        assert account[0].balance == account[0].amount
        for before, after in pairwise(account):
            assert after.balance == before.balance + after.amount
            assert after.at_ms >= before.at_ms
            assert not before.closes, "a closed account goes on"


def test_nothing_reaches_the_log_so_late_that_spark_would_leave_it_out() -> None:
    for branch in range(PLAN.branches):
        newest_ms = BEGIN_MS
        for minute in rounds(PLAN, branch):
            # Other branches may be a minute ahead, and a micro-batch may end anywhere.
            assert all(one.at_ms > newest_ms + MINUTE_MS - WATERMARK_MS for one in minute)
            newest_ms = max([newest_ms, *(one.at_ms for one in minute)])


def test_every_delivery_is_in_the_round_of_its_minute() -> None:
    found = list(rounds(PLAN, 2))
    assert len(found) == ROUNDS
    for number, minute in enumerate(found):
        due = [one for one in deliveries(PLAN, 2) if (one.due_ms - BEGIN_MS) // MINUTE_MS == number]
        assert minute == [one.movement for one in sorted(due, key=lambda one: one.due_ms)]


def test_some_movements_are_late_some_come_twice_and_some_never() -> None:
    found = list(deliveries(PLAN, 0))
    made = PLAN.events_of(0)
    assert sum(one.due_ms > one.movement.at_ms for one in found) > made // 50
    assert made // 100 < len(found) - len({one.movement for one in found}) < made // 20
    assert made - len({one.movement for one in found}) == 3


def test_every_movement_is_an_entry_that_a_log_takes() -> None:
    for one in movements(PLAN, 0):
        entry = entry_of(one)
        check_entry(entry)
        assert entry.write_version == one.sequence


# --- the check -----------------------------------------------------------------------------------


def test_movements_that_come_in_another_order_are_settled_in_theirs() -> None:
    account = Account()
    assert settled(account, movement(3, -50, 20), movement(2, -30, 70)) == []
    assert account.next == 1, "the first one is missing"
    assert settled(account, movement(1, 100, 100)) == []
    assert (account.next, account.balance, account.waiting) == (4, 20, {})


def test_a_movement_that_comes_twice_counts_once() -> None:
    account = Account()
    first, second = movement(1, 100, 100), movement(2, -60, 40)
    assert settled(account, first, second, second) == []
    assert settled(account, second, first) == []
    assert (account.next, account.balance) == (3, 40)


def test_the_movement_that_takes_a_balance_below_zero_is_found_once() -> None:
    account = Account()
    found = settled(account, movement(1, 10, 10), movement(2, -30, -20), movement(3, 5, -15))
    assert found == [Finding("overdrawn", 2, -20)]


def test_a_missing_movement_is_told_only_when_it_can_not_come_any_more() -> None:
    account = Account()
    settled(account, movement(1, 100, 100), movement(4, -10, 60, at_ms=4_000))
    assert list(account.give_up(3_999)) == []
    assert list(account.give_up(4_000)) == [Finding("gap", 2, 2)]
    assert (account.next, account.balance) == (5, 60), "it goes on with the balance that it is told"
    assert list(account.give_up(9_000)) == []


def test_two_gaps_are_told_each_at_its_time() -> None:
    account = Account()
    settled(account, movement(2, 1, 1, at_ms=2_000), movement(5, 1, 9, at_ms=5_000))
    assert list(account.give_up(2_000)) == [Finding("gap", 1, 1)]
    assert list(account.give_up(5_000)) == [Finding("gap", 3, 2)]


def test_in_whatever_batches_movements_come_the_check_finds_what_the_model_says() -> None:
    model = Model.of(PLAN)
    for seed in range(3):
        found, watermark_ms = _check_in_batches(Random(seed))
        assert sorted(found) == sorted(model.findings(watermark_ms))
        kinds = {finding.kind for _, finding in found}
        assert kinds == {"gap", "overdrawn"}


def _check_in_batches(random: Random) -> tuple[list[tuple[str, Finding]], int]:
    """Run the processor as Spark does: batch by batch, then the timers that are due."""
    tester = TwsTester(
        BalanceCheck(), timeMode="EventTime", eventTimeExtractor=lambda row: int(row.at_ms)
    )
    minutes = zip(*(rounds(PLAN, branch) for branch in range(PLAN.branches)), strict=True)
    in_order = [one for minute in minutes for branch in minute for one in branch]
    newest_ms, watermark_ms, found = 0, 0, list[Row]()
    begin = 0
    while begin < len(in_order):
        batch = in_order[begin : begin + random.randint(1, 1_500)]
        begin += len(batch)
        for account, lines in groupby(sorted(batch), lambda one: one.account):
            found += tester.test(account, [_row(one) for one in lines])
        newest_ms = max(newest_ms, *(one.at_ms for one in batch))
        watermark_ms = newest_ms - WATERMARK_MS
        found += tester.setWatermark(watermark_ms)
    results = [(row.account, Finding(row.kind, row.sequence, row.detail)) for row in found]
    return results, watermark_ms


def _row(one: Movement) -> Row:
    return Row(sequence=one.sequence, at_ms=one.at_ms, amount=one.amount, balance=one.balance)


# --- the model -----------------------------------------------------------------------------------


def test_the_model_counts_each_movement_in_its_minute_once_and_no_minute_before_its_end() -> None:
    model = Model.of(PLAN)
    end_ms = BEGIN_MS + OPEN_MINUTES * MINUTE_MS
    whole = model.minutes(end_ms)
    assert sum(minute.movements for minute in whole.values()) == sum(
        not one.closes for one in model.movements
    )
    assert max(model.minutes(end_ms - 1)) == end_ms - 2 * MINUTE_MS
    assert model.entries > len(model.movements) == len(set(model.movements))
