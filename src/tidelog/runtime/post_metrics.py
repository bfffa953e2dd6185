"""What the post tells Prometheus.  No state."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from tidelog.net.metrics import counter, gauge, labelled
from tidelog.runtime.post_counters import PostCounters


def metrics_of(counters: PostCounters, queued_bytes: int) -> Iterator[Metric]:
    """All of them, as they stand."""
    for name, text, value in (
        ("sent", "Messages sent to other processes.", counters.sent),
        ("received", "Messages received.", counters.received),
        ("dropped", "Messages not sent: nobody reached, or too many waiting.", counters.dropped),
        ("unheeded", "Messages for another node or a role not here.", counters.unheeded),
        ("connects", "Connections made.", counters.connects),
        ("failed_connects", "Connections that could not be made.", counters.failed_connects),
    ):
        yield counter(f"tidelog_post_{name}", text, value)
    yield gauge("tidelog_post_outgoing_connections", "Opened here.", counters.outgoing)
    yield gauge("tidelog_post_incoming_connections", "Opened by others.", counters.incoming)
    yield gauge("tidelog_post_queued_bytes", "Waiting to be sent.", queued_bytes)
    turned_away = dict(counters.turned_away)
    yield labelled("tidelog_post_turned_away", "Peers turned away.", "error", turned_away)
