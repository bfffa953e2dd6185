"""How a gateway is tuned.  No state."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import BadOption
from tidelog.limits import ENSEMBLE_NODES_MAX
from tidelog.server.reception import ReceptionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions(ReceptionOptions):
    """Every field has a default that suits most uses."""

    replicas: int = 0
    """Of a log stream, unless whoever creates a topic says how many; 0: three, if there are as
    many storage nodes."""
    leader_seconds: float = 2.0
    """How long an append waits for somebody to lead its log stream."""
    catch_up_seconds: float = 2.0
    """How long a read waits for what was ordered and has not come to this node yet."""
    fresh_seconds: float = 1.0
    """How long the metadata repository is asked for the end of a topic; then what is known here
    counts."""
    dial_seconds: float = 2.0
    """For one attempt to connect to another node."""
    keep_alive_seconds: float = 2.0
    """A node that says nothing for so long is asked whether it is there."""
    ready_seconds: float = 30.0
    """How long the log streams of a new topic may take to get leaders."""
    stage_seconds: float = 3600.0
    """How long staged batches wait to be published before they are forgotten."""
    stage_check_seconds: float = 60.0
    """How often to look for those."""

    def __post_init__(self) -> None:
        if not 0 <= self.replicas <= ENSEMBLE_NODES_MAX:
            raise BadOption(f"a log stream has up to {ENSEMBLE_NODES_MAX} replicas")
        seconds = (
            self.leader_seconds,
            self.catch_up_seconds,
            self.fresh_seconds,
            self.dial_seconds,
            self.keep_alive_seconds,
            self.ready_seconds,
            self.stage_seconds,
            self.stage_check_seconds,
        )
        if min(seconds) <= 0:
            raise BadOption("all times of a gateway must be positive")
