"""Sessions in which this node leads others: their connections, and what is sent on them.

Invariants:
  L1  outputs of a session are carried out in their order
  L2  of a connection that was left nothing is told any more
  L3  there is a session with each node that shares a stream with this one, and for a while with
      each that a replica has something to say to
  L4  a session to which something was told or given in a turn is looked at in that turn
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Final

from tidelog.core.session.node_leader import NodeLeader
from tidelog.core.session.node_messages import has_answer
from tidelog.core.session.node_output import Ask, Connect, Heard, Leave, NodeOptions
from tidelog.errors import BadFrame, LogError
from tidelog.formats.node_messages import decode_node_answer, encode_node_message
from tidelog.formats.replica_messages import Payload
from tidelog.formats.wire import FrameHeader
from tidelog.net.connection import FrameConnection
from tidelog.runtime.storage_node.ports import Mail
from tidelog.runtime.storage_node.turns import Word
from tidelog.types import NodeId, StreamId

_logger: Final = logging.getLogger(__name__)

IDLE_TICKS: Final = 600
"""A session with a node that shares no stream ends when it was not used for so long."""
NO_ANSWER: Final = 0
"""The number of all requests that have no answer."""


class _Line:
    """One connection to a follower, from the moment that it is wanted."""

    def __init__(self, session: LeaderSession, number: int) -> None:
        self._session = session
        self.number = number
        self.connection: FrameConnection | None = None
        self.dialing: asyncio.Task[None] | None = None
        self._asked = 0
        self._answered = 0
        self._is_left = False

    def ask(self, ask: Ask) -> None:
        if self.connection is None:
            return
        number = NO_ANSWER
        if has_answer(ask.request):
            number = self._asked = self._asked + 1
        self.connection.send(
            encode_node_message(ask.request), request=number, attachments=ask.attachment
        )

    def leave(self) -> None:
        """L2."""
        self._is_left = True
        if self.dialing is not None:
            self.dialing.cancel()
        if self.connection is not None:
            self.connection.close()

    async def dial(self, mail: Mail, target: NodeId) -> None:
        try:
            connection = await mail.open_session(target, self)
        except LogError as error:
            _logger.debug("no session with node %s: %s", target, error)
            self._tell_lost()
            return
        self.connection = connection
        if self._is_left or connection.is_lost:
            connection.close()
            self._tell_lost()
            return
        self._session.tell(partial(self._session.leader.connected, self.number))

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        if self._is_left:
            return
        self._answered += 1
        if header.request != self._answered or len(attachment):
            raise BadFrame(f"answer {header.request} came instead of {self._answered}")
        answer = decode_node_answer(message)
        self._session.tell(partial(self._session.leader.answered, self.number, answer))

    def on_broken(self, error: LogError) -> None:
        _logger.warning("node %s: %s", self._session.leader.follower, error)
        if not self._is_left:
            self._session.tell(partial(self._session.leader.undecodable, self.number))
        if self.connection is not None:
            self.connection.close()

    def on_lost(self, error: Exception | None) -> None:
        if self.connection is not None:  # If not, who dials tells.
            self._tell_lost()

    def _tell_lost(self) -> None:
        if not self._is_left:
            self._is_left = True
            self._session.tell(partial(self._session.lost, self.number))


class LeaderSession:
    """One session: its core and its connections."""

    def __init__(self, leader: NodeLeader, mail: Mail, tell: Callable[[Word], None]) -> None:
        """``tell`` has its core told something in the next turn."""
        self.leader = leader
        self.tell = tell
        self.idle_ticks = 0
        self._mail = mail
        self._lines: dict[int, _Line] = {}
        self._closing: list[FrameConnection] = []
        self._ending: set[asyncio.Task[None]] = set()

    def take(self) -> list[Heard]:
        """Carry out what the core wants (L1); return what replicas are to hear."""
        heard: list[Heard] = []
        for output in self.leader.take():
            match output:
                case Ask():
                    line = self._lines.get(output.connection)
                    if line is not None:
                        line.ask(output)
                case Heard():
                    heard.append(output)
                case Connect():
                    self._connect(output.connection)
                case Leave():
                    self._leave(output.connection)
        return heard

    def lost(self, number: int) -> None:
        self._lines.pop(number, None)
        self.leader.lost(number)

    @property
    def is_ending(self) -> bool:
        """Whether connections of it are still to be closed."""
        return bool(self._ending)

    async def end(self) -> None:
        """Wait until nothing of it is left; ``NodeLeader.close`` and ``take`` come before."""
        for connection in self._closing:
            connection.abort()
        while self._ending:
            await asyncio.wait(self._ending)

    def _connect(self, number: int) -> None:
        line = self._lines[number] = _Line(self, number)
        line.dialing = self._start(line.dial(self._mail, self.leader.follower))

    def _leave(self, number: int) -> None:
        line = self._lines.pop(number, None)
        if line is not None:
            line.leave()
            if line.connection is not None:
                self._closing = [one for one in self._closing if not one.is_lost]
                self._closing.append(line.connection)
                self._start(line.connection.wait_closed())

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


class LeaderSessions:
    """All sessions in which this node leads.  Belongs to one event loop."""

    def __init__(
        self,
        *,
        cluster_id: str,
        node: NodeId,
        options: NodeOptions,
        mail: Mail,
        put: Callable[[Word], None],
    ) -> None:
        """``put`` has something told in the next turn."""
        self._cluster_id = cluster_id
        self._node = node
        self._options = options
        self._mail = mail
        self._put = put
        self._sessions: dict[NodeId, LeaderSession] = {}
        self._touched: dict[NodeId, LeaderSession] = {}
        """Those that may have something to do in this turn (L4)."""
        self._shared: frozenset[NodeId] = frozenset()
        self._ended: list[LeaderSession] = []

    @property
    def leaders(self) -> Iterator[NodeLeader]:
        """The cores, for metrics."""
        return (session.leader for session in self._sessions.values())

    def share(self, nodes: Iterable[NodeId]) -> None:
        """Keep sessions with the nodes that share streams with this one (L3)."""
        self._shared = frozenset(nodes) - {self._node}
        for node in sorted(self._shared):
            self._session(node)

    def carry(self, target: NodeId, stream: StreamId, payload: Payload, *, in_epoch: bool) -> bool:
        """Send a message; False: it was not taken, and its replica will repeat it."""
        session = self._touched[target] = self._session(target)
        session.idle_ticks = 0
        return session.leader.carry(stream, payload.message, payload.attachment, in_epoch=in_epoch)

    def undeliverable(self, node: NodeId) -> None:
        """What a node said is no message between replicas."""
        session = self._sessions.get(node)
        if session is not None:
            self._touched[node] = session
            session.leader.undeliverable()

    def dispose(self, stream: StreamId) -> None:
        """There is no replica of a stream here any more."""
        for node, session in self._sessions.items():
            self._touched[node] = session
            session.leader.dispose(stream)

    def heard(self) -> list[Heard]:
        """Send what is due, and return what came for replicas."""
        return [one for session in self._touched.values() for one in session.take()]

    def end_turn(self) -> list[Heard]:
        """Close epochs: one group commit for each follower; send all, and return what came."""
        for session in self._touched.values():
            session.leader.commit()
        heard = self.heard()
        self._touched.clear()
        return heard

    def tick(self) -> None:
        """Let one unit of time pass."""
        for node, session in list(self._sessions.items()):
            self._touched[node] = session
            session.leader.tick()
            session.idle_ticks += 1
            if node not in self._shared and session.idle_ticks > IDLE_TICKS:
                self._close(node)

    async def stop(self) -> None:
        """End all sessions."""
        for node in list(self._sessions):
            self._close(node)
        for session in self._ended:
            await session.end()

    def _session(self, node: NodeId) -> LeaderSession:
        session = self._sessions.get(node)
        if session is None:
            leader = NodeLeader(
                cluster_id=self._cluster_id,
                node=self._node,
                follower=node,
                options=self._options,
            )
            session = LeaderSession(leader, self._mail, partial(self._tell, node))
            self._sessions[node] = self._touched[node] = session
        return session

    def _tell(self, node: NodeId, word: Word) -> None:
        self._put(partial(self._told, node, word))

    def _told(self, node: NodeId, word: Word) -> None:
        """L4."""
        session = self._sessions.get(node)
        if session is not None:
            self._touched[node] = session
        word()

    def _close(self, node: NodeId) -> None:
        session = self._sessions.pop(node)
        self._touched.pop(node, None)
        session.leader.close()
        session.take()
        self._ended = [one for one in self._ended if one.is_ending]
        self._ended.append(session)
