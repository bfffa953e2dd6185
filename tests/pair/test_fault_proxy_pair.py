"""A proxy that does harm between master and replica; then a restore from either side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pair.fault_proxy import FaultProxy, Faults
from tests.pair.pair import Apart, Pair

ROUNDS = 4
SOAK_ROUNDS = 100
EPOCHS = 3
SOAK_EPOCHS = 20
ACK_SECONDS = 0.7
"""For a replica that does not get our requests."""

FAULTS = {"delay": Faults(delay_seconds=0.02), "byte by byte": Faults(byte_by_byte=True)}
ENDING: dict[str, Callable[[int], Faults]] = {
    "cut": lambda after: Faults(cut_after=after, delay_seconds=0.002),
    "stall": lambda after: Faults(stall_after=after, delay_seconds=0.002),
}
KINDS = (*FAULTS, *ENDING)
SHORT = "cut"
"""What every change goes through; the other kinds take as long each."""


def run_round(pair: Pair, kind: str) -> None:
    """Let a master work through the proxy until that ends it, or until it is killed."""
    seed = pair.random.randrange(1 << 30)
    with FaultProxy(pair.start_replica().address, seed=seed) as proxy:
        if kind in ENDING:
            end_by_fault(pair, proxy, kind)
        else:
            proxy.faults = FAULTS[kind]
            with pair.start_master(proxy.endpoint) as master:
                pair.hear_epochs(master)
                assert not pair.has_failed, pair.ledger.failures
                pair.hear_the_rest(master)
    assert all("unexpected" not in failure for failure in pair.ledger.failures)


def end_by_fault(pair: Pair, proxy: FaultProxy, kind: str) -> None:
    """The master works; then the fault comes, and it has to notice."""
    with pair.start_master(proxy.endpoint, ack_seconds=ACK_SECONDS) as master:
        pair.hear_epochs(master)
        after = pair.random.randrange(1, 20_000)
        proxy.faults = ENDING[kind](after)
        pair.hear_the_end(master)
        assert pair.has_failed


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [SHORT, *(pytest.param(k, marks=pytest.mark.soak) for k in KINDS if k != SHORT)]
)
def test_a_pair_lives_through_a_bad_network_and_loses_nothing_that_was_told(
    tmp_path: Path, kind: str
) -> None:
    with Pair(tmp_path, seed=3, epochs_max=EPOCHS) as pair:
        for _ in range(ROUNDS):
            run_round(pair, kind)
            pair.check_both()
        assert pair.ledger.notices >= ROUNDS


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_pair_lives_through_a_hundred_rounds_of_bad_networks(tmp_path: Path) -> None:
    with Pair(tmp_path, seed=4, epochs_max=SOAK_EPOCHS) as pair:
        for _ in range(SOAK_ROUNDS):
            try:
                run_round(pair, pair.random.choice(KINDS))
            except Apart:
                pair.check_both()
                continue
            if pair.random.random() < 0.5:
                pair.check_both(kill=pair.random.random() < 0.3)
        pair.check_both()
        assert pair.ledger.notices >= SOAK_ROUNDS
