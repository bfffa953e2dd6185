"""The cluster as the newest view has it: topics by name, where streams lie, who is where.

Invariants:
  M1  what is read of it in one go comes from one view: a new view replaces it as a whole
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from tidelog.core.metadata.view import MetadataView
from tidelog.core.order.commands import StreamStatus
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.embedded.engine import INTERNAL_PREFIX
from tidelog.errors import DeadlineExceeded, LogError, UnknownTopic, Unreachable
from tidelog.formats.manifest import TopicManifest
from tidelog.runtime.gateway.shared_looks import SharedLooks
from tidelog.runtime.gateway.surroundings import Metadata
from tidelog.types import NodeId, StreamId, TopicId

_DOUBTS_MAX: Final = 1_000
_SURE_SECONDS: Final = 1.0


class _Known(msgspec.Struct, frozen=True):
    """One view, prepared for looking things up."""

    topics: Mapping[str, TopicManifest] = {}
    orders: Mapping[TopicId, TopicOrder] = {}
    streams: Mapping[StreamId, StreamOrder] = {}
    addresses: Mapping[NodeId, str] = {}
    """Of the storage nodes, for clients."""


class ClusterMap:
    """Belongs to one event loop; what only looks things up is for any thread."""

    def __init__(self, metadata: Metadata, *, fresh_seconds: float) -> None:
        self._metadata = metadata
        self._fresh_seconds = fresh_seconds
        self._looks = SharedLooks(metadata, seconds=fresh_seconds)
        self._loop = asyncio.get_running_loop()
        self._known = _Known()
        self._number = -1
        self._waiters: set[asyncio.Future[None]] = set()
        self._listeners: list[Callable[[], None]] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._doubts: dict[str, float] = {}
        """Names that were not known → until when that is certain; 0: it is being looked at."""
        metadata.on_view(self._on_view)
        if metadata.view is not None:
            self._on_view(metadata.view)

    # -- looking ------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicManifest:
        """A topic by its name, internal ones as well; UnknownTopic if this view has none."""
        found = self._known.topics.get(name)
        if found is None:
            raise UnknownTopic(f"there is no topic {name!r}; known: {self.topic_names()}")
        return found

    def has_topic(self, name: str) -> bool:
        return name in self._known.topics

    def topic_names(self) -> list[str]:
        """The topics that users made."""
        return sorted(name for name in self._known.topics if not name.startswith(INTERNAL_PREFIX))

    def first_topic(self) -> str:
        """The topic that was made first: the one that is meant if none is named."""
        for _, order in sorted(self._known.orders.items()):
            if order.name and not order.name.startswith(INTERNAL_PREFIX):
                return order.name
        raise UnknownTopic("the log has no topic yet: create one")

    def order(self, topic: int) -> TopicOrder | None:
        return self._known.orders.get(TopicId(topic))

    def trim_end(self, topic: int) -> int:
        """The first GLSN that the topic keeps, as far as is known."""
        order = self._known.orders.get(TopicId(topic))
        return 1 if order is None else order.trim_glsn_end

    def boundary(self, topic: int) -> int:
        """The topic's GC boundary, as far as is known."""
        order = self._known.orders.get(TopicId(topic))
        return 0 if order is None else order.boundary

    def high_watermark(self, topic: int) -> int:
        """What the view says, which may be less than nodes know by now."""
        order = self._known.orders.get(TopicId(topic))
        return 0 if order is None else order.high_watermark

    def is_sealed(self, stream: StreamId) -> bool:
        """Whether a stream takes no appends any more, as far as is known."""
        order = self._known.streams.get(stream)
        return order is not None and order.status is not StreamStatus.RUNNING

    async def find_sealed(self, streams: Iterable[int], seconds: float) -> int | None:
        """One of these that takes no appends any more; a new view is asked for before it is told,
        since it may be open again."""
        found = [stream for stream in streams if self.is_sealed(StreamId(stream))]
        if found:
            with suppress(Unreachable):
                await self.refresh(seconds)
        return next((stream for stream in found if self.is_sealed(StreamId(stream))), None)

    def hosts(self, stream: StreamId) -> tuple[NodeId, ...]:
        """The nodes that hold a stream, its leader first."""
        order = self._known.streams.get(stream)
        if order is None:
            return ()
        others = [node for node in order.ensemble if node != order.leader]
        return (order.leader, *others) if order.leader in order.ensemble else tuple(others)

    def address(self, node: NodeId) -> str:
        """Where clients find a node; empty if that is not known."""
        return self._known.addresses.get(node, "")

    def nodes(self) -> list[NodeId]:
        return sorted(self._known.addresses)

    # -- following ----------------------------------------------------------------------------

    def listen(self, told: Callable[[], None]) -> None:
        """Call ``told`` after each new view."""
        self._listeners.append(told)

    async def wait_for_change(self, seconds: float) -> bool:
        """Wait for the next view; False when ``seconds`` have passed."""
        if seconds <= 0:
            return False
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait_for(waiter, seconds)
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    async def refresh(self, seconds: float) -> MetadataView:
        """A view with all that was answered before; Unreachable if none can be had."""
        try:
            view = await self._looks.look(seconds)
        except DeadlineExceeded as error:
            raise Unreachable(f"the metadata repository does not answer: {error}") from error
        if self._metadata.view is None or self._metadata.view.age < view.age:
            self._on_view(view)
        return view

    async def find_topic(
        self, name: str, seconds: float, streams: Sequence[int] = ()
    ) -> TopicManifest:
        """A topic by its name, which may be so new that no view with it came yet.

        So may be its ``streams`` that somebody asks for.
        """
        known = self._known.topics.get(name)
        if known is None or not set(streams).issubset(known.streams):
            await self.refresh(seconds)
        return self.topic(name)

    def doubts(self, name: str) -> bool:
        """Whether what is not known of a topic may only be too new.  For any thread.

        If it may, somebody looks soon, and it is certain when the caller comes again.
        """
        if self._doubts.get(name, 0.0) > self._loop.time():
            return False
        self._loop.call_soon_threadsafe(self._doubt, name)
        return True

    async def close(self) -> None:
        refreshing = self._refreshing
        if refreshing is not None:
            refreshing.cancel()
            with suppress(asyncio.CancelledError):
                await refreshing
        await self._looks.close()

    def _doubt(self, name: str) -> None:
        if self._doubts.get(name, 0.0) > self._loop.time():
            return  # It was settled meanwhile.
        if len(self._doubts) >= _DOUBTS_MAX:
            self._doubts.clear()
        self._doubts[name] = 0.0
        if self._refreshing is None:
            self._refreshing = self._loop.create_task(self._settle_doubts())

    async def _settle_doubts(self) -> None:
        names = [name for name, until in self._doubts.items() if until == 0.0]
        try:
            await self.refresh(self._fresh_seconds)
        except LogError:
            for name in names:  # Whoever asks again is told to come again, once more.
                self._doubts.pop(name, None)
        else:
            sure = self._loop.time() + _SURE_SECONDS
            self._doubts.update(dict.fromkeys(names, sure))
        finally:
            self._refreshing = None

    def _on_view(self, view: MetadataView) -> None:
        orders = {order.topic: order for order in view.topics}
        if view.number == self._number:  # Nothing but cuts.
            self._known = replace(self._known, orders=orders)
            return
        self._number = view.number
        self._known = _Known(
            topics={order.name: manifest_of(order) for order in view.topics if order.name},
            orders=orders,
            streams={order.stream: order for order in view.streams},
            addresses={
                node.node: words[1]
                for node in view.nodes
                if len(words := node.address.split(" ")) > 1
            },
        )
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        for listener in self._listeners:
            listener()


def manifest_of(order: TopicOrder) -> TopicManifest:
    """A topic as nodes describe it on disk and to clients."""
    return TopicManifest(
        topic=order.topic,
        name=order.name,
        streams=tuple(order.streams),
        key_streams=order.key_streams,
        versions=order.versions,
    )
