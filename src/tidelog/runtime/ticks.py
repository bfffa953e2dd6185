"""When the parts of a process tick.  No state.

All parts of a process tick at the same moments, so that an idle process wakes up once for all of
them.  The processes of one machine tick at different ones, so that two metadata nodes rarely ask
for votes at the same time.
"""

from __future__ import annotations

from math import floor
from typing import Final

from tidelog.types import NodeId

PHASE_SECONDS: Final = 0.05
"""Ticks that are multiples of this, and of one another, fall together."""
_GOLDEN: Final = 0.6180339887498949
"""Spreads consecutive numbers evenly."""
_EARLY: Final = 1e-6
"""A moment that is so little away has come."""


def next_tick(after: float, seconds: float, node: NodeId) -> float:
    """The first moment after ``after`` at which a process ticks that does so every ``seconds``."""
    phase = node * _GOLDEN % 1.0 * min(PHASE_SECONDS, seconds)
    return phase + seconds * (floor((after - phase) / seconds + _EARLY) + 1)
