"""The ledger itself: sound sides pass, and every rule is broken by what it is for."""

from __future__ import annotations

import msgspec
import pytest

from tests.pair import plan
from tests.pair.ledger import Ledger, Side
from tests.pair.plan import SHARED, Told, Transaction

FIRST = Transaction(1, 0, 1, epoch=3)
SECOND = Transaction(1, 1, 1, epoch=4)
ABORTED = Transaction(1, 2, 2, epoch=4)


def heard(*lines: Told) -> Ledger:
    ledger = Ledger()
    for told in (Told(plan.READY, 1, epoch=2), *lines):
        ledger.hear(msgspec.json.encode(told))
    return ledger


def ended(transaction: Transaction) -> Told:
    return Told(plan.ENDED, *transaction)


def stored(epoch: int) -> Told:
    return Told(plan.STORED, epoch=epoch)


def propagated(epoch: int) -> Told:
    return Told(plan.PROPAGATED, epoch=epoch)


def side(epoch: int, *transactions: Transaction) -> Side:
    """A side that holds these whole."""
    made = Side(epoch)
    for one in transactions:
        made.transactions[one.key] = one
        made.parts[one.key] = one.size
        for index in range(one.size):
            made.values[plan.storage_of(one.round), b"%s/%d" % (one.key, index)] = one.value
        for key in (*plan.hot_keys(one.channel), plan.baton_of(one)):
            made.values[SHARED, key] = one.value
    return made


def test_sound_sides_pass() -> None:
    ledger = heard(
        ended(FIRST), ended(SECOND), stored(3), propagated(3), Told(plan.ABORTED, *ABORTED)
    )
    ledger.check(side(4, FIRST, SECOND), side(4, FIRST, SECOND))
    ledger.check(side(4, FIRST, SECOND), side(3, FIRST))
    ledger.check(side(3, FIRST), side(4, FIRST, SECOND))


def test_an_epoch_without_entries_need_not_be_written() -> None:
    heard(ended(FIRST), stored(9), propagated(9)).check(side(3, FIRST), side(3, FIRST))


def test_a_log_session_in_part_is_found() -> None:
    """L1: keys of its own, hot keys, and the baton of the one before."""
    ledger = heard(ended(FIRST), ended(SECOND))
    torn = side(4, FIRST, SECOND)
    torn.parts[FIRST.key] -= 1
    cold = side(4, FIRST, SECOND)
    cold.values[SHARED, plan.hot_keys(1)[0]] = FIRST.value
    doubled = side(4, FIRST, SECOND)
    doubled.values[SHARED, b"baton/1/older"] = SECOND.value
    for broken in (torn, cold, doubled):
        with pytest.raises(AssertionError, match="L1"):
            ledger.check(side(4, FIRST, SECOND), broken)


def test_an_aborted_log_session_is_found() -> None:
    ledger = heard(Told(plan.ABORTED, *ABORTED))
    with pytest.raises(AssertionError, match="L1"):
        ledger.check(side(4, ABORTED), side(4, ABORTED))


def test_a_log_session_beyond_the_epoch_of_its_side_is_found() -> None:
    with pytest.raises(AssertionError, match="L2"):
        heard(ended(SECOND)).check(side(3, SECOND), side(3, SECOND))


def test_a_log_session_that_is_missing_is_found() -> None:
    for lacking in (side(4), side(5, FIRST)):
        with pytest.raises(AssertionError, match="L2"):
            heard(ended(FIRST), ended(SECOND)).check(side(4, FIRST, SECOND), lacking)


def test_a_lost_epoch_that_was_told_of_is_found() -> None:
    with pytest.raises(AssertionError, match="L3"):
        heard(ended(FIRST), stored(3)).check(side(2), side(2))
    with pytest.raises(AssertionError, match="L3"):
        heard(ended(FIRST), stored(3), propagated(3)).check(side(3, FIRST), side(2))
    heard(ended(FIRST), stored(3)).check(side(3, FIRST), side(2))
    with pytest.raises(AssertionError, match="L3"):
        heard(ended(FIRST), stored(3), Told(plan.READY, 2, epoch=2))


@pytest.mark.parametrize(
    "told",
    [
        (stored(3), stored(3)),
        (stored(4), stored(3)),
        (propagated(3),),
        (stored(3), propagated(4)),
        (stored(4), propagated(4), propagated(3)),
    ],
)
def test_notices_out_of_order_are_found(told: tuple[Told, ...]) -> None:
    with pytest.raises(AssertionError, match="L4"):
        heard(*told)


def test_what_was_lost_and_comes_back_is_found() -> None:
    ledger = heard(ended(SECOND), Told(plan.READY, 2, epoch=2))
    with pytest.raises(AssertionError, match="L5"):
        ledger.check(side(5, SECOND), side(5, SECOND))


def test_sides_that_differ_are_found() -> None:
    with pytest.raises(AssertionError, match="L6"):
        heard().check(side(4, FIRST), side(4))
    with pytest.raises(AssertionError, match="L6"):
        heard().check(side(4, FIRST), side(5, SECOND))
    changed = side(4, FIRST)
    changed.values[SHARED, b"other"] = FIRST.value
    with pytest.raises(AssertionError, match="L6"):
        heard().check(side(4, FIRST), changed)
