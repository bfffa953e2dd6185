"""Keeping the topics of a cluster small: trims and boundaries, snapshots, compaction, figures.

What is kept is decided in the metadata repository; every node that sees it there forgets the rest.
Snapshots and compactions are each node's own, so they are asked of all that hold a topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from tidelog.core.order.commands import RetainTopic
from tidelog.embedded.explain import explain_key
from tidelog.embedded.stats import log_stats, topic_stats
from tidelog.errors import (
    BadFrame,
    BadOption,
    LogError,
    OutOfRange,
    UnknownStream,
    Unreachable,
)
from tidelog.formats.compaction_plan import StreamPlan
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import (
    Answer,
    Compact,
    Done,
    Explain,
    Figures,
    Lines,
    Request,
    TakeSnapshot,
    TopicFigures,
    Trim,
)
from tidelog.formats.plan_messages import OfferPlan
from tidelog.interface.figures import CompactionResult, PlanOutcome, StreamStats, TopicStats
from tidelog.interface.routing import stream_of_key
from tidelog.limits import WRITE_VERSION_END
from tidelog.net.threads import WorkThreads
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.holders import TRY_ANOTHER
from tidelog.runtime.gateway.local_log import LocalLog
from tidelog.runtime.gateway.local_reads import LocalReads
from tidelog.runtime.gateway.peers import Peers
from tidelog.runtime.gateway.surroundings import Metadata
from tidelog.runtime.gateway.waiting import Waiting
from tidelog.storage.plan_check import read_plan
from tidelog.storage.stream_store import StreamStore
from tidelog.types import Glsn, NodeId, StreamId, TopicId

_LOW_64: Final = (1 << 64) - 1
_MARK_END: Final = 1 << 63


class LocalUpkeep:
    """What this node does with its own replicas."""

    def __init__(self, local: LocalReads, chores: WorkThreads) -> None:
        self._local = local
        self._replicas = local.replicas
        self._chores = chores

    def _log(self, topic: TopicManifest) -> LocalLog:
        return self._local.view(topic, self._local.cluster.high_watermark(topic.topic))

    async def snapshot(self, topic: TopicManifest) -> None:
        await self._local.settle(topic)
        stores = self._log(topic).stores(topic)
        maintenance = self._replicas.maintenance

        def call() -> None:
            for store in stores:
                maintenance.snapshot(store)

        await self._chores.run(call)

    async def compact(self, topic: TopicManifest, *, full: bool) -> CompactionResult:
        await self.snapshot(topic)
        maintenance = self._replicas.maintenance
        if full:
            await self._replicas.roll()
            await self._chores.run(maintenance.flush_rolled)
        stores = self._log(topic).stores(topic)

        def call() -> CompactionResult:
            total = CompactionResult()
            for store in stores:
                total.add(maintenance.major(store, full=full))
            return total

        return await self._chores.run(call)

    async def offer_plan(
        self, topic: TopicManifest, message: OfferPlan, data: memoryview
    ) -> Figures:
        """Compact the replica that a plan is for, if there is one here and the plan is true."""
        plan = await self._chores.run(lambda: read_plan(data, topic.streams))
        outcome = await self.compact_by(plan, full=message.full)
        return Figures(msgspec.json.encode((outcome,)))

    async def compact_by(self, plan: StreamPlan, *, full: bool) -> PlanOutcome:
        maintenance, store = self._replicas.maintenance, self._store(plan.stream)
        outcome = await self._chores.run(lambda: maintenance.snapshot_by_plan(store, plan))
        if full:
            await self._replicas.roll()
            await self._chores.run(maintenance.flush_rolled)
        result = await self._chores.run(lambda: maintenance.major(store, full=full))
        outcome.compaction.add(result)
        return replace(outcome, node=self._replicas.node)

    def _store(self, stream: int) -> StreamStore:
        store = self._replicas.node_store.streams.get(stream)
        if store is None:
            raise UnknownStream(f"log stream {stream} is not on this node")
        return store

    async def explain(self, topic: TopicManifest, message: Explain) -> Lines:
        stream = stream_of_key(topic, message.key)
        await self._local.settle(topic)
        log = self._log(topic)
        if stream not in log.node.streams:
            raise UnknownStream(f"log stream {stream} is not on this node")
        lines = await self._chores.run(
            lambda: explain_key(log, topic, message.key, message.storage_id)
        )
        return Lines(tuple(lines))

    async def topic_figures(self, topic: TopicManifest) -> TopicStats:
        await self._local.settle(topic)
        log = self._log(topic)
        return await self._chores.run(lambda: topic_stats(log, topic))

    async def log_figures(self, topics: Sequence[TopicManifest]) -> Figures:
        """Of this node: its files, and its replicas of all topics."""
        cluster = self._local.cluster
        store, maintenance = self._replicas.node_store, self._replicas.maintenance

        def call() -> bytes:
            figures = log_stats(LocalLog(store, maintenance, high=0, trim_end=cluster.trim_end))
            known = tuple(
                topic_stats(
                    LocalLog(
                        store,
                        maintenance,
                        high=cluster.high_watermark(topic.topic),
                        trim_end=cluster.trim_end,
                    ),
                    topic,
                )
                for topic in sorted(topics, key=lambda topic: topic.name)
            )
            return msgspec.json.encode(replace(figures, topics=known))

        return Figures(await self._chores.run(call))


class ClusterUpkeep:
    """What is done with all replicas, on whichever nodes they are."""

    def __init__(
        self,
        local: LocalUpkeep,
        waiting: Waiting,
        cluster: ClusterMap,
        metadata: Metadata,
        peers: Peers,
        node: NodeId,
    ) -> None:
        self._local = local
        self._waiting = waiting
        self._cluster = cluster
        self._metadata = metadata
        self._peers = peers
        self._node = node

    # -- what is kept -------------------------------------------------------------------------

    async def trim(self, topic: TopicManifest, message: Trim, seconds: float) -> int:
        """Forget everything below a GLSN; returns the first one that is kept."""
        before = message.before_glsn
        if before < 1:
            raise OutOfRange(f"GLSNs start at 1, not {before}")
        high = await self._waiting.high_watermark(topic, seconds)
        if before > high + 1:
            raise OutOfRange(f"cannot trim before GLSN {before}: the last one is {high}")
        await self.retain(topic, seconds, trim_end=before)
        return max(before, self._cluster.trim_end(topic.topic))

    def check_boundary(self, topic: TopicManifest, version: int) -> None:
        if topic.versions != "explicit":
            raise BadOption(f"topic {topic.name!r} has no GC boundary: its versions are GLSNs")
        if not 0 <= version < WRITE_VERSION_END:
            raise BadOption(f"a write version has 128 bits, not {version}")

    async def retain(
        self, topic: TopicManifest, seconds: float, *, trim_end: int = 1, boundary: int = 0
    ) -> None:
        """Write down what need not be kept; nodes see it in their next view."""
        change = RetainTopic(
            TopicId(topic.topic), Glsn(trim_end), boundary >> 64, boundary & _LOW_64
        )
        await self._metadata.ask(change, seconds=seconds)
        await self._cluster.refresh(seconds)

    # -- on all nodes -------------------------------------------------------------------------

    async def snapshot(self, topic: TopicManifest, message: TakeSnapshot, seconds: float) -> Done:
        async def here() -> Answer:
            await self._local.snapshot(topic)
            return Done()

        await self._everywhere(topic, message, here, seconds)
        return Done()

    async def compact(self, topic: TopicManifest, message: Compact, seconds: float) -> Figures:
        async def here() -> Answer:
            result = await self._local.compact(topic, full=message.full)
            return Figures(msgspec.json.encode(result))

        total = CompactionResult()
        for answer in await self._everywhere(topic, message, here, seconds):
            if not isinstance(answer, Figures):
                raise BadFrame(f"a node answered a compaction with {type(answer).__name__}")
            total.add(msgspec.json.decode(answer.json, type=CompactionResult))
        return Figures(msgspec.json.encode(total))

    async def offer_plan(
        self, topic: TopicManifest, message: OfferPlan, data: memoryview, seconds: float
    ) -> Figures:
        """Hand a plan to all replicas of its log stream; each of them decides for itself.

        It is refused if none of them takes it, with what the first of them said.
        """
        plan = await asyncio.to_thread(read_plan, data, topic.streams)
        nodes = self._cluster.hosts(StreamId(plan.stream))
        found = await asyncio.gather(
            *(self._offer(node, message, plan, data, seconds) for node in nodes),
            return_exceptions=True,
        )
        outcomes: list[PlanOutcome] = []
        refusals: list[LogError] = []
        for node, answer in zip(nodes, found, strict=True):
            if isinstance(answer, PlanOutcome):
                outcomes.append(answer)
            elif isinstance(answer, LogError):
                refusals.append(answer)
                outcomes.append(_refusal(node, plan, answer))
            else:
                raise answer
        if len(refusals) == len(nodes):
            raise refusals[0] if refusals else Unreachable(f"nobody holds stream {plan.stream}")
        return Figures(msgspec.json.encode(outcomes))

    async def _offer(
        self,
        node: NodeId,
        message: OfferPlan,
        plan: StreamPlan,
        data: memoryview,
        seconds: float,
    ) -> PlanOutcome:
        if node == self._node:
            return await self._local.compact_by(plan, full=message.full)
        peer = self._peers.peer(node)
        answer = (await peer.ask(message, seconds=seconds, attachments=(data,))).answer
        if not isinstance(answer, Figures):
            raise BadFrame(f"a node answered a plan with {type(answer).__name__}")
        return msgspec.json.decode(answer.json, type=tuple[PlanOutcome])[0]

    async def topic_figures(
        self, topic: TopicManifest, message: TopicFigures, seconds: float
    ) -> Figures:
        """Of each stream the figures of one replica, this node's if it has one.

        What tells of dropped deletes counts all replicas that can be reached: a reader may have
        been served by any of them.
        """
        nodes = self._other_hosts(topic)
        asked = [self._ask(node, message, seconds) for node in nodes]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = {self._node: await self._local.topic_figures(topic)}
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, Figures):
                found[node] = msgspec.json.decode(answer.json, type=TopicStats)
        high = await self._waiting.high_watermark(topic, seconds)
        return Figures(msgspec.json.encode(joined_figures(found, high)))

    async def explain(self, topic: TopicManifest, message: Explain, seconds: float) -> Answer:
        stream = StreamId(stream_of_key(topic, message.key))
        trouble: LogError = Unreachable(f"nobody is known to hold log stream {stream}")
        for node in self._cluster.hosts(stream):
            try:
                if node == self._node:
                    return await self._local.explain(topic, message)
                return await self._peers.peer(node).ask_for(message, Lines, seconds=seconds)
            except TRY_ANOTHER as error:
                trouble = error
        raise trouble

    async def _everywhere(
        self,
        topic: TopicManifest,
        request: Request,
        here: Callable[[], Awaitable[Answer]],
        seconds: float,
    ) -> list[Answer]:
        """The answers of all nodes that hold something of a topic.

        Those that can be reached do it, and then it is told who could not.
        """
        nodes = self._other_hosts(topic)
        asked = [self._ask(node, request, seconds) for node in nodes]
        found = await asyncio.gather(here(), *asked, return_exceptions=True)
        failed = [
            f"node {node}: {answer}"
            for node, answer in zip((self._node, *nodes), found, strict=True)
            if isinstance(answer, LogError)
        ]
        for answer in found:
            if isinstance(answer, BaseException) and not isinstance(answer, LogError):
                raise answer
        if failed:
            raise Unreachable(f"not all nodes did it: {'; '.join(failed)}")
        return [answer for answer in found if not isinstance(answer, BaseException)]

    async def _ask(self, node: NodeId, request: Request, seconds: float) -> Answer:
        return (await self._peers.peer(node).ask(request, seconds=seconds)).answer

    def _other_hosts(self, topic: TopicManifest) -> list[NodeId]:
        nodes = {node for stream in topic.streams for node in self._cluster.hosts(StreamId(stream))}
        return sorted(nodes - {self._node})


def _refusal(node: NodeId, plan: StreamPlan, error: LogError) -> PlanOutcome:
    return PlanOutcome(
        stream=plan.stream,
        claims=len(plan.dead),
        dead=0,
        doubtful=0,
        compaction=CompactionResult(),
        node=node,
        refused=f"{type(error).__name__}: {error}",
    )


def joined_figures(found: Mapping[NodeId, TopicStats], high: int) -> TopicStats:
    """One topic's figures, from the figures of several nodes, the first of which counts most."""
    streams: dict[int, StreamStats] = {}
    mark = 0
    for node, figures in found.items():
        for stream in figures.streams:
            mark += _mark(node, stream)
            known = streams.get(stream.stream)
            if known is None:
                streams[stream.stream] = stream
                continue
            streams[stream.stream] = replace(
                known,
                delete_horizon=max(known.delete_horizon, stream.delete_horizon),
                dropped_deletes=known.dropped_deletes + stream.dropped_deletes,
                # Replicas learn of a higher one one after the other.
                gc_boundary=min(known.gc_boundary, stream.gc_boundary),
            )
    return replace(
        next(iter(found.values())),
        high_watermark=high,
        first_available=max(figures.first_available for figures in found.values()),
        streams=tuple(streams[stream] for stream in sorted(streams)),
        delete_mark=mark % _MARK_END,
    )


def _mark(node: NodeId, stream: StreamStats) -> int:
    """No sum of counts: replicas drop the same deletes, and one that goes must not make up for
    another one that drops them, too.
    """
    if not stream.dropped_deletes:
        return 0
    return xxh3_64_intdigest(b"%d %d %d" % (node, stream.stream, stream.dropped_deletes))
