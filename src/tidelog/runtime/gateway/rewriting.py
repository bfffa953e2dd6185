"""Copies the oldest live keyed entries of a cluster to the head of their log streams.

The leader of a log stream looks for them and appends the copies, if nothing came in between: so a
copy stands right behind all that it was chosen from.  Followers take their snapshots when they
like; none of them can have dropped anything that hides a copy, for nothing hid the original.

Invariants:
  W1  a copy is of the greatest write of its key, among all entries before the copy
  W2  nothing is copied that was trimmed before anybody asked for copies
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.embedded.rewrite import encode_copies, is_greatest, worth_copying
from tidelog.errors import BadOption, Busy, NotLeader
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import Number, Rewrite
from tidelog.interface.records import Record
from tidelog.net.threads import WorkThreads
from tidelog.runtime.gateway.local_reads import LocalReads
from tidelog.runtime.gateway.peers import Peers
from tidelog.storage.stream_store import StreamStore
from tidelog.types import NO_NODE, NodeId, StreamId

_REST_SECONDS: Final = 5.0
"""How long a log stream may take to come to rest."""
_LOOK_SECONDS: Final = 0.02


class LocalRewriting:
    """What this node does with the streams that it leads."""

    def __init__(self, local: LocalReads, chores: WorkThreads) -> None:
        self._local = local
        self._replicas = local.replicas
        self._chores = chores

    async def rewrite(self, topic: TopicManifest, entries_max: int, seconds: float) -> int:
        """Copy up to ``entries_max`` entries of each stream led here; returns how many."""
        if entries_max < 1:
            raise BadOption(f"entries_max is {entries_max}, but must be positive")
        await self._local.cluster.refresh(seconds)  # W2
        copied = 0
        for stream in topic.streams[: topic.key_streams]:
            if self._replicas.leader_of(StreamId(stream)) == self._replicas.node:
                copied += await self._rewrite(topic, StreamId(stream), entries_max, seconds)
        return copied

    async def _rewrite(
        self, topic: TopicManifest, stream: StreamId, entries_max: int, seconds: float
    ) -> int:
        store = self._replicas.node_store.streams[stream]
        deadline = asyncio.get_running_loop().time() + min(seconds, _REST_SECONDS)
        while True:
            end = await self._settled(stream, deadline)
            chosen = await self._chores.run(lambda: self._choose(topic, store, entries_max))
            if not chosen:
                return 0
            body = encode_copies(chosen)
            if self._is_still(stream, end):
                # Without a pause since the last look (W1).
                await self._replicas.append(stream, body)
                return len(chosen)

    def _choose(self, topic: TopicManifest, store: StreamStore, entries_max: int) -> list[Record]:
        """In a thread; no snapshot is taken here meanwhile, so that originals stay."""
        trim_end = self._local.cluster.trim_end(topic.topic)
        with self._replicas.maintenance.live_sets_held():
            return worth_copying(
                store,
                entries_max,
                lambda found, record: record.glsn >= trim_end and is_greatest(found, record),
            )

    def _is_still(self, stream: StreamId, end: int) -> bool:
        """Whether a stream ends where it did, with everything in it ordered (W1)."""
        return self._replicas.settled_end(stream) == end

    async def _settled(self, stream: StreamId, deadline: float) -> int:
        """Wait until all of a stream is ordered; returns where it ends."""
        loop = asyncio.get_running_loop()
        while True:
            if self._replicas.leader_of(stream) != self._replicas.node:
                raise NotLeader(f"log stream {stream} is not led here any more")
            end = self._replicas.settled_end(stream)
            if end is not None:
                return end
            if loop.time() >= deadline:
                raise Busy(f"log stream {stream} does not come to rest: rewrite it later")
            await asyncio.sleep(_LOOK_SECONDS)


class ClusterRewriting:
    """The same, at the leaders of all streams."""

    def __init__(self, local: LocalRewriting, reads: LocalReads, peers: Peers) -> None:
        self._local = local
        self._replicas = reads.replicas
        self._peers = peers

    async def rewrite(self, topic: TopicManifest, message: Rewrite, seconds: float) -> Number:
        copied = 0
        for leader in self._leaders(topic):
            if leader == self._replicas.node:
                copied += await self._local.rewrite(topic, message.entries_max, seconds)
            else:
                peer = self._peers.peer(leader)
                copied += (await peer.ask_for(message, Number, seconds=seconds)).number
        return Number(copied)

    def _leaders(self, topic: TopicManifest) -> list[NodeId]:
        """Of all streams that have keys; NotLeader if one has none."""
        leaders: dict[NodeId, None] = {}
        for stream in topic.streams[: topic.key_streams]:
            leader = self._replicas.leader_of(StreamId(stream))
            if leader == NO_NODE:
                raise NotLeader(f"nobody leads log stream {stream}: try again")
            leaders[leader] = None
        return list(leaders)
