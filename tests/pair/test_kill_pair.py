"""SIGKILL of master, of replica, of both, under load; then a restore from either side.

What the kernel has taken survives a killed process, so this is about the order of steps on both
sides and about what is told to whom; what a lost power supply does is in the tests of the store.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pair.forked import Forked
from tests.pair.pair import Apart, Pair

ROUNDS = 4
SOAK_ROUNDS = 100
EPOCHS = 6
SOAK_EPOCHS = 40
OPENING_SECONDS = 0.15


def work(pair: Pair, master: Forked) -> None:
    pair.hear_epochs(master)
    assert not pair.has_failed, pair.ledger.failures


def kill_master(pair: Pair) -> None:
    """The replica lives on, and takes the next master; it is stopped only to be looked at."""
    with pair.start_master(pair.start_replica().address) as master:
        work(pair, master)
        pair.hear_the_rest(master)


def kill_replica(pair: Pair) -> None:
    """The master notices and stops by itself."""
    with pair.start_master(pair.start_replica().address) as master:
        work(pair, master)
        pair.stop_replica(kill=True)
        pair.hear_the_end(master)
    assert all("unexpected" not in failure for failure in pair.ledger.failures)


def kill_both(pair: Pair) -> None:
    """At once, now the one and now the other first."""
    with pair.start_master(pair.start_replica().address) as master:
        work(pair, master)
        if pair.random.random() < 0.5:
            pair.stop_replica(kill=True)
            pair.hear_the_rest(master)
        else:
            pair.hear_the_rest(master)
            pair.stop_replica(kill=True)


def kill_opening(pair: Pair) -> None:
    """While the master recovers, opens its session, or writes its first entries; or both sides."""
    with pair.begin_master(pair.start_replica().address) as master:
        pair.hear_for(master, pair.random.random() * OPENING_SECONDS)
        if pair.random.random() < 0.5:
            pair.stop_replica(kill=True)
        pair.hear_the_rest(master)


KINDS = {
    "master": kill_master,
    "replica": kill_replica,
    "both": kill_both,
    "opening": kill_opening,
}
SHORT = "both"
"""What every change goes through; the other kinds take as long each."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [SHORT, *(pytest.param(k, marks=pytest.mark.soak) for k in KINDS if k != SHORT)]
)
def test_a_pair_lives_through_kills_and_loses_nothing_that_was_told(
    tmp_path: Path, kind: str
) -> None:
    with Pair(tmp_path, seed=1, epochs_max=EPOCHS) as pair:
        for _ in range(ROUNDS):
            KINDS[kind](pair)
            pair.check_both()
        assert pair.rounds >= ROUNDS
        assert kind == "opening" or pair.ledger.notices >= ROUNDS


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_pair_lives_through_a_hundred_kills_of_all_kinds(tmp_path: Path) -> None:
    with Pair(tmp_path, seed=2, epochs_max=SOAK_EPOCHS) as pair:
        for _ in range(SOAK_ROUNDS):
            try:
                KINDS[pair.random.choice(list(KINDS))](pair)
            except Apart:
                pair.check_both()
                continue
            if pair.random.random() < 0.5:
                pair.check_both(kill=pair.random.random() < 0.3)
        pair.check_both()
        assert pair.ledger.notices >= SOAK_ROUNDS
        assert pair.ahead, "no kill left one side ahead of the other"
