"""Asking and watching the metadata repository, from any process of the cluster.

A change may be asked of any metadata node, and of several: each of them makes it at most once, and
the repository at most once in all, for every change names what it has seen or what it creates.

Invariants:
  C1  views only get newer
  C2  a change is reported as made only if one of the nodes that were asked says so, and as refused
      only if none of them can have made it; else as unknown
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.view import MetadataView
from tidelog.errors import DeadlineExceeded, LogClosed
from tidelog.formats.cluster_messages import (
    AskChange,
    ChangeAnswer,
    ClusterMessage,
    ReadView,
    ViewAnswer,
    ViewLost,
    ViewSame,
    decode_view,
)
from tidelog.invariants import check
from tidelog.runtime.metadata_ask import Ask
from tidelog.runtime.post import Post
from tidelog.types import NodeId

__all__ = ["MetadataClient", "MetadataView"]

POLL_SECONDS: Final = 1.0
"""How often the view is asked for, besides being told of changes."""
SILENCE_SECONDS: Final = 0.3
"""After which another metadata node is asked."""
PAUSE_SECONDS: Final = 0.05
"""Before something is tried again for which a metadata node had no time, or no leader."""
_NUMBERS: Final = 1 << 62


class MetadataClient:
    """Knows the newest view that came, and asks for changes.  One for each process."""

    def __init__(self, post: Post, members: Sequence[NodeId]) -> None:
        """``members``: metadata nodes to begin with, whose addresses the post knows."""
        check(len(members) > 0, "a cluster has a metadata node")
        self._loop = asyncio.get_running_loop()
        self._post = post
        self._members = tuple(members)
        self._target = 0
        """Which of the members is asked: the one that answered last."""
        # Of chance, so that an answer to an earlier life of this process is not taken for ours.
        self._number = secrets.randbelow(_NUMBERS)
        self.view: MetadataView | None = None
        """The newest one that came."""
        self._told: list[Callable[[MetadataView], None]] = []
        self._asks: dict[int, Ask] = {}
        self._reads: dict[int, asyncio.Future[MetadataView | None]] = {}
        self._poll = 0
        """The number of the poll that is awaited; 0: none is."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._prefer_itself()

    async def start(self) -> None:
        """Begin to watch."""
        self._is_running = True
        self._post.on((ChangeAnswer,), self._on_change_answer)
        self._post.on((ViewAnswer, ViewSame, ViewLost), self._on_view_answer)
        self._ask_for_view()

    async def stop(self) -> None:
        """Ask no more; whoever waits gets LogClosed."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        closed = LogClosed("the process is stopping")
        for ask in self._asks.values():
            ask.fail(closed)
        for reading in self._reads.values():
            if not reading.done():
                reading.set_exception(closed)

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The nodes of the metadata repository, as far as is known."""
        return self._members

    def on_view(self, told: Callable[[MetadataView], None]) -> None:
        """Call ``told`` with each view that is newer than the one before, and with the present one
        at once if there is one."""
        self._told.append(told)
        if self.view is not None:
            told(self.view)

    # -- changes ------------------------------------------------------------------------------

    async def ask(self, change: Change, *, seconds: float) -> None:
        """Have a change made; raises the typed refusal.  DeadlineExceeded: it may be applied."""
        self._check_running()
        number = self._next_number()
        ask = self._asks[number] = Ask()
        try:
            async with asyncio.timeout(seconds):
                await self._ask_around(ask, number, change)
        except TimeoutError:
            text = f"the metadata repository did not answer within {seconds} s"
            raise DeadlineExceeded(text) from None
        finally:
            del self._asks[number]
        ask.outcome()

    async def _ask_around(self, ask: Ask, number: int, change: Change) -> None:
        while not ask.is_over():
            target = self._members[self._target]
            self._post.send(target, AskChange(number, ask.attempt(target), change))
            await ask.wait(SILENCE_SECONDS)
            if ask.is_over():
                return
            if ask.has_answered(target):
                await ask.wait_for_silent(2 * SILENCE_SECONDS)
                return
            self._turn_from(target)
            if ask.is_busy:
                await asyncio.sleep(PAUSE_SECONDS)

    def _on_change_answer(self, node: NodeId, message: ClusterMessage) -> None:
        if isinstance(message, ChangeAnswer) and message.number in self._asks:
            self._asks[message.number].answered(node, message)
            self._turn_to(node)

    # -- reads --------------------------------------------------------------------------------

    async def read(self, *, seconds: float) -> MetadataView:
        """A view that has all that was answered before the call; DeadlineExceeded if none came."""
        self._check_running()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    view = await self._read_once()
                    if view is not None:
                        return view
        except TimeoutError:
            text = f"the metadata repository told nothing within {seconds} s"
            raise DeadlineExceeded(text) from None

    async def _read_once(self) -> MetadataView | None:
        """Ask one member; None if it stays silent, or nobody leads."""
        number, target = self._next_number(), self._members[self._target]
        reading: asyncio.Future[MetadataView | None] = self._loop.create_future()
        self._reads[number] = reading
        self._post.send(target, self._request(number, is_linearizable=True))
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                view = await reading
        except TimeoutError:
            self._turn_from(target)
            return None
        finally:
            del self._reads[number]
        if view is None:
            self._turn_from(target)
            await asyncio.sleep(PAUSE_SECONDS)
        return view

    # -- watching -----------------------------------------------------------------------------

    def _ask_for_view(self) -> None:
        """Ask for what is new; the next time soon if no answer comes, later if one does."""
        if not self._is_running:
            return
        if self._poll:
            self._turn_from(self._members[self._target])
        self._poll = self._next_number()
        request = self._request(self._poll, is_linearizable=False)
        self._post.send(self._members[self._target], request)
        self._timer = self._loop.call_later(SILENCE_SECONDS, self._ask_for_view)

    def _on_view_answer(self, node: NodeId, message: ClusterMessage) -> None:
        if not self._is_running or not isinstance(message, ViewAnswer | ViewSame | ViewLost):
            return
        if isinstance(message, ViewAnswer):
            self._take_view(decode_view(message.data))
        if message.number == self._poll and self._timer is not None:
            self._poll = 0
            self._timer.cancel()
            self._timer = self._loop.call_later(POLL_SECONDS, self._ask_for_view)
        reading = self._reads.get(message.number)
        if reading is not None and not reading.done():
            reading.set_result(None if isinstance(message, ViewLost) else self.view)

    def _take_view(self, view: MetadataView) -> None:
        """Go on with a view unless a newer one came before (C1)."""
        if self.view is not None and (view.age < self.view.age or view == self.view):
            return
        self.view = view
        self._learn(view)
        for told in self._told:
            told(view)

    def _learn(self, view: MetadataView) -> None:
        """Know who the members are, and where everybody is."""
        for node, address in view.member_addresses:
            self._post.learn(node, address)
        for one in view.nodes:
            self._post.learn(one.node, one.address.partition(" ")[0])
        if view.members and view.members != self._members:
            target = self._members[self._target]
            self._members = view.members
            self._target = view.members.index(target) if target in view.members else 0
            self._prefer_itself()

    # -- whom to ask --------------------------------------------------------------------------

    def _prefer_itself(self) -> None:
        """A member of the same process is asked first: it is there as long as this one is."""
        self._turn_to(self._post.node)

    def _turn_to(self, node: NodeId) -> None:
        """Ask the one that answers."""
        if node in self._members:
            self._target = self._members.index(node)

    def _turn_from(self, silent: NodeId) -> None:
        """Ask the next one from now on, unless that was decided before."""
        if self._members[self._target] == silent:
            self._target = (self._target + 1) % len(self._members)

    def _request(self, number: int, *, is_linearizable: bool) -> ReadView:
        view = self.view
        if view is None:
            return ReadView(number, is_linearizable)
        return ReadView(
            number, is_linearizable, view.number, view.version, view.leader, view.members
        )

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _check_running(self) -> None:
        if not self._is_running:
            raise LogClosed("the process is stopping")
