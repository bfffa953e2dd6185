"""What nodes have told of where log streams lie.  No I/O, no clock.

Hints, and nothing but hints: every node passes on what it cannot do itself, so a wrong one costs a
detour.

  H1  the last word counts: a refusal or receipt corrects what a description said
  H2  a node that does not lead a log stream is not asked for it again until somebody names it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.errors import BadAddress
from tidelog.formats.messages import TopicDescription
from tidelog.net.endpoint import Endpoint, parse_endpoint

NODES_MAX: Final = 64
"""Nodes that a client remembers: more than one client has use for."""


class Routes:
    """The leaders and replicas of log streams, as addresses for clients."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[str, int], Endpoint] = {}
        self._replicas: dict[tuple[str, int], tuple[Endpoint, ...]] = {}
        self._nodes: dict[Endpoint, None] = {}
        self.is_cluster = False
        """Whether the log lies on several nodes, as far as was told."""

    @property
    def nodes(self) -> tuple[Endpoint, ...]:
        """All that were named, in the order in which they were."""
        return tuple(self._nodes)

    def learn(self, described: TopicDescription) -> None:
        """Take in what a node says of a topic."""
        self.is_cluster = self.is_cluster or bool(described.placements)
        for placement in described.placements:
            self.led_by(described.name, placement.stream, placement.leader)
            replicas = [self._known(address) for address in placement.replicas]
            self._replicas[described.name, placement.stream] = tuple(
                replica for replica in replicas if replica is not None
            )

    def led_by(self, topic: str, stream: int, address: str) -> None:
        """A node says who leads a log stream; empty: it does not know (H1)."""
        leader = self._known(address)
        if leader is not None:
            self._leaders[topic, stream] = leader

    def not_led_by(self, topic: str, stream: int, node: Endpoint | None) -> None:
        """A node says that it does not lead a log stream (H2)."""
        self.is_cluster = True
        if node is not None and self._leaders.get((topic, stream)) == node:
            del self._leaders[topic, stream]

    def leader(self, topic: str, stream: int) -> Endpoint | None:
        return self._leaders.get((topic, stream))

    def holders(
        self, topic: str, streams: Sequence[int] = (), turn: int = 0
    ) -> tuple[Endpoint, ...]:
        """The nodes that have all of these log streams (none given: all of the topic).

        Those that lead none of them come first, for leaders have the appends to do; another one of
        them with each ``turn``, so that readers spread.
        """
        streams = streams or [stream for name, stream in self._replicas if name == topic]
        placed = [self._replicas.get((topic, stream), ()) for stream in streams]
        if not placed:
            return ()
        leaders = [self._leaders.get((topic, stream)) for stream in streams]
        common = [node for node in placed[0] if all(node in others for others in placed[1:])]
        following = _rotated([node for node in common if node not in leaders], turn)
        return (*following, *_rotated([node for node in common if node in leaders], turn))

    def _known(self, address: str) -> Endpoint | None:
        """A named node; None if the name is none, or is one too many."""
        if not address:
            return None
        try:
            node = parse_endpoint(address)
        except BadAddress:
            return None  # A hint of a later release, perhaps.
        if node not in self._nodes and len(self._nodes) >= NODES_MAX:
            return None
        self._nodes[node] = None
        return node


def _rotated(nodes: list[Endpoint], turn: int) -> list[Endpoint]:
    first = turn % len(nodes) if nodes else 0
    return nodes[first:] + nodes[:first]
