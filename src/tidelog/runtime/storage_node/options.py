"""How a storage node is tuned.  No state."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.core.compaction.plan import Strategy
from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.session.node_output import NodeOptions
from tidelog.errors import BadOption
from tidelog.limits import MIB

TICK_SECONDS_MIN = 0.01
TICK_SECONDS_MAX = 10.0


def _replica_options() -> ReplicaOptions:
    """What is new is told at once: heartbeats and repeats only make up for what was lost."""
    return ReplicaOptions(heartbeat_ticks=20, resend_ticks=10)


def _session_options() -> NodeOptions:
    return NodeOptions(patience_ticks=100, keep_ticks=20, retry_ticks=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNodeOptions:
    """Every field has a default that suits most uses."""

    tick_seconds: float = 0.05
    """The unit of all times in ``replica`` and ``session``."""
    replica: ReplicaOptions = field(default_factory=_replica_options)
    session: NodeOptions = field(default_factory=_session_options)
    snapshot_bytes: int = 32 * MIB
    """A keyed stream is snapshotted when it grew by this much, or by half of its size."""
    compaction: Strategy = field(default_factory=lambda: Strategy(minors=8, idle_ticks=30))
    """When major compactions run by themselves; a tick of it is ``upkeep_seconds``."""
    upkeep_seconds: float = 10.0
    """How often idle streams are looked at."""
    hold_seconds: float = 600.0
    """How long snapshots may wait for a replica that is being filled up."""

    def __post_init__(self) -> None:
        if not TICK_SECONDS_MIN <= self.tick_seconds <= TICK_SECONDS_MAX:
            raise BadOption(
                f"tick_seconds is {self.tick_seconds}, but must lie between "
                f"{TICK_SECONDS_MIN} and {TICK_SECONDS_MAX}"
            )
        if self.snapshot_bytes < 1 or self.upkeep_seconds <= 0 or self.hold_seconds <= 0:
            raise BadOption("snapshot_bytes, upkeep_seconds and hold_seconds must be positive")
