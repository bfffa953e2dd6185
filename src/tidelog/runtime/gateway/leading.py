"""Has a request answered by the node that leads an internal topic, wherever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidelog.errors import Busy, ConnectionLost, LeaderLost, LogError, NotLeader, Unreachable
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import Answer, Request
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.counters import GatewayCounters
from tidelog.runtime.gateway.peers import Peers
from tidelog.runtime.gateway.surroundings import Replicas
from tidelog.types import NO_NODE, StreamId

_NOT_DONE: Final[tuple[type[LogError], ...]] = (NotLeader, Unreachable)
_NOT_KNOWN: Final[tuple[type[LogError], ...]] = (LeaderLost, ConnectionLost, Busy)
_PAUSE_SECONDS: Final = 0.1
_REST_SECONDS: Final = 0.2
"""What is left of a request's time for its answer to travel."""

A = TypeVar("A", bound=Answer)


class Leading:
    """Belongs to one event loop."""

    def __init__(
        self, replicas: Replicas, cluster: ClusterMap, peers: Peers, counters: GatewayCounters
    ) -> None:
        self._replicas = replicas
        self._cluster = cluster
        self._peers = peers
        self._counters = counters

    async def answer(
        self,
        topic: TopicManifest,
        request: Request,
        kind: type[A],
        here: Callable[[float], Awaitable[A]],
        seconds: float,
        *,
        may_repeat: bool = False,
    ) -> A:
        """``here`` answers if this node leads.

        What was not done for want of a leader is asked for again while there is time; so is that of
        which nobody knows, if it ``may_repeat``: then the last word is not definite, whatever the
        last try says.  All else is for whoever asked to judge.
        """
        again = _NOT_DONE + _NOT_KNOWN if may_repeat else _NOT_DONE
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(seconds - _REST_SECONDS, seconds / 2)
        doubt: LogError | None = None
        while True:
            left = deadline - loop.time()
            leader = self._replicas.leader_of(StreamId(topic.streams[0]))
            trouble: LogError = NotLeader(f"nobody leads {topic.name!r}")
            try:
                if leader == self._replicas.node:
                    return await here(left)
                if leader != NO_NODE:
                    self._counters.requests_passed_on += 1
                    return await self._peers.peer(leader).ask_for(request, kind, seconds=left)
            except again as error:
                trouble = error
                if not error.definite:
                    doubt = error
            left = deadline - loop.time()
            if left <= 0:
                raise doubt or trouble
            await self._cluster.wait_for_change(min(left, _PAUSE_SECONDS))
