"""A log channel is made only for who shows the secret of the session that lives."""

from __future__ import annotations

from typing import Final

from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "session_secrets"


class Secrets:
    """The secrets of all replicas, those of sessions that are over too."""

    __slots__ = ("_living", "issued")

    def __init__(self) -> None:
        self.issued: list[str] = []
        self._living: dict[NodeId, tuple[int, str]] = {}
        """By replica: the control channel, and the secret that it got."""

    def on_begun(self, node: NodeId, connection: int, secret: str) -> None:
        """A session begins."""
        if secret in self.issued:
            raise Violation(NAME, f"node {node} gives away a secret again")
        self.issued.append(secret)
        self._living[node] = connection, secret

    def on_ended(self, node: NodeId, connection: int) -> None:
        """A connection is gone, or the session on it has ended."""
        if self._living.get(node, (0, ""))[0] == connection:
            del self._living[node]

    def on_stopped(self, node: NodeId) -> None:
        """A service has ended, and its session with it."""
        self._living.pop(node, None)

    def on_channel(self, node: NodeId, secret: str) -> None:
        """Check a log channel that a replica makes."""
        living = self._living.get(node)
        if living is None or living[1] != secret:
            raise Violation(NAME, f"node {node} makes a log channel for {secret!r}, not {living}")

    def is_living_at(self, node: NodeId, secret: str) -> bool:
        """Whether a replica's session has this secret."""
        return self._living.get(node, (0, ""))[1] == secret

    def is_living(self, secret: str) -> bool:
        """Whether a session with this secret goes on."""
        return any(other == secret for _, other in self._living.values())
