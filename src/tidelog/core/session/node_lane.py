"""One connection of a session between nodes, as its leader sees it.

Invariants:
  N1  requests are sent in the order in which they were put, and answered in that order
  N2  at most ``window`` of them are on their way; the others wait
"""

from __future__ import annotations

from collections import deque

import msgspec

from tidelog.core.session.node_messages import NodeRequest
from tidelog.core.session.node_output import Ask, Attachment


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A request to be sent, and what it counts for until it is answered."""

    request: NodeRequest
    attachment: Attachment = ()
    bytes: int = 0
    count: int = 0


class NodeLane:
    """What waits for one connection, and what is on its way."""

    __slots__ = ("_asked", "_waiting", "_window", "connection", "is_connected", "is_open", "lane")

    def __init__(self, connection: int, lane: int, window: int) -> None:
        self.connection = connection
        self.lane = lane
        self.is_connected = False
        self.is_open = False
        """Whether the follower has taken the connection for what it is."""
        self._window = window
        self._waiting: deque[Waiting] = deque()
        self._asked: deque[Waiting] = deque()

    @property
    def is_awaiting(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._asked)

    def put(self, waiting: Waiting) -> None:
        """Add a request behind all others (N1)."""
        self._waiting.append(waiting)

    def take(self) -> list[Ask]:
        """Hand out what may be sent now (N2)."""
        asks: list[Ask] = []
        while self._waiting and self._has_window():
            waiting = self._waiting.popleft()
            self._asked.append(waiting)
            asks.append(Ask(self.connection, waiting.request, waiting.attachment))
        return asks

    def _has_window(self) -> bool:
        return len(self._asked) < self._window

    def answered(self) -> Waiting | None:
        """Return the request that an answer belongs to; None if nothing was asked."""
        return self._asked.popleft() if self._asked else None
