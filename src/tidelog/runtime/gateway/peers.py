"""Connections to the other storage nodes of the cluster, over which requests are passed on.

One for each node, made when it is first needed and again when it broke.  The other side serves
what comes on it from its own replicas alone, so nothing is passed on twice.

Invariants:
  P1  appends to one node leave in the order in which they were posted
  P2  nothing is sent twice: what was sent and had no answer is told to be uncertain
  P3  what waits to be sent is bounded, and everything that waits has a deadline
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from tidelog.client.channel import timeout_ms
from tidelog.client.link import Link, Reply, open_link
from tidelog.client.refusals import error_of
from tidelog.errors import (
    BadFrame,
    BadOption,
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    LogClosed,
    LogError,
    NotLeader,
    Unreachable,
)
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import Answer, AppendBatches, Refused, Request
from tidelog.limits import PASSED_ON_BYTES_MAX
from tidelog.net.dialing import Dialer
from tidelog.net.endpoint import parse_endpoint
from tidelog.net.security import ClientSecurity
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.types import NodeId

INTERNAL_CLIENT: Final = "tidelog-node"
"""What nodes call themselves in the hello to one another."""
_PAUSE_SECONDS: Final = 0.05
"""After an attempt to connect that failed nobody tries again for so long."""

A = TypeVar("A", bound=Answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """What all connections to other nodes have in common."""

    cluster_id: bytes
    security: ClientSecurity
    dial_seconds: float
    keep_alive_seconds: float


@dataclass(slots=True, eq=False)
class PassedOn:
    """An append on its way to the node that leads; ``told`` once: the reply or an error."""

    message: AppendBatches
    attachments: Sequence[Buffer]
    size: int
    deadline: float
    told: Callable[[Reply | LogError], None]
    is_over: bool = False

    def end(self, outcome: Reply | LogError) -> None:
        if not self.is_over:
            self.is_over = True
            self.told(outcome)


class Peer:
    """The way to one node."""

    def __init__(self, node: NodeId, address: str, settings: PeerSettings) -> None:
        self.node = node
        self.address = address
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._not_before = 0.0
        self._trouble: LogError = Unreachable(f"node {node} was not called yet")
        self._queue: deque[PassedOn] = deque()
        self._queued_bytes = 0
        self._pumping: asyncio.Task[None] | None = None
        self._closed = False

    # -- requests -----------------------------------------------------------------------------

    async def ask(
        self,
        request: Request,
        *,
        seconds: float,
        waits: bool = False,
        attachments: Sequence[Buffer] = (),
    ) -> Reply:
        """The answer to a request, which is sent once at most; raises what it was refused with.

        Unreachable: nothing was sent.  ConnectionLost, DeadlineExceeded: it may have its effect.
        ``waits``: it may take its time at the end of a log, and must not hold up others.
        """
        deadline = self._loop.time() + seconds
        link = await self._reserved(deadline, waits=waits)
        try:
            return await self._ask(link, request, attachments, deadline, seconds)
        finally:
            if waits:
                link.waits.release()

    async def _ask(
        self,
        link: Link,
        request: Request,
        attachments: Sequence[Buffer],
        deadline: float,
        seconds: float,
    ) -> Reply:
        answered: asyncio.Future[Reply | None] = self._loop.create_future()
        left = deadline - self._loop.time()
        try:
            number = link.post(
                request,
                partial(_set, answered),
                attachments=attachments,
                timeout_ms=timeout_ms(left),
            )
        except BaseException:
            link.release()
            raise
        try:
            async with asyncio.timeout_at(deadline):
                reply = await answered
        except TimeoutError:
            raise DeadlineExceeded(
                f"node {self.node} had no answer to {type(request).__name__} within {seconds:g} s"
            ) from None
        finally:
            link.cancel(number)  # Does nothing if it was answered.
        if reply is None:
            raise ConnectionLost(f"the connection to node {self.node} broke: {self._trouble}")
        if isinstance(reply.answer, Refused):
            raise refusal(reply.answer)
        return reply

    async def ask_for(
        self, request: Request, kind: type[A], *, seconds: float, waits: bool = False
    ) -> A:
        """The same for an answer of which the kind is known."""
        answer = (await self.ask(request, seconds=seconds, waits=waits)).answer
        if not isinstance(answer, kind):
            raise BadFrame(f"node {self.node} answered with {type(answer).__name__}")
        return answer

    async def _reserved(self, deadline: float, *, waits: bool) -> Link:
        try:
            async with asyncio.timeout_at(deadline):
                link = await self._connected()
                await (link.reserve_waiting() if waits else link.reserve())
                return link
        except TimeoutError:
            raise Unreachable(
                f"node {self.node} could not be asked in time; nothing was sent"
            ) from None

    # -- appends (P1) -------------------------------------------------------------------------

    def pass_on(self, append: PassedOn) -> None:
        """Send an append behind all that came before."""
        link = self._link
        if not self._queue and link is not None and not link.gone and link.try_reserve():
            self._post(link, append)
            return
        if self._queued_bytes + append.size > PASSED_ON_BYTES_MAX:
            append.end(Busy(f"too much waits to be passed on to node {self.node}"))
            return
        self._queue.append(append)
        self._queued_bytes += append.size
        if self._pumping is None:
            self._pumping = self._loop.create_task(self._pump())

    async def _pump(self) -> None:
        try:
            while self._queue:
                link = await self._connected()
                await link.reserve()
                append = self._take()
                if append is None:
                    link.release()
                else:
                    self._post(link, append)
        except LogError as error:
            self._fail_queue(error)
        finally:
            self._pumping = None

    def _take(self) -> PassedOn | None:
        """The next append that somebody still waits for."""
        while self._queue:
            append = self._queue.popleft()
            self._queued_bytes -= append.size
            if append.is_over:
                continue
            if append.deadline > self._loop.time():
                return append
            append.end(Busy("there was no time left to pass the append on: nothing was sent"))
        return None

    def _fail_queue(self, error: LogError) -> None:
        while self._queue:
            append = self._queue.popleft()
            self._queued_bytes -= append.size
            append.end(Unreachable(f"{error}; nothing was sent"))

    def _post(self, link: Link, append: PassedOn) -> None:
        try:
            link.post(
                append.message,
                partial(self._on_answer, append),
                attachments=append.attachments,
                timeout_ms=timeout_ms(append.deadline - self._loop.time()),
            )
        except (TypeError, ValueError, OverflowError) as error:
            link.release()
            append.end(BadOption(f"the append cannot be passed on: {error}"))

    def _on_answer(self, append: PassedOn, reply: Reply | None) -> None:
        if reply is None:
            append.end(ConnectionLost(f"the connection to node {self.node} broke: {self._trouble}"))
        elif isinstance(reply.answer, Refused):
            append.end(refusal(reply.answer))
        else:
            append.end(reply)

    # -- connection ---------------------------------------------------------------------------

    async def _connected(self) -> Link:
        """The connection, made if there is none; all who want one share an attempt."""
        if self._closed:
            raise self._given_up()
        if self._link is not None and not self._link.gone:
            return self._link
        if self._connecting is None:
            if self._loop.time() < self._not_before:
                raise Unreachable(str(self._trouble))
            self._connecting = self._loop.create_task(self._connect())
            self._connecting.add_done_callback(_look_at)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            asker = asyncio.current_task()
            if not connecting.cancelled() or (asker is not None and asker.cancelling()):
                raise
            # Only the attempt was: ``close`` ends it, and nobody who asks for the node.
            raise self._given_up() from None

    async def _connect(self) -> Link:
        settings = self._settings
        try:
            endpoint = parse_endpoint(self.address)
            async with asyncio.timeout(settings.dial_seconds):
                link = await open_link(
                    endpoint,
                    Dialer.to((endpoint,), settings.security),
                    client=INTERNAL_CLIENT,
                    log_id=settings.cluster_id,
                    on_gone=self._on_gone,
                    keep_alive=settings.keep_alive_seconds,
                )
        except (LogError, TimeoutError) as error:
            self._not_before = self._loop.time() + _PAUSE_SECONDS
            self._trouble = Unreachable(
                f"node {self.node} at {self.address} cannot be reached: {error or 'no answer'}"
            )
            raise self._trouble from error
        finally:
            self._connecting = None
        self._link = link
        return link

    def _on_gone(self, error: LogError) -> None:
        self._link = None
        self._trouble = Unreachable(str(error))

    def _given_up(self) -> Unreachable:
        return Unreachable(f"node {self.node} has moved, or this node is stopping")

    async def close(self) -> None:
        """Hang up; what waits is told."""
        self._closed = True
        tasks = [task for task in (self._connecting, self._pumping) if task is not None]
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, LogError):
                await task
        self._fail_queue(self._given_up())
        link = self._link
        if link is not None:
            link.close()
            await link.wait_closed()


class Peers:
    """All other nodes, as far as they were needed."""

    def __init__(self, cluster: ClusterMap, settings: PeerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._peers: dict[NodeId, Peer] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def peer(self, node: NodeId) -> Peer:
        """The way to a node; Unreachable if nobody knows where it is."""
        address = self._cluster.address(node)
        if not address or self._closed:
            raise Unreachable(f"nobody knows where node {node} is")
        known = self._peers.get(node)
        if known is not None:
            if known.address == address:
                return known
            self._close_later(known)  # It has moved.
        made = self._peers[node] = Peer(node, address, self._settings)
        return made

    def _close_later(self, peer: Peer) -> None:
        task = asyncio.get_running_loop().create_task(peer.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            await peer.close()
        if self._closing:
            await asyncio.wait(self._closing)


def refusal(refused: Refused) -> LogError:
    """What another node refused a request with, for those who asked this one.

    That it is stopping is no news about this node.
    """
    error = error_of(refused)
    if isinstance(error, LogClosed):
        return NotLeader(f"the node that was asked is stopping: {error}")
    if isinstance(error, NotLeader):
        return NotLeader(str(error), leader=refused.leader)
    return error


def _set(future: asyncio.Future[Reply | None], reply: Reply | None) -> None:
    if not future.done():
        future.set_result(reply)


def _look_at(task: asyncio.Task[Link]) -> None:
    """So that nobody complains about an attempt that all gave up."""
    if not task.cancelled():
        task.exception()
