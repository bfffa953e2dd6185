"""An operator's times in seconds, as people give them, and in ticks, as its core counts.  No state.

The defaults are for a leader that dies to be replaced in less than a second: it is suspected after
``suspect``, and what follows are a few messages and two writes of metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tidelog.core.operator.options import OperatorOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTiming:
    """Seconds; ``OperatorOptions`` says what each is for."""

    tick: float = 0.1
    ping: float = 0.25
    """A storage node that says nothing for so long is asked for a sign of life; more than the
    heartbeat of metadata nodes, which is a sign, too."""
    suspect: float = 0.5
    answer: float = 5.0
    """A storage node that answers nothing for so long is deaf, whatever it says itself."""
    replace: float = 300.0
    balance: float = 30.0
    """0: no leadership is moved to spread the load."""
    resend: float = 0.3
    patience: float = 2.5
    status: float = 2.0
    start: float = 0.3
    election_pause: float = 1.0
    snapshot: float = 3600.0

    @property
    def ping_ticks(self) -> int:
        """Ticks between two pings."""
        return self._ticks(self.ping)

    @property
    def answer_ticks(self) -> int:
        """Ticks after which a node that does not answer counts as deaf."""
        return self._ticks(self.answer)

    def options(self) -> OperatorOptions:
        """The same for the core."""
        return OperatorOptions(
            resend_ticks=self._ticks(self.resend),
            patience_ticks=self._ticks(self.patience),
            snapshot_ticks=self._ticks(self.snapshot),
            status_ticks=self._ticks(self.status),
            start_ticks=self._ticks(self.start),
            suspect_ticks=self._ticks(self.suspect),
            replace_ticks=self._ticks(self.replace),
            election_pause_ticks=self._ticks(self.election_pause),
            balance_ticks=self._ticks(self.balance) if self.balance else 0,
        )

    def _ticks(self, seconds: float) -> int:
        return max(1, ceil(round(seconds / self.tick, 6)))
