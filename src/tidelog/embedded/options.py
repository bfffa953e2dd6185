"""How an embedded log behaves; every field has a default that suits most uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.core.compaction.plan import Strategy
from tidelog.errors import BadOption
from tidelog.limits import MIB, WAL_FILE_BYTES_DEFAULT, WAL_FILE_BYTES_MAX, WAL_FILE_BYTES_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    wal_file_bytes: int = WAL_FILE_BYTES_DEFAULT
    """Size of a WAL file; it is also about what one roll keeps in memory."""
    snapshot_bytes: int = 32 * MIB
    """A keyed stream is snapshotted when it grew by this much, or by half of its size."""
    compaction: Strategy = field(default_factory=lambda: Strategy(minors=8, idle_ticks=30))
    """When major compactions run by themselves; a tick is ``tick_seconds``."""
    background: bool = True
    """Flush, snapshot and compact in a thread; otherwise inside the append that is due."""
    tick_seconds: float = 10.0
    append_timeout_seconds: float = 60.0
    """How long an append waits for its turn unless the call says otherwise."""

    def __post_init__(self) -> None:
        if not WAL_FILE_BYTES_MIN <= self.wal_file_bytes <= WAL_FILE_BYTES_MAX:
            raise BadOption(
                f"wal_file_bytes is {self.wal_file_bytes}, but must lie between "
                f"{WAL_FILE_BYTES_MIN} and {WAL_FILE_BYTES_MAX}"
            )
        if self.snapshot_bytes < 1:
            raise BadOption(f"snapshot_bytes is {self.snapshot_bytes}, but must be positive")
        if self.tick_seconds <= 0 or self.append_timeout_seconds <= 0:
            raise BadOption("tick_seconds and append_timeout_seconds must be positive")
