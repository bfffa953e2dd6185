"""All sessions in which a node follows others: connections in, messages for its replicas out.

The node only answers.  What a replica has to say to the node that leads its stream goes with the
next answer to a group commit of that node (``say``), and if none is due by this node's own session
to it, in which it asks.

The host hands outputs over in their order, and owes in return:
  * each ``Deliver`` is handed to the replica of its stream; what the replica says is given to
    ``say``, what it writes to the disk, and then ``delivered`` is told with the number of the last
    write that was begun by then; ``undeliverable`` if it is no message between replicas;
  * when writes become durable, the replicas are told, what they say is given to ``say``, and then
    ``durable`` is told.

Invariants:
  F1  a request that has an answer is answered once, in the order of its connection, unless the
      connection goes before: a message of no epoch when it was delivered, a group commit when it
      is durable
  F2  a leader node has at most one session: the one that it began last
  F3  when one of its connections goes, a session is dead; all that was under way in it is forgotten
  F4  nothing becomes of a log connection that does not show the secret of its session
"""

from __future__ import annotations

from tidelog.core.session.messages import Ack, Error
from tidelog.core.session.node_answers import Owed
from tidelog.core.session.node_messages import (
    NO_EPOCH,
    NODE_PROTOCOL,
    Carry,
    ChannelDispose,
    LaneOpen,
    NodeAnswer,
    NodeErrorCode,
    NodeGroupCommitted,
    NodeRequest,
    NodeSessionBegin,
    NodeSessionBegun,
    has_answer,
)
from tidelog.core.session.node_output import (
    Deliver,
    FollowerCounters,
    FollowerOutput,
    Hang,
    NodeOptions,
    Reply,
)
from tidelog.core.session.node_session import Carried, NodeLink, NodeRefused, NodeSession
from tidelog.invariants import check
from tidelog.limits import IN_FLIGHT_REQUESTS_MAX, NODE_LANES_MAX, ORDER_NUMBER_END
from tidelog.types import NodeId

TEXT_CHARS_MAX = 1024


