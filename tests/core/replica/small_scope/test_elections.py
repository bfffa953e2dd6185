"""All interleavings of a few elections among three nodes, up to a number of steps.

The witness looks on at every step; every fiftieth state is then brought to a good end.
"""

from __future__ import annotations

import pytest

from tests.core.replica.small_scope.elections import Budget, explore


@pytest.mark.parametrize(
    ("budget", "depth", "states_min"),
    [
        pytest.param(Budget(terms=2, crashes=1, appends=1), 8, 2_000, id="two terms, one crash"),
        pytest.param(Budget(terms=3, crashes=2, appends=2), 5, 1_500, id="two crashes"),
        pytest.param(Budget(4, 0, 2, whole_elections=True), 4, 1_000, id="five elections"),
        pytest.param(Budget(3, 1, 1, whole_elections=True), 4, 1_500, id="elections and a crash"),
    ],
)
def test_no_interleaving_breaks_a_promise(budget: Budget, depth: int, states_min: int) -> None:
    states, _ = explore(budget, depth, settle_every=50)
    assert states >= states_min
