"""Which nodes hold what, and asking them until one of them has the answer.  No state of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

from tidelog.errors import (
    BadFrame,
    Busy,
    ConnectionLost,
    CorruptData,
    DeadlineExceeded,
    LogError,
    NotLeader,
    OutOfRange,
    UnknownStream,
    UnknownTopic,
    Unreachable,
)
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.types import NodeId, StreamId

TRY_ANOTHER: Final = (
    Unreachable,
    ConnectionLost,
    DeadlineExceeded,
    NotLeader,
    UnknownStream,
    UnknownTopic,
    OutOfRange,
    CorruptData,
    BadFrame,
    Busy,
)
"""After these another node that holds the stream may still have the answer."""

T = TypeVar("T")


class Holders:
    """The other nodes of the cluster, by what they hold."""

    def __init__(self, cluster: ClusterMap, node: NodeId) -> None:
        self._cluster = cluster
        self._node = node

    async def ask(
        self,
        streams: Sequence[int],
        fetch: Callable[[NodeId, Sequence[int]], Awaitable[T]],
    ) -> list[T]:
        """What nodes tell that together hold these streams, whichever can be reached."""
        tried: set[tuple[NodeId, int]] = set()
        left = list(streams)
        parts: list[T] = []
        trouble: LogError = Unreachable(f"nobody is known to hold log streams {left}")
        while left:
            groups = self.groups(left, tried)
            if not groups:
                raise _passing(trouble)
            found = await asyncio.gather(
                *(fetch(node, group) for node, group in groups.items()), return_exceptions=True
            )
            for (node, group), part in zip(groups.items(), found, strict=True):
                if isinstance(part, TRY_ANOTHER):
                    tried.update((node, stream) for stream in group)
                    trouble = part
                elif isinstance(part, BaseException):
                    raise part
                else:
                    parts.append(part)
                    left = [stream for stream in left if stream not in group]
        return parts

    def groups(
        self, streams: Sequence[int], tried: Collection[tuple[NodeId, int]] = ()
    ) -> dict[NodeId, list[int]]:
        """Which other nodes to ask for which streams: leaders first, then who was not asked yet.

        Empty if a stream is left that nobody can be asked for.
        """
        groups: dict[NodeId, list[int]] = {}
        for stream in streams:
            for node in self._cluster.hosts(StreamId(stream)):
                if node != self._node and (node, stream) not in tried:
                    groups.setdefault(node, []).append(stream)
                    break
            else:
                return {}
        return groups


def _passing(trouble: LogError) -> LogError:
    """What is known here and not yet where it is placed will be: a client should ask again."""
    if isinstance(trouble, UnknownStream | UnknownTopic):
        return Unreachable(f"not placed everywhere yet: {trouble}")
    return trouble
