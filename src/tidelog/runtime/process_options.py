"""What a configuration says to each role, in that role's own terms.  No state."""

from __future__ import annotations

from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.session.node_output import NodeOptions
from tidelog.runtime.config import Config
from tidelog.runtime.gateway.options import GatewayOptions
from tidelog.runtime.metadata_node.timing import MetadataTiming
from tidelog.runtime.operator_node.timing import OperatorTiming
from tidelog.runtime.storage_node.options import StorageNodeOptions


def operator_timing(config: Config) -> OperatorTiming:
    """The times of an operator."""
    timing = config.timing
    return OperatorTiming(
        tick=timing.operator_tick,
        ping=timing.ping,
        suspect=timing.suspect,
        replace=timing.replace,
        balance=timing.balance,
    )


def metadata_timing(config: Config) -> MetadataTiming:
    """The times of a metadata node."""
    timing = config.timing
    return MetadataTiming(
        tick=timing.metadata_tick, heartbeat=timing.heartbeat, election=timing.election
    )


def storage_options(config: Config) -> StorageNodeOptions:
    """How a storage node is tuned."""
    tick = config.timing.storage_tick

    def ticks(seconds: float) -> int:
        return max(1, round(seconds / tick))

    # What is new is told at once: these only make up for what was lost.
    return StorageNodeOptions(
        tick_seconds=tick,
        replica=ReplicaOptions(heartbeat_ticks=ticks(1.0), resend_ticks=ticks(0.5)),
        session=NodeOptions(
            patience_ticks=ticks(5.0), keep_ticks=ticks(2.0), retry_ticks=ticks(0.2)
        ),
        snapshot_bytes=config.storage.snapshot_bytes,
    )


def gateway_options(config: Config) -> GatewayOptions:
    """How clients are treated."""
    return GatewayOptions(
        stop_seconds=config.timing.stop,
        stage_seconds=config.timing.stages,
        replicas=config.cluster.replicas,
    )
