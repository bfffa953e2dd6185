"""The two sides of a session, each alone: the test is the other one."""

from __future__ import annotations

from collections import defaultdict

from tests.core.session_nodes.hosts import CLUSTER
from tidelog.core.session.messages import Ack, Error
from tidelog.core.session.node_follower import NodeFollower
from tidelog.core.session.node_leader import NodeLeader
from tidelog.core.session.node_messages import (
    NO_EPOCH,
    NODE_PROTOCOL,
    Carry,
    LaneOpen,
    NodeAnswer,
    NodeErrorCode,
    NodeGroupCommitted,
    NodeRequest,
    NodeSessionBegin,
    NodeSessionBegun,
    Said,
)
from tidelog.core.session.node_output import (
    CONTROL,
    Ask,
    Connect,
    Deliver,
    Hang,
    Heard,
    Leave,
    NodeOptions,
    Reply,
)
from tidelog.types import NodeId

ME = NodeId(1)
LEADER = NodeId(2)
OTHER_LEADER = NodeId(3)
LANES = 2


def begin(
    *,
    version: int = NODE_PROTOCOL,
    cluster: str = CLUSTER,
    source: int = LEADER,
    target: int = ME,
    lanes: int = LANES,
) -> NodeSessionBegin:
    return NodeSessionBegin(version, cluster, source, target, lanes)


class FollowerSide:
    """A follower, and what it said on each connection."""

    def __init__(self, options: NodeOptions | None = None) -> None:
        self.core = NodeFollower(cluster_id=CLUSTER, node=ME, options=options)
        self.answers: dict[int, list[NodeAnswer]] = defaultdict(list)
        self.hung: list[int] = []
        self.delivered: list[Deliver] = []
        self._connections = 0

    def collect(self) -> None:
        for output in self.core.take():
            match output:
                case Reply(connection, answer):
                    self.answers[connection].append(answer)
                case Hang(connection):
                    self.hung.append(connection)
                case Deliver():
                    self.delivered.append(output)
        self.core.validate()

    def connect(self) -> int:
        self._connections += 1
        self.core.connected(self._connections)
        return self._connections

    def ask(self, connection: int, request: NodeRequest, attachment: bytes = b"") -> None:
        secret = f"secret of {connection}"
        self.core.received(connection, request, fresh_secret=secret, attachment=attachment)
        self.collect()

    def last(self, connection: int) -> NodeAnswer | None:
        return self.answers[connection][-1] if self.answers[connection] else None

    def error(self, connection: int) -> NodeErrorCode:
        """The error that a connection was closed with."""
        answer = self.last(connection)
        assert isinstance(answer, Error), answer
        assert connection in self.hung
        return NodeErrorCode(answer.code)

    def open(self, source: int = LEADER, lanes: int = LANES) -> tuple[int, ...]:
        """Begin a session; return its control connection and its lanes."""
        control = self.connect()
        self.ask(control, begin(source=source, lanes=lanes))
        begun = self.last(control)
        assert isinstance(begun, NodeSessionBegun), begun
        connections = [control]
        for lane in range(lanes):
            connections.append(self.connect())
            self.ask(connections[-1], LaneOpen(source, begun.secret, lane))
            assert self.last(connections[-1]) == Ack()
        return tuple(connections)

    def carry(
        self,
        lane: int,
        channel: int,
        epoch: int = NO_EPOCH,
        attachment: bytes = b"",
        *,
        commit: int = 0,
    ) -> None:
        self.ask(lane, Carry(channel, epoch, b"message", commit), attachment)

    def deliver(self, sequence: int = 0) -> None:
        """Tell that everything was delivered, and written up to a number."""
        for one in self.delivered:
            self.core.delivered(one.source, one.ticket, sequence)
        self.delivered.clear()
        self.collect()

    def sync(self, sequence: int) -> None:
        self.core.durable(sequence)
        self.collect()

    def committed(self, connection: int) -> list[int]:
        """The epochs of the group commits that were answered on a connection."""
        answers = self.answers[connection]
        return [answer.epoch for answer in answers if isinstance(answer, NodeGroupCommitted)]


class LeaderSide:
    """A leader, and what it asked on each lane of its present session."""

    def __init__(self, options: NodeOptions | None = None, *, opened: bool = True) -> None:
        self.options = options or NodeOptions(lanes=LANES)
        self.core = NodeLeader(cluster_id=CLUSTER, node=LEADER, follower=ME, options=self.options)
        self.connections: dict[int, int] = {}
        self.asked: dict[int, list[NodeRequest]] = defaultdict(list)
        self.left: list[int] = []
        self.heard: list[Heard] = []
        self.collect()
        if opened:
            self.open()

    def collect(self) -> None:
        for output in self.core.take():
            match output:
                case Connect(connection, lane):
                    self.connections[lane] = connection
                    self.asked[lane] = []
                case Ask(connection, request):
                    lane = next(one for one, it in self.connections.items() if it == connection)
                    self.asked[lane].append(request)
                case Leave(connection):
                    self.left.append(connection)
                case Heard():
                    self.heard.append(output)
        self.core.validate()

    def connect(self, lane: int) -> None:
        self.core.connected(self.connections[lane])
        self.collect()

    def answer(self, lane: int, answer: NodeAnswer) -> None:
        self.core.answered(self.connections[lane], answer)
        self.collect()

    def open(self) -> None:
        self.connect(CONTROL)
        self.answer(CONTROL, NodeSessionBegun("a secret"))
        for lane in range(self.options.lanes):
            self.connect(lane)
            self.answer(lane, Ack())
        assert self.core.is_open
        for requests in self.asked.values():
            requests.clear()

    def carry(self, channel: int, *, in_epoch: bool = False, size: int = 1) -> bool:
        is_taken = self.core.carry(channel, b"m" * size, in_epoch=in_epoch)
        self.collect()
        return is_taken

    def commit(self) -> None:
        self.core.commit()
        self.collect()

    def committed(self, lane: int, epoch: int, *said: Said) -> None:
        self.answer(lane, NodeGroupCommitted(epoch, said))

    def acknowledge(self, lane: int, count: int) -> None:
        for _ in range(count):
            self.answer(lane, Ack())

    def lose(self, lane: int) -> None:
        self.core.lost(self.connections[lane])
        self.collect()

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.core.tick()
            self.collect()

    def channels(self, lane: int) -> list[int]:
        """The channels of the messages that were sent on a lane, in order."""
        return [one.channel for one in self.asked[lane] if isinstance(one, Carry)]

    def commits(self) -> list[tuple[int, int, int]]:
        """The group commits that were asked for: channel, epoch and count, in their order."""
        carries = [one for asked in self.asked.values() for one in asked if isinstance(one, Carry)]
        commits = [(one.epoch, one.channel, one.commit) for one in carries if one.commit]
        return [(channel, epoch, count) for epoch, channel, count in sorted(commits)]
