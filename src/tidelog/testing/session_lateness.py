"""How late a thread is.  No state."""

from __future__ import annotations

from random import Random
from typing import Final

from tidelog.testing.world import MILLISECOND

USUALLY_MEAN: Final = 200
SELDOM_MEAN: Final = 20 * MILLISECOND
SELDOM: Final = 0.03


def lateness(draws: Random) -> int:
    """Draw the microseconds after which a thread gets to its work: mostly few, often none."""
    draw = draws.random()
    if draw < SELDOM:
        return int(draws.expovariate(1.0) * SELDOM_MEAN)
    return int(draws.expovariate(1.0) * USUALLY_MEAN) if draw < 0.5 else 0
