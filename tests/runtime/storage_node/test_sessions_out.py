"""Which of a node's sessions are looked at in a turn: those that may have something to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.runtime.storage_node.scripted import OPTIONS, STREAM, scene
from tidelog.core.session.node_leader import NodeLeader
from tidelog.core.session.node_output import LeaderOutput
from tidelog.errors import ConnectionLost
from tidelog.formats.cluster_messages import ClusterMessage
from tidelog.formats.replica_messages import Payload
from tidelog.net.connection import FrameConnection, FrameHandler
from tidelog.runtime.storage_node.sessions_out import LeaderSessions
from tidelog.runtime.storage_node.turns import Word
from tidelog.types import NodeId

ME, NEAR, FAR = NodeId(1), NodeId(2), NodeId(3)


class NoMail:
    """Satisfies ``ports.Mail``: no other node can be reached, once it is known to be so."""

    def __init__(self) -> None:
        self.is_known = asyncio.Event()

    def send(self, target: NodeId, message: ClusterMessage) -> None:
        raise AssertionError("nothing but sessions is tried here")

    def on(
        self,
        kinds: tuple[type, ...],
        receive: Callable[[NodeId, ClusterMessage], None],
        *,
        at_once: bool = False,
    ) -> None:
        raise AssertionError("nothing but sessions is tried here")

    async def open_session(self, target: NodeId, handler: FrameHandler) -> FrameConnection:
        await self.is_known.wait()
        raise ConnectionLost(f"node {target} cannot be reached")

    def on_session(self, accept: Callable[[NodeId, FrameConnection], FrameHandler]) -> None:
        raise AssertionError("nobody comes here")


class Sessions:
    """The sessions of a node, and at which of them it looked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: asyncio.Queue[Word] = asyncio.Queue()
        self.looked: list[NodeId] = []
        self.mail = NoMail()
        self.core = LeaderSessions(
            cluster_id="a cluster",
            node=ME,
            options=OPTIONS.session,
            mail=self.mail,
            put=self.words.put_nowait,
        )
        take = NodeLeader.take

        def look(leader: NodeLeader) -> list[LeaderOutput]:
            self.looked.append(leader.follower)
            return take(leader)

        monkeypatch.setattr(NodeLeader, "take", look)

    def turn(self) -> set[NodeId]:
        """Take a turn; return the nodes whose sessions were looked at."""
        self.looked.clear()
        self.core.heard()
        self.core.end_turn()
        return set(self.looked)


@asynccontextmanager
async def shared() -> AsyncIterator[Sessions]:
    """Sessions with two nodes, both about to be opened, after their first turn."""
    with pytest.MonkeyPatch.context() as patch:
        sessions = Sessions(patch)
        sessions.core.share([NEAR, FAR])
        assert sessions.turn() == {NEAR, FAR}
        yield sessions
        await sessions.core.stop()


@scene
async def test_sessions_without_anything_to_do_are_not_looked_at() -> None:
    async with shared() as sessions:
        assert sessions.turn() == set()


@scene
async def test_a_session_that_is_given_a_message_is_looked_at_in_that_turn_alone() -> None:
    async with shared() as sessions:
        sessions.core.carry(FAR, STREAM, Payload(b"message", ()), in_epoch=True)
        assert sessions.turn() == {FAR}
        assert sessions.turn() == set()


@scene
async def test_a_session_that_is_told_something_is_looked_at_in_that_turn_alone() -> None:
    async with shared() as sessions:
        sessions.mail.is_known.set()
        word = await sessions.words.get()  # That the first connection could not be made.
        assert sessions.turn() == set()
        word()
        assert sessions.turn() == {NEAR}
        assert sessions.turn() == set()


@scene
async def test_all_sessions_are_looked_at_when_time_passes() -> None:
    async with shared() as sessions:
        sessions.core.tick()
        assert sessions.turn() == {NEAR, FAR}
