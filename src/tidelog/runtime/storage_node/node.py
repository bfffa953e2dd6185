"""A storage node: replicas of log streams over one disk, sessions with other nodes, appends.

It decides nothing: replicas, hosting and sessions are machines of the core, and ``host`` hands them
what came and carries out what they want.

Invariants:
  N1  a broken invariant or a failed disk ends the node: nothing is done after it, and that is told
      once
  N2  an append is refused with nothing done, or taken; what becomes of one that was taken its
      future tells
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from prometheus_client.core import Metric

from tidelog.core.metadata.messages import Collect, CommitResult
from tidelog.core.metadata.view import MetadataView
from tidelog.core.replica.replica import Replica
from tidelog.embedded.maintenance import Maintenance
from tidelog.formats.batch import BatchBody
from tidelog.formats.cluster_messages import (
    ClusterMessage,
    OperatorToNode,
    Ping,
    Pong,
    of_operator,
)
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.records import Ack
from tidelog.runtime.events import tell
from tidelog.runtime.storage_node.appends import Appends, Placed
from tidelog.runtime.storage_node.chores import Chores
from tidelog.runtime.storage_node.counters import Counters, Histogram
from tidelog.runtime.storage_node.host import Host
from tidelog.runtime.storage_node.housekeeping import Housekeeping
from tidelog.runtime.storage_node.metrics import NodeFigures, storage_metrics
from tidelog.runtime.storage_node.options import StorageNodeOptions
from tidelog.runtime.storage_node.ports import Disk, Mail, Views
from tidelog.runtime.storage_node.reading import Reading
from tidelog.runtime.storage_node.replicas import Replicas
from tidelog.runtime.storage_node.sessions_in import FollowerSessions
from tidelog.runtime.storage_node.sessions_out import LeaderSessions
from tidelog.runtime.storage_node.status import ReplicaStatus, status_of
from tidelog.runtime.storage_node.syncs import Syncs
from tidelog.runtime.storage_node.taking import Taking
from tidelog.runtime.storage_node.turns import Turns
from tidelog.runtime.ticks import next_tick
from tidelog.storage.node_store import NodeStore
from tidelog.types import Llsn, NodeId, ProducerId, StreamId, TopicId

_logger: Final = logging.getLogger(__name__)

FULL_RETRY_TICKS: Final = 10
"""A disk that was full is tried again every so many ticks."""


class StorageNode:
    """Belongs to one event loop, in which it is made; the disk is open, and stays so."""

    def __init__(
        self,
        *,
        node: NodeId,
        cluster_id: bytes,
        disk: Disk,
        post: Mail,
        metadata: Views,
        options: StorageNodeOptions | None = None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """``on_failure`` is told once, of what the node cannot go on after."""
        self.node = node
        self._disk = disk
        self._post = post
        self._metadata = metadata
        self._options = options or StorageNodeOptions()
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._counters = Counters()
        self._turns = Turns(self._end_turn, self._fail)
        self._appends = Appends(self._counters, self._find_glsn)
        self._replicas = Replicas(node, disk, self._options.replica, self._on_made)
        session, name = self._options.session, cluster_id.hex()
        self._leading = LeaderSessions(
            cluster_id=name, node=node, options=session, mail=post, put=self._turns.put
        )
        self._following = FollowerSessions(
            cluster_id=name, node=node, options=session, put=self._turns.put
        )
        self._host = Host(
            node,
            disk=disk,
            mail=post,
            replicas=self._replicas,
            appends=self._appends,
            leading=self._leading,
            following=self._following,
            counters=self._counters,
        )
        self._reading = Reading(node, lambda: self._host.hosting.ends)
        self._chores = Chores(self._turns.put)
        self._housekeeping = Housekeeping(disk, self._replicas, self._chores, self._options)
        self._host.began_anew = self._housekeeping.began_anew
        self._syncs = Syncs(
            disk,
            wait_for_room=self._housekeeping.wait_for_room,
            on_durable=self._on_durable,
            on_failed=self._fail,
        )
        self._taking = Taking(disk, self._replicas, self._appends, self._syncs, self._counters)
        self._ticking: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._ticks = 0
        self._last_cut = 0.0
        self._reported = 0.0
        """When the first report went out since the last cut; 0 if none did."""
        self._topics: list[TopicManifest] = []
        self._is_running = False
        self._has_failed = False

    # --- life ---

    async def start(self) -> None:
        """Open the replicas that are on the disk, and take part."""
        self._disk.set_fetching(self._chores.run_only, self._on_fetched)
        self._replicas.open()
        self._post.on((OperatorToNode, Ping), self._receive)
        self._post.on((Collect, CommitResult), self._receive, at_once=True)
        self._post.on_session(self._following.accept)
        self._metadata.on_view(self._on_view)
        self._is_running = self._taking.is_open = True
        if self._metadata.view is not None:
            self._on_view(self._metadata.view)
        self._plan_tick()
        tell(_logger, "storage node started", replicas=len(self._replicas))
        for stream, why in self._disk.damaged.items():
            tell(_logger, "damaged", logging.WARNING, stream=stream, why=why)

    async def stop(self) -> None:
        """Take no more appends, end sessions and threads; who waits hears LeaderLost."""
        self._is_running = self._taking.is_open = False
        self._turns.stop()
        if self._ticking is not None:
            self._ticking.cancel()
        self._appends.fail_all("the node was stopped")
        await self._leading.stop()
        await self._following.stop()
        self._housekeeping.stop_waiting()
        await self._syncs.stop()
        await self._chores.stop()
        await asyncio.to_thread(self._housekeeping.stop)

    def _fail(self, error: BaseException) -> None:
        """N1."""
        if self._has_failed:
            return
        self._has_failed = True
        self._is_running = self._taking.is_open = False
        self._turns.stop()
        _logger.error("the storage node has failed: %s", error, exc_info=error)
        self._on_failure(error)

    # --- what comes ---

    def _receive(self, source: NodeId, message: ClusterMessage) -> None:
        match message:
            case OperatorToNode():
                request = of_operator(message)
                self._put(partial(self._host.from_operator, request))
            case Collect():
                self._put(partial(self._host.collect, message))
            case CommitResult():
                self._put(partial(self._commits, message))
            case Ping(number):
                self._post.send(source, Pong(number))
            case _:
                pass

    def _put(self, word: Callable[[], None]) -> None:
        if self._is_running:
            self._turns.put(word)

    def _on_view(self, view: MetadataView) -> None:
        self._put(partial(self._learn, view))

    def _on_durable(self, number: int) -> None:
        self._put(partial(self._durable, number))

    def _on_fetched(self, stream: StreamId) -> None:
        """In a thread: what a replica wanted to read is there."""
        self._chores.tell(partial(self._fetched, stream))

    def _tick(self) -> None:
        self._plan_tick()
        self._put(self._take_tick)

    def _plan_tick(self) -> None:
        """Together with the other parts of the process, so that it wakes up once for all."""
        now, seconds = self._loop.time(), self._options.tick_seconds
        self._due = next_tick(max(self._due, now), seconds, self.node)
        self._ticking = self._loop.call_at(self._due, self._tick)

    # --- words of a turn ---

    def _commits(self, result: CommitResult) -> None:
        if self._host.commits(result):
            self._reading.cut(result)
            self._host.has_news = True
            now = self._loop.time()
            if self._last_cut:
                self._counters.cut_seconds.observe(now - self._last_cut)
            self._last_cut = now
            if self._reported:
                self._counters.order_seconds.observe(now - self._reported)
                self._reported = 0.0

    def _durable(self, number: int) -> None:
        for stream in self._host.durable(number):
            self._housekeeping.trimmed(stream)
        self._housekeeping.synced()

    def _fetched(self, stream: StreamId) -> None:
        replica = self._replicas.get(stream)
        if replica is not None:
            replica.fetched()
            self._replicas.touch(stream)

    def _learn(self, view: MetadataView) -> None:
        topics = topics_of(view)
        if topics != self._topics:
            self._topics = topics
            self._disk.set_topics(topics)
        self._replicas.learn(view)
        self._reading.learn(view)
        self._housekeeping.learn(view)
        self._leading.share(self._replicas.peers())
        self._host.has_news = True

    def _take_tick(self) -> None:
        self._ticks += 1
        self._host.tick()
        self._syncs.flush()
        if self._ticks % FULL_RETRY_TICKS == 0:
            self._syncs.retry()
        for stream, why in self._housekeeping.tick():
            self._host.give_up(stream, why)

    def _end_turn(self) -> None:
        self._counters.turns += 1
        self._host.settle()
        if self._host.has_reported:
            self._host.has_reported = False
            self._reported = self._reported or self._loop.time()
        self._host.send()
        if self._host.is_awaited:
            self._host.is_awaited = False
            self._syncs.flush()
        else:
            self._syncs.kick()
        if self._host.has_news:
            self._host.has_news = False
            self._reading.tell()

    def _on_made(self, stream: StreamId, replica: Replica) -> None:
        self._appends.add_stream(stream, replica.context.llsn_end)

    # --- appends ---

    def append(
        self,
        stream: StreamId,
        body: BatchBody,
        *,
        producer: int = 0,
        sequence: int = 0,
        after: int = 0,
        ack: Ack = Ack.ORDERED,
    ) -> asyncio.Future[Placed]:
        """Append entries that were encoded or checked here to a stream that is led here (N2).

        Raises at once, with nothing done: NotLeader, Sealed, Busy, DiskFull, OutOfOrder,
        ProducerConflict, BatchTooLarge.  The future fails with LeaderLost when the
        outcome cannot be known here; deadlines are the caller's, who may cancel it.
        """
        taken = self._taking.take(stream, body, ProducerId(producer), sequence, after)
        if not taken.is_repeated:
            self._replicas.touch(stream)
            self._turns.wake()
        return self._appends.took(stream, taken, ack)

    def settled_end(self, stream: StreamId) -> int | None:
        """Where the next append would begin, if all before it is ordered and readable; else None.

        For compare-and-set: what is looked at now is what the append follows, if nothing is awaited
        in between.
        """
        replica = self._taking.find_leader(stream)
        if replica is None:
            return None
        end = replica.head.llsn + 1
        if end == replica.durable_context.llsn_end:
            return end
        self.hasten_order()
        return None

    def hasten_order(self) -> None:
        """Let what is ordered be readable as soon as it can be: somebody waits for it."""
        if self._is_running:
            self._syncs.flush()

    def issued_end(self, topic: TopicId) -> int:
        """The first GLSN that no cut has issued that this node was told of."""
        return self._reading.issued_end(topic)

    def ordered_end(self, stream: StreamId) -> int:
        """The first GLSN above all that entries of a stream got, as far as its replica here knows.

        Somebody may have been told of them already that cannot be read yet.
        """
        replica = self._replicas.get(stream)
        return 0 if replica is None else replica.context.glsn_end

    def _find_glsn(self, stream: StreamId, llsn: Llsn) -> int:
        store = self._disk.node.streams.get(stream)
        return 0 if store is None else store.glsn_of(llsn)

    # --- what others ask ---

    @property
    def node_store(self) -> NodeStore:
        """What this node stores, for readers."""
        return self._disk.node

    @property
    def maintenance(self) -> Maintenance:
        """Flushes, snapshots and compactions of this node."""
        return self._housekeeping.maintenance

    @property
    def is_placed(self) -> bool:
        """Whether the node was told which streams it hosts."""
        return self._host.hosting.placements > 0

    @property
    def sync_seconds(self) -> Histogram:
        """How long syncs of the disk took."""
        return self._syncs.seconds

    @property
    def is_disk_full(self) -> bool:
        """Whether the last sync found no room."""
        return self._syncs.is_full

    async def roll(self) -> None:
        """Begin a new WAL file, so that what the current one holds can go into segments."""
        await self._syncs.roll()

    def report_damage(self, stream: StreamId, why: str) -> None:
        """A read found files of a stream damaged: its replica is to be filled up by its leader."""
        self._put(partial(self._host.give_up, stream, why))

    def leader_of(self, stream: StreamId) -> NodeId:
        """Who leads a stream, as far as is known here; 0 if nobody is known to."""
        return self._replicas.leader_of(stream)

    def readable_end(self, topic: TopicId, streams: Sequence[StreamId]) -> int | None:
        """The first GLSN that may not be shown yet; None if a stream cannot be read here."""
        return self._reading.end(topic, [(one, self._replicas.get(one)) for one in streams])

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told`` in the event loop when more may be readable; returns what ends that."""
        return self._reading.listen(told)

    def status(self) -> tuple[ReplicaStatus, ...]:
        """All replicas of this node, by stream."""
        return tuple(
            status_of(
                self._replicas.topic_of(stream),
                stream,
                replica,
                is_sealed=self._replicas.is_sealed(stream),
                revision=self._replicas.known_revision(stream),
            )
            for stream, replica in sorted(self._replicas, key=_number)
        )

    def metrics(self) -> Iterable[Metric]:
        """All figures of this node."""
        return storage_metrics(
            NodeFigures(
                counters=self._counters,
                sync_seconds=self._syncs.seconds,
                replicas=self.status(),
                leaders=tuple(self._leading.leaders),
                follower=self._following.follower.counters,
                followed=len(self._following.follower.leaders),
                unheard=dict(self._host.hosting.unheard),
                ignored=self._replicas.ignored(),
                maintenance=self.maintenance,
                waiting_appends=self._appends.waiting,
                begun_writes=self._host.begun,
                is_full=self._syncs.is_full,
                is_backlogged=self._disk.is_backlogged,
            )
        )


def topics_of(view: MetadataView) -> list[TopicManifest]:
    """The topics of a view as the disk knows topics."""
    return [
        TopicManifest(
            topic=topic.topic,
            name=topic.name,
            streams=topic.streams,
            key_streams=topic.key_streams,
            versions=topic.versions,
        )
        for topic in view.topics
    ]


def _number(item: tuple[StreamId, Replica]) -> StreamId:
    return item[0]
