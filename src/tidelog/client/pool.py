"""The connections of one client: the first one, and those straight to nodes that were named.

The first one serves for everything; a node passes on what others have to do.  The others only save
that detour.

  P1  nobody waits for a direct connection: until it is there, the first one is used
  P2  a node that cannot be reached is left alone for a while
  P3  direct connections are bounded, and closed when nobody has used them for a while
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tidelog.client.channel import Channel
from tidelog.client.known_topics import KnownTopics
from tidelog.client.link import Reply
from tidelog.client.routes import Routes
from tidelog.errors import BadOption, ConnectionLost, LogError, NotLeader, Unreachable
from tidelog.formats.messages import Describe, Request, TopicDescription
from tidelog.net.endpoint import Endpoint

DIRECT_MAX: Final = 16
IDLE_SECONDS: Final = 60.0
AVOID_SECONDS: Final = 5.0
PATIENCE: Final = 4
"""Tries in a row after which hints are not trusted any more."""
LOOK_SECONDS: Final = 1.0
"""What a look at another node may take."""


class Pool:
    """All calls belong into one event loop."""

    def __init__(self, main: Channel) -> None:
        self.main: Final = main
        self.routes: Final = Routes()
        self.topics: Final = KnownTopics()
        self._loop = asyncio.get_running_loop()
        self._direct: dict[Endpoint, Channel] = {}
        self._used: dict[Endpoint, float] = {}
        """When each direct one was used last."""
        self._avoided: dict[Endpoint, float] = {}
        """Until when nodes are left alone (P2)."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self.on_up: Callable[[Channel], None] = lambda _channel: None
        self.on_down: Callable[[Channel], None] = lambda _channel: None
        self.is_wanted: Callable[[Channel], bool] = lambda _channel: False
        """Asks whether somebody has something to send over a direct connection."""
        self.on_read: Callable[[str], None] = lambda _topic: None
        """Told that a topic is read: where it lies may have changed since it was described."""

    @property
    def is_cluster(self) -> bool:
        return self.routes.is_cluster

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return any(channel.link is not None for channel in (self.main, *self._direct.values()))

    def learn(self, described: TopicDescription) -> None:
        """Take in what a topic is like, and where it lies."""
        self.topics.learn(described)
        self.routes.learn(described)
        if self.routes.is_cluster:
            self.main.add_endpoints(self.routes.nodes)

    # -- whom to send to ----------------------------------------------------------------------

    def towards(self, topic: str, stream: int, failures: int) -> Channel:
        """Over which connection to send appends of a log stream.

        ``failures``: how many tries in a row were in vain.
        """
        if not self.routes.is_cluster:
            return self.main
        node = self.routes.leader(topic, stream)
        if failures >= PATIENCE:
            node = self._anybody(failures)
        return self._over(node)

    def reading(self, topic: str, streams: Sequence[int], turn: int | None = None) -> Channel:
        """Over which connection to read log streams: to a node that has them all.

        Readers with a ``turn`` go to followers first and spread over them; without one they save
        a connection, if the first one leads to such a node.
        """
        if not self.routes.is_cluster or (turn is None and not streams):
            return self.main
        holders = self.routes.holders(topic, streams, turn or 0)
        if turn is None and self.main.endpoint in holders:
            return self.main
        return self._over(next((node for node in holders if not self._is_avoided(node)), None))

    def _anybody(self, failures: int) -> Endpoint | None:
        """A node, another one each time; None: the one at the end of the first connection."""
        known = (None, *self.main.endpoints)
        return known[failures % len(known)]

    def _over(self, node: Endpoint | None) -> Channel:
        direct = None if node is None else self._to(node)
        if direct is None or direct.link is not None:
            return direct or self.main
        direct.want()
        return self.main  # P1

    def _to(self, node: Endpoint) -> Channel | None:
        """The channel to a node; None if there is none to be had."""
        if node == self.main.endpoint:
            return self.main
        if self._is_avoided(node):
            return None
        channel = self._direct.get(node) or self._open(node)
        if channel is not None:
            self._used[node] = self._loop.time()
        return channel

    def _is_avoided(self, node: Endpoint) -> bool:
        return self._avoided.get(node, 0.0) > self._loop.time()

    def _avoid(self, node: Endpoint, seconds: float = AVOID_SECONDS) -> None:
        self._avoided[node] = self._loop.time() + seconds

    # -- direct connections (P3) --------------------------------------------------------------

    def _open(self, node: Endpoint) -> Channel | None:
        if self.main.closed or not self._has_room():
            return None
        try:
            channel = self.main.beside(node)
        except BadOption:
            self._avoid(node, float("inf"))
            return None
        channel.on_up = lambda: self.on_up(channel)
        channel.on_down = lambda: self.on_down(channel)
        channel.on_failed = partial(self._avoid, node)
        channel.on_hopeless = partial(self._on_hopeless, node)
        channel.wanted = partial(self._is_wanted, node, channel)
        self._direct[node] = channel
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(IDLE_SECONDS / 2, self._sweep)
        return channel

    def _has_room(self) -> bool:
        """Whether one more is allowed; the one that was used least recently may have to go."""
        if len(self._direct) < DIRECT_MAX:
            return True
        idle = [node for node, channel in self._direct.items() if not self.is_wanted(channel)]
        if not idle:
            return False
        self._drop(min(idle, key=self._used.__getitem__))
        return True

    def _is_wanted(self, node: Endpoint, channel: Channel) -> bool:
        if self._is_avoided(node) or node not in self._direct:
            return False
        fresh = self._used[node] + LOOK_SECONDS > self._loop.time()
        return fresh or self.is_wanted(channel)

    def _on_hopeless(self, node: Endpoint, _error: LogError) -> None:
        """Another log lives there, or it does not know us: no hint will change that."""
        self._avoid(node, float("inf"))

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = self._loop.time() - IDLE_SECONDS
        for node, channel in list(self._direct.items()):
            if self._used[node] < oldest and not self.is_wanted(channel):
                self._drop(node)
        if self._direct:
            self._sweeper = self._loop.call_later(IDLE_SECONDS / 2, self._sweep)

    def _drop(self, node: Endpoint) -> None:
        del self._used[node]
        task = self._loop.create_task(self._direct.pop(node).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # -- asking -------------------------------------------------------------------------------

    async def ask_holder(
        self,
        request: Request,
        topic: str,
        streams: Sequence[int],
        *,
        seconds: float,
        waits: bool,
        turn: int | None = None,
    ) -> Reply:
        """The answer to a read, from a node that has the log streams if one can be had."""
        self.on_read(topic)
        channel = self.reading(topic, streams, turn)
        return await self._ask_over(channel, request, seconds=seconds, waits=waits)

    async def ask_leader(
        self, request: Request, topic: str, stream: int, *, seconds: float
    ) -> Reply:
        """The answer to a read, from the leader of a log stream if it can be had."""
        channel = self.towards(topic, stream, 0)
        return await self._ask_over(channel, request, seconds=seconds, waits=False)

    async def _ask_over(
        self, channel: Channel, request: Request, *, seconds: float, waits: bool
    ) -> Reply:
        """Ask for something that changes nothing; if that fails, ask over the first connection."""
        deadline = self._loop.time() + seconds
        if channel is not self.main:
            try:
                return await channel.ask(
                    request, seconds=seconds, repeat=False, patient=False, waits=waits
                )
            except (ConnectionLost, Unreachable, NotLeader):
                pass
        return await self.main.ask(request, seconds=deadline - self._loop.time(), waits=waits)

    async def look_elsewhere(self, topic: str, here: Channel) -> TopicDescription | None:
        """What another node says of a topic; None if none does."""
        for channel in self._others(here):
            try:
                reply = await channel.ask(Describe(topic), seconds=LOOK_SECONDS)
            except LogError:
                continue
            if isinstance(reply.answer, TopicDescription):
                self.learn(reply.answer)
                return reply.answer
        return None

    async def leave(self, channel: Channel, error: LogError) -> None:
        """Use another node than the one at the end of a channel, if there is one."""
        if channel.endpoint is not None and channel is not self.main:
            self._avoid(channel.endpoint)
        elif channel.link is not None and self.main.has_others:
            await channel.leave(channel.link, error)

    def _others(self, here: Channel) -> list[Channel]:
        """Channels to other nodes than the one at the end of ``here``, those that are up first."""
        nodes = [node for node in self.main.endpoints if node != here.endpoint]
        channels = [channel for channel in map(self._to, nodes) if channel is not None]
        if here is not self.main:
            channels.insert(0, self.main)
        return sorted(dict.fromkeys(channels), key=lambda channel: channel.link is None)

    # -- end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Hang up everywhere."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        direct, self._direct = self._direct, {}
        # The main one first: whoever looks for a way around from now on finds that all is closed.
        for channel in (self.main, *direct.values()):
            await channel.close()
        while self._closing:
            await asyncio.wait(self._closing)
