"""What a metadata node tells others of the metadata: when they ask, and when it changes.

Invariants:
  T1  who asked in the last seconds is told of every change but cuts, once for each turn of the loop
  T2  a linearizable answer is given only when the repository says that its state is here
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, TypeAlias

from tidelog.core.metadata.repository import Repository
from tidelog.core.metadata.view import MetadataView, view_of
from tidelog.core.raft.entries import Index, Membership
from tidelog.formats.cluster_messages import ReadView, ViewAnswer, ViewLost, ViewSame, encode_view
from tidelog.limits import (
    METADATA_VIEW_BYTES_MAX,
    METADATA_VIEW_EAGER_BYTES,
    METADATA_WATCHERS_MAX,
)
from tidelog.runtime.events import tell
from tidelog.runtime.post import Post
from tidelog.types import NodeId, Version

_logger: Final = logging.getLogger(__name__)

WATCH_SECONDS: Final = 5.0
"""How long somebody who asked is told of changes; whoever watches asks more often."""
_PUSHED: Final = 0

_Stamp: TypeAlias = tuple[int, bool, NodeId, Membership]


class Telling:
    """Who is to be told, and of what."""

    __slots__ = (
        "_encoded",
        "_encoded_at",
        "_loop",
        "_next_read",
        "_post",
        "_reads",
        "_repository",
        "_told",
        "_view",
        "_watchers",
    )

    def __init__(self, post: Post, repository: Repository) -> None:
        self._loop = asyncio.get_running_loop()
        self._post = post
        self._repository = repository
        self._watchers: dict[NodeId, float] = {}
        """Until when each of them is told."""
        self._reads: dict[int, tuple[NodeId, ReadView]] = {}
        self._next_read = 0
        self._told = self._stamp
        self._view: MetadataView
        self._encoded = b""
        self._encoded_at: tuple[Index, Version, NodeId, Membership] | None = None

    def ask(self, asker: NodeId, message: ReadView) -> None:
        """Answer, now or when the state is here (T2), and from now on tell of changes (T1)."""
        if asker in self._watchers or len(self._watchers) < METADATA_WATCHERS_MAX:
            self._watchers[asker] = self._loop.time() + WATCH_SECONDS
        if message.is_linearizable:
            self._next_read += 1
            self._reads[self._next_read] = (asker, message)
            self._repository.read(self._next_read)
        else:
            self._answer(asker, message)

    def serve(self, read: int) -> None:
        """The state that was asked for is here."""
        asker, message = self._reads.pop(read)
        self._answer(asker, message)

    def lose(self, read: int) -> None:
        """Nobody knows what is newest."""
        asker, message = self._reads.pop(read)
        self._post.send(asker, ViewLost(message.number))

    def tell_changes(self) -> None:
        """Tell all who watch if there is something new, at the end of a turn (T1)."""
        stamp = self._stamp
        if stamp == self._told:
            return
        self._told = stamp
        now = self._loop.time()
        self._watchers = {node: end for node, end in self._watchers.items() if end > now}
        for watcher in self._watchers:
            self._send(watcher, _PUSHED)

    @property
    def _stamp(self) -> _Stamp:
        machine, raft = self._repository.machine, self._repository.raft
        return machine.changes, machine.is_paused, raft.leader, raft.membership

    def _answer(self, asker: NodeId, message: ReadView) -> None:
        self._encode()
        if self._is_known(message):
            self._post.send(asker, ViewSame(message.number))
        else:
            self._send(asker, message.number)

    def _is_known(self, message: ReadView) -> bool:
        """Whether the asker would learn nothing new, or little of a view that is large."""
        view = self._view
        if (view.leader, view.members) != (message.known_leader, message.known_members):
            return False
        if not message.is_linearizable and len(self._encoded) > METADATA_VIEW_EAGER_BYTES:
            return view.number <= message.known_number
        return view.age <= (message.known_number, message.known_version)

    def _send(self, target: NodeId, number: int) -> None:
        self._encode()
        if len(self._encoded) > METADATA_VIEW_BYTES_MAX:
            tell(_logger, "view too large", logging.ERROR, bytes=len(self._encoded))
        else:
            self._post.send(target, ViewAnswer(number, self._encoded))

    def _encode(self) -> None:
        """Have the bytes of what is applied now."""
        machine, raft = self._repository.machine, self._repository.raft
        now = (raft.applied, machine.order.version, raft.leader, raft.membership)
        if now != self._encoded_at:
            self._view = view_of(machine, raft)
            self._encoded = encode_view(self._view)
            self._encoded_at = now
