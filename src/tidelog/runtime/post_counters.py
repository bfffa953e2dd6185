"""What the post counts.  No state but the numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class PostCounters:
    """Since the start, but for the connections, which are those that there are."""

    sent: int = 0
    received: int = 0
    dropped: int = 0
    """Messages that were not sent: nobody was reached, or too many waited."""
    unheeded: int = 0
    """Messages that came, and were for another node or for a role that is not here."""
    connects: int = 0
    failed_connects: int = 0
    outgoing: int = 0
    incoming: int = 0
    turned_away: Counter[str] = field(default_factory=Counter)
    """Connections of peers by what there was against them."""