class NodeFollower:
    """All connections that other nodes have made to this one.  Not thread-safe."""

    __slots__ = (
        "_cluster_id",
        "_durable",
        "_last_ticket",
        "_links",
        "_node",
        "_options",
        "_outputs",
        "_sessions",
        "counters",
    )

    def __init__(
        self, *, cluster_id: str, node: NodeId, options: NodeOptions | None = None
    ) -> None:
        self._cluster_id = cluster_id
        self._node = node
        self._options = options or NodeOptions()
        self._links: dict[int, NodeLink] = {}
        self._sessions: dict[NodeId, NodeSession] = {}
        self._outputs: list[FollowerOutput] = []
        self._last_ticket = 0
        self._durable = 0
        self.counters = FollowerCounters()

    @property
    def leaders(self) -> tuple[NodeId, ...]:
        """The nodes that have a session."""
        return tuple(self._sessions)

    def take(self) -> list[FollowerOutput]:
        """Hand over what to carry out now, in this order."""
        outputs, self._outputs = self._outputs, []
        return outputs

    # --- connections ---

    def connected(self, connection: int) -> None:
        """A connection was made, and greeted."""
        check(connection not in self._links, f"F1: connection {connection} is known")
        self._links[connection] = NodeLink(connection)

    def lost(self, connection: int) -> None:
        """A connection is gone."""
        link = self._links.pop(connection, None)
        if link is None:
            self.counters.ignored += 1
        elif link.session is not None:
            self._end(link.session)

    def undecodable(self, connection: int) -> None:
        """A connection brought bytes that are no request."""
        link = self._known(connection)
        if link is not None:
            refused = NodeRefused(NodeErrorCode.UNEXPECTED_MESSAGE, "these bytes are no request")
            self._refuse(link, None, refused)

    def _known(self, connection: int) -> NodeLink | None:
        """The connection that has brought something, unless it was closed meanwhile."""
        link = self._links.get(connection)
        if link is None:
            self.counters.ignored += 1
        return link

    # --- requests ---

    def received(
        self,
        connection: int,
        request: NodeRequest,
        *,
        fresh_secret: str = "",
        attachment: bytes | memoryview = b"",
    ) -> None:
        """A request came, with what was attached to it."""
        link = self._known(connection)
        if link is None:
            return
        owed = link.answers.owe() if has_answer(request) else None
        try:
            self._check_window(link)
            self._check_attachment(request, attachment)
            if isinstance(request, Carry):
                self._carry(link, request, owed, attachment)
            elif owed is not None:
                self._reply(owed, self._handle(link, request, fresh_secret))
        except NodeRefused as refused:
            self._refuse(link, owed, refused)

    def _handle(self, link: NodeLink, request: NodeRequest, secret: str) -> NodeAnswer:
        """Do what is asked on a connection, and return the answer."""
        session, lane = link.session, link.lane
        match request:
            case NodeSessionBegin() if session is None:
                return self._begin(link, request, secret)
            case LaneOpen() if session is None:
                return self._open_lane(link, request)
            case ChannelDispose(channel) if session is not None and lane is not None:
                session.dispose(lane, channel)
                return Ack()
            case _:
                raise self._misplaced(link, request)

    def _misplaced(self, link: NodeLink, request: NodeRequest) -> NodeRefused:
        if link.session is None:
            text = "no session has begun on this connection"
            return NodeRefused(NodeErrorCode.NO_SESSION, text)
        text = f"{type(request).__name__} does not belong on this connection"
        return NodeRefused(NodeErrorCode.UNEXPECTED_MESSAGE, text)

    def _check_window(self, link: NodeLink) -> None:
        if len(link.answers) > IN_FLIGHT_REQUESTS_MAX:
            text = f"{len(link.answers)} requests of a connection are not answered"
            raise NodeRefused(NodeErrorCode.TOO_MUCH, text)

    def _check_attachment(self, request: NodeRequest, attachment: bytes | memoryview) -> None:
        if len(attachment) and not isinstance(request, Carry):
            text = f"{type(request).__name__} brings nothing with it"
            raise NodeRefused(NodeErrorCode.UNEXPECTED_MESSAGE, text)

    # --- how a session begins ---

    def _begin(self, link: NodeLink, request: NodeSessionBegin, secret: str) -> NodeAnswer:
        check(secret != "", "F4: a session needs a secret")
        self._check_peer(request)
        if not 1 <= request.lanes <= NODE_LANES_MAX:
            text = f"{request.lanes} log connections: between 1 and {NODE_LANES_MAX} are possible"
            raise NodeRefused(NodeErrorCode.BAD_LANES, text)
        leader = NodeId(request.source)
        self._supersede(leader)
        link.session = NodeSession(link, leader, request.lanes, secret, self._options)
        self._sessions[leader] = link.session
        self.counters.sessions += 1
        return NodeSessionBegun(secret)

    def _check_peer(self, request: NodeSessionBegin) -> None:
        if request.protocol_version != NODE_PROTOCOL:
            text = f"protocol {request.protocol_version} is not spoken here, but {NODE_PROTOCOL}"
            raise NodeRefused(NodeErrorCode.UNSUPPORTED_PROTOCOL, text)
        if request.cluster_id != self._cluster_id:
            text = f"this is a node of cluster {self._cluster_id}, not of {request.cluster_id}"
            raise NodeRefused(NodeErrorCode.WRONG_CLUSTER, text)
        if request.target != self._node:
            text = f"this is node {self._node}, not node {request.target}"
            raise NodeRefused(NodeErrorCode.WRONG_NODE, text)
        if not 0 < request.source < ORDER_NUMBER_END or request.source == self._node:
            raise NodeRefused(NodeErrorCode.WRONG_NODE, f"no node has number {request.source}")

    def _supersede(self, leader: NodeId) -> None:
        """F2: whoever begins anew has given up what was, even if that did not show here yet."""
        session = self._sessions.get(leader)
        if session is not None:
            self.counters.superseded += 1
            self._end(session)

    def _open_lane(self, link: NodeLink, request: LaneOpen) -> NodeAnswer:
        session = self._sessions.get(NodeId(request.source))
        if session is None or not self._is_admitted(session, request.secret):
            text = "there is no session with this secret"
            raise NodeRefused(NodeErrorCode.WRONG_SECRET, text)
        session.open_lane(link, request.lane)
        return Ack()

    def _is_admitted(self, session: NodeSession, secret: str) -> bool:
        """F4."""
        return session.knows(secret)

    # --- messages ---

    def _carry(
        self, link: NodeLink, carry: Carry, owed: Owed | None, attachment: bytes | memoryview
    ) -> None:
        session, lane = link.session, link.lane
        if session is None or lane is None:
            raise self._misplaced(link, carry)
        size = len(carry.message) + len(attachment)
        session.check_carry(lane, carry, size)
        self._last_ticket += 1
        session.take(link, carry, size, self._last_ticket, owed)
        self.counters.carries += 1
        self._outputs.append(
            Deliver(self._last_ticket, session.leader, carry.channel, carry.message, attachment)
        )

    def delivered(self, source: NodeId, ticket: int, sequence: int) -> None:
        """A message was delivered; all that it caused is written by ``sequence``."""
        session, carried = self._carried(source, ticket)
        if session is None or carried is None:
            return
        if carried.epoch != NO_EPOCH:
            session.epochs.delivered(carried.epoch, sequence)
            self._answer_commits(session)
        elif carried.owed is not None:
            self._reply(carried.owed, Ack())

    def undeliverable(self, source: NodeId, ticket: int) -> None:
        """What was to be delivered is no message between replicas: the session ends."""
        _, carried = self._carried(source, ticket)
        if carried is not None:
            text = "what was carried is no message between replicas"
            refused = NodeRefused(NodeErrorCode.BAD_PAYLOAD, text)
            self._refuse(carried.link, carried.owed, refused)

    def _carried(self, source: NodeId, ticket: int) -> tuple[NodeSession | None, Carried | None]:
        """The session and the message of a ticket, if the session is not over (F3)."""
        check(0 < ticket <= self._last_ticket, f"F3: there is no ticket {ticket}")
        session = self._sessions.get(source)
        carried = session.take_ticket(ticket) if session is not None else None
        if carried is None:
            self.counters.ignored += 1
        return session, carried

    # --- group commits ---

    def durable(self, sequence: int) -> None:
        """All writes up to this one are durable."""
        check(sequence >= self._durable, "F1: what was durable is so no longer")
        self._durable = sequence
        for session in self._sessions.values():
            self._answer_commits(session)

    def _answer_commits(self, session: NodeSession) -> None:
        while (answerable := session.epochs.take_answerable(self._durable)) is not None:
            said = session.take_said()
            self.counters.group_commits += 1
            self.counters.said += len(said)
            self._reply(answerable.owed, NodeGroupCommitted(answerable.epoch, said))

    def say(self, target: NodeId, channel: int, message: bytes) -> bool:
        """Say something to a leader node with the next answer; False if no answer is due."""
        session = self._sessions.get(target)
        return session is not None and session.say(channel, message)

    # --- answers, and how a session ends ---

    def _reply(self, owed: Owed, answer: NodeAnswer) -> None:
        answers = owed.answers
        self._outputs += [Reply(answers.connection, one) for one in answers.settle(owed, answer)]

    def _refuse(self, link: NodeLink, owed: Owed | None, refused: NodeRefused) -> None:
        """Answer that a request breaks the protocol; its connection ends, and so its session.

        A message that has no answer of its own gets one then.
        """
        self._count(refused.code)
        owed = owed or link.answers.owe()
        if link.answers.is_oldest(owed):  # Those before it must be answered first (F1).
            self._reply(owed, Error(refused.code, str(refused)[:TEXT_CHARS_MAX]))
        if link.session is not None:
            self._end(link.session)
        self._hang_up(link)

    def _count(self, code: NodeErrorCode) -> None:
        self.counters.errors[code] = self.counters.errors.get(code, 0) + 1

    def _end(self, session: NodeSession) -> None:
        """F3."""
        if self._sessions.get(session.leader) is session:
            del self._sessions[session.leader]
        for link in session.links:
            link.session = None
            self._hang_up(link)

    def _hang_up(self, link: NodeLink) -> None:
        if self._links.get(link.connection) is link:
            del self._links[link.connection]
            self._outputs.append(Hang(link.connection))

    def validate(self) -> None:
        """Check every invariant at full length, for tests and simulations."""
        for leader, session in self._sessions.items():
            check(session.leader == leader, f"F2: the session of node {leader} is another's")
            for link in session.links:
                check(
                    self._links.get(link.connection) is link,
                    f"F3: node {leader} has a session without connection {link.connection}",
                )
            session.validate()
