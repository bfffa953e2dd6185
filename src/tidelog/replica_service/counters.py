"""What a replica service counts of its work, for its metrics.  Only the event loop touches it.

What the session core counts itself is not counted here again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Since the service was started, except where it says now."""

    connections: int = 0
    """Now."""
    connections_total: int = 0
    turned_away: Counter[str] = field(default_factory=Counter)
    """Connections that were closed before they asked for anything, by the error's name."""
    requests: Counter[str] = field(default_factory=Counter)
    """By the message's name."""
    blobs: int = 0
    """That are complete."""
    appends: int = 0
    """Steps that wrote."""
    append_seconds: float = 0.0
    syncs: int = 0
    """Steps that waited for a sync, which they may share."""
    sync_seconds: float = 0.0
    compactions: int = 0
    compaction_failures: int = 0

    def count_time(self, append_us: int, sync_us: int) -> None:
        """What a step took."""
        if append_us:
            self.appends += 1
            self.append_seconds += append_us / 1e6
        if sync_us:
            self.syncs += 1
            self.sync_seconds += sync_us / 1e6
