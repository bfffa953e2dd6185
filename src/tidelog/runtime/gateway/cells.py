"""Keys of an internal topic that are changed one after the other, with compare-and-set.

They all lie in the topic's one log stream, and whoever leads that changes them: it looks at what is
there once everything in the stream is ordered, decides, and appends, if nothing came in between.

Invariants:
  C1  between the look and the append nothing was appended to the stream, by nobody: a write of an
      older leader that may still be ordered keeps everybody from looking
  C2  what one decision changes is one batch: all of it is there or nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Final, TypeAlias

from tidelog.embedded.pages import find_piece
from tidelog.errors import Busy, DeadlineExceeded, NotLeader
from tidelog.formats.batch import encode_puts
from tidelog.formats.manifest import TopicManifest
from tidelog.runtime.gateway.local_reads import LocalReads
from tidelog.runtime.storage_node.appends import Placed
from tidelog.types import StreamId

Lookup: TypeAlias = Callable[[bytes], bytes | None]
"""The value of a key; None if there is none."""

_LOOK_SECONDS: Final = 0.02
_END: Final = 1 << 62


class Cells:
    """The cells of one internal topic, as far as this node leads them."""

    def __init__(self, local: LocalReads) -> None:
        self._local = local
        self._replicas = local.replicas
        self._lock = asyncio.Lock()

    def is_led_here(self, topic: TopicManifest) -> bool:
        return self._replicas.leader_of(_stream(topic)) == self._replicas.node

    async def look(self, topic: TopicManifest, key: bytes) -> bytes | None:
        """What a key is at the moment; NotLeader if another node knows better."""
        self._check_leader(topic)
        await self._local.catch_up(topic, topic.streams[0])
        return await self._local.readers.run(lambda: self._lookup(topic)(key))

    async def change(
        self,
        topic: TopicManifest,
        decide: Callable[[Lookup], Mapping[bytes, bytes]],
        seconds: float,
    ) -> None:
        """Append what ``decide`` makes of what it finds, unless that is nothing.

        It runs in a thread, and more than once if somebody else was faster.  NotLeader, Busy:
        nothing was changed.  LeaderLost: nobody knows.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        async with self._lock:
            self._check_leader(topic)
            # What is refused must not be so because of what was true once.
            await self._local.catch_up(topic, topic.streams[0])
            while True:
                end = await self._settled(topic, deadline)
                changes = await self._local.readers.run(lambda: decide(self._lookup(topic)))
                if not changes:
                    return
                body = encode_puts(
                    list(changes), list(changes.values()), timestamp_us=time_ns() // 1000
                )
                if self._is_still(topic, end):
                    # Without a pause since the last look (C1).
                    placed = self._replicas.append(_stream(topic), body)
                    await _outcome(placed, deadline)
                    return

    def _is_still(self, topic: TopicManifest, end: int) -> bool:
        """Whether the stream ends where it did, with everything in it ordered (C1)."""
        return self._replicas.settled_end(_stream(topic)) == end

    async def _settled(self, topic: TopicManifest, deadline: float) -> int:
        """Wait until all of the stream is ordered; returns where it ends."""
        loop = asyncio.get_running_loop()
        while True:
            self._check_leader(topic)
            await self._local.settle(topic)
            end = self._replicas.settled_end(_stream(topic))
            if end is not None:
                return end
            if loop.time() >= deadline:
                raise Busy(f"the log stream of {topic.name!r} does not come to rest: try again")
            await asyncio.sleep(_LOOK_SECONDS)

    def _check_leader(self, topic: TopicManifest) -> None:
        if not self.is_led_here(topic):
            leader = self._replicas.leader_of(_stream(topic))
            raise NotLeader(
                f"the log stream of {topic.name!r} is not led here",
                leader=self._local.cluster.address(leader),
            )

    def _lookup(self, topic: TopicManifest) -> Lookup:
        log = self._local.view(topic, _END)

        def look(key: bytes) -> bytes | None:
            found = find_piece(log, topic, key, 0)
            return None if found is None else bytes(found[1].first_value())

        return look


async def _outcome(placed: asyncio.Future[Placed], deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await placed
    except TimeoutError:
        raise DeadlineExceeded("a change was not ordered in time; it may still be") from None


def _stream(topic: TopicManifest) -> StreamId:
    return StreamId(topic.streams[0])
