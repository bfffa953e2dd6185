"""What a gateway counts besides what every node that serves clients does.

Only the event loop touches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric

from tidelog.net.metrics import counter


@dataclass(slots=True)
class GatewayCounters:
    """Since the node was started."""

    appends_here: int = 0
    appends_passed_on: int = 0
    appends_without_leader: int = 0
    """Refused, since nobody led the log stream for too long."""
    requests_passed_on: int = 0
    pages_merged: int = 0
    pages_elsewhere: int = 0
    """Pages that were fetched from other nodes to be merged."""
    publications: int = 0
    publications_resumed: int = 0

    def metrics(self) -> Iterator[Metric]:
        yield counter("tidelog_appends_here", "Appends to streams led here.", self.appends_here)
        yield counter(
            "tidelog_appends_passed_on", "Appends sent on to leaders.", self.appends_passed_on
        )
        yield counter(
            "tidelog_appends_without_leader",
            "Appends refused since nobody led.",
            self.appends_without_leader,
        )
        yield counter(
            "tidelog_requests_passed_on",
            "Other requests sent on to nodes that can answer.",
            self.requests_passed_on,
        )
        yield counter(
            "tidelog_pages_merged", "Pages made of several nodes' parts.", self.pages_merged
        )
        yield counter(
            "tidelog_pages_elsewhere", "Pages fetched from other nodes.", self.pages_elsewhere
        )
        yield counter("tidelog_publications", "Publications finished here.", self.publications)
        yield counter(
            "tidelog_publications_resumed",
            "Publications that somebody else had begun.",
            self.publications_resumed,
        )
