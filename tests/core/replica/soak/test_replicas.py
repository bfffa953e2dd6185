"""What takes too long for every change: deeper interleavings, and many random walks."""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.walks import Walk
from tests.core.replica.small_scope.elections import Budget, explore

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_000)]


@pytest.mark.parametrize(
    ("budget", "depth"),
    [
        pytest.param(Budget(terms=2, crashes=1, appends=1), 12, id="two terms, one crash"),
        pytest.param(Budget(terms=3, crashes=2, appends=2), 8, id="two crashes"),
        pytest.param(Budget(4, 0, 2, whole_elections=True), 6, id="five elections"),
        pytest.param(Budget(3, 1, 1, whole_elections=True), 6, id="elections and a crash"),
    ],
)
def test_no_longer_interleaving_breaks_a_promise(budget: Budget, depth: int) -> None:
    states, steps = explore(budget, depth, settle_every=500)
    assert steps > states > 10_000


@pytest.mark.parametrize("hundred", range(10))
def test_many_longer_walks_keep_all_promises_and_end_well(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        Walk(seed).go(1_500)
