"""Nodes that speak to one another through sessions alone, one event at a time.

Every connection keeps the order of its bytes; apart from that any event may come first.  At each
answer to a group commit the test looks behind both sides, and knows what they cannot know.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

from tests.core.replica.protocol.disk import Disk
from tests.core.replica.protocol.replicas import OPERATOR
from tests.core.replica.protocol.witness import Witness
from tests.core.session_nodes.hosts import Host
from tests.core.session_nodes.wires import Connection
from tidelog.core.order.commands import Quorum
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    FenceRequest,
    FenceResponse,
    FollowerHead,
    Message,
    Role,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.session.messages import Error
from tidelog.core.session.node_leader import NodeLeader
from tidelog.core.session.node_messages import (
    NO_EPOCH,
    Carry,
    NodeGroupCommitted,
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
from tidelog.formats.node_messages import (
    decode_node_answer,
    decode_node_request,
    encode_node_message,
)
from tidelog.types import NodeId, StreamId, Term

Event = tuple[str, Connection]


class Cluster:
    """Some nodes, some streams on all of them, and the connections between them."""

    def __init__(
        self,
        *,
        nodes: int = 3,
        streams: int = 3,
        node_options: NodeOptions | None = None,
        replica_options: ReplicaOptions | None = None,
    ) -> None:
        self.streams = list(range(1, streams + 1))
        self.nodes = list(range(1, nodes + 1))
        self.options = (replica_options or ReplicaOptions(), node_options or NodeOptions(lanes=2))
        self.witnesses = {stream: Witness() for stream in self.streams}
        self.disks = {node: {stream: Disk() for stream in self.streams} for node in self.nodes}
        self.hosts: dict[int, Host] = {}
        self.connections: list[Connection] = []
        self.sent: Counter[str] = Counter()
        """Requests that were sent, by their names."""
        self.answered: Counter[str] = Counter()
        """Answers that were given, by their names."""
        self.commits: Counter[tuple[int, int]] = Counter()
        """Group commits that were sent, from which node to which."""
        self.terms = dict.fromkeys(self.streams, 0)
        self.appended = 0
        self._numbers = 0
        self._sessions: dict[tuple[int, int], int] = {}
        """The session that a node has, or is about to have, with another that it leads."""
        self._carried: Counter[int] = Counter()
        """How many messages of epochs each session took."""
        self._closed: dict[int, list[int]] = defaultdict(list)
        """How many that were when each of its epochs was closed."""
        self._delivered: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """Epoch and last write of all that came through a session."""
        for node in self.nodes:
            self.start(node)

    # -- nodes -------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        peers = [peer for peer in self.nodes if peer != node]
        host = Host(node, peers, self.disks[node], self.witnesses, self.options)
        host.carried = partial(self._note_carried, node)
        host.closed = partial(self._note_closed, node)
        self.hosts[node] = host
        self.collect(node)

    def crash(self, node: int, kept: int = 0) -> None:
        """Stop a node; of what it had not synced it keeps the first writes."""
        host = self.hosts.pop(node)
        for stream in host.queue[:kept]:
            self.disks[node][stream].sync(1)
        for stream, disk in self.disks[node].items():
            disk.crash()
            self.witnesses[stream].forget_life(node)
        for connection in self.connections:
            if connection.source == node:
                connection.leave()
            elif connection.target == node:
                connection.hang_up()

    def restart(self, node: int) -> None:
        if node in self.hosts:
            self.crash(node)
        self.start(node)

    # -- what the cores want done ------------------------------------------------------------

    def turn(self, node: int) -> None:
        """End the turn of a node, and send what it has to send."""
        self.hosts[node].end_turn()
        self.collect(node)

    def collect(self, node: int) -> None:
        host = self.hosts[node]
        while True:
            outputs = [(peer, one) for peer, core in host.leaders.items() for one in core.take()]
            answers = host.follower.take()
            for peer, output in outputs:
                self._carry_out(host, peer, output)
            for answer in answers:
                self._answer(host, answer)
            if not outputs and not answers:
                break
        host.follower.validate()
        for leader in host.leaders.values():
            leader.validate()

    def _carry_out(self, host: Host, peer: int, output: Connect | Ask | Leave | Heard) -> None:
        match output:
            case Connect(number, lane):
                self._numbers += 1
                if lane == CONTROL:
                    self._sessions[host.node, peer] = self._numbers
                session = self._sessions[host.node, peer]
                new = Connection(self._numbers, host.node, peer, number, session)
                self.connections.append(new)
            case Ask(number, request, attachment):
                self.sent[type(request).__name__] += 1
                if isinstance(request, Carry) and request.commit:
                    self.commits[host.node, peer] += 1
                connection = self._made_by(host.node, peer, number)
                connection.ask((encode_node_message(request), b"".join(attachment)))
            case Leave(number):
                self._made_by(host.node, peer, number).leave()
            case Heard():
                host.hear(output)

    def _made_by(self, node: int, peer: int, number: int) -> Connection:
        for one in reversed(self.connections):
            if (one.source, one.target, one.asker) == (node, peer, number) and not one.source_gone:
                return one
        raise AssertionError(f"node {node} has no connection {number} to {peer}")

    def _answer(self, host: Host, output: Reply | Hang | Deliver) -> None:
        match output:
            case Reply(number, answer):
                connection = self._numbered(number)
                self.answered[type(answer).__name__] += 1
                if isinstance(answer, NodeGroupCommitted):
                    self._check_commit(host, connection.session, answer.epoch)
                connection.answer((encode_node_message(answer), b""))
            case Hang(number):
                self._numbered(number).hang_up()
            case Deliver():
                raise AssertionError("a message comes without a request")

    def _numbered(self, number: int) -> Connection:
        return next(one for one in self.connections if one.number == number)

    # -- behind both sides -------------------------------------------------------------------

    def _note_carried(self, node: int, peer: int) -> None:
        self._carried[self._sessions[node, peer]] += 1

    def _note_closed(self, node: int, peer: int) -> None:
        session = self._sessions[node, peer]
        self._closed[session].append(self._carried[session])

    def _check_commit(self, host: Host, session: int, epoch: int) -> None:
        """A group commit is answered: all up to it must have come, and be on the disk."""
        assert epoch <= len(self._closed[session]), f"epoch {epoch} was not closed"
        carried = self._closed[session][epoch - 1]
        came = [one for one in self._delivered[session] if one[0] <= epoch]
        assert len(came) == carried, f"{len(came)} of {carried} messages have come"
        last = max((write for _, write in came), default=0)
        assert last <= host.durable, f"write {last} is not durable, {host.durable} is"

    # -- events ------------------------------------------------------------------------------

    def events(self) -> Iterator[Event]:
        """What may happen next on the connections."""
        self.connections = [one for one in self.connections if not one.is_over]
        for one in self.connections:
            if one.can_be_made:
                yield "make", one
            if one.has_request:
                yield "request", one
            if one.has_answer:
                yield "answer", one
            if one.source_may_notice:
                yield "source", one
            if one.target_may_notice:
                yield "target", one

    def happen(self, event: Event) -> None:
        """Let one event happen, and the turn that follows from it."""
        what, connection = event
        match what:
            case "make":
                self._make(connection)
            case "request":
                self._receive(connection)
            case "answer":
                self._hear_answer(connection)
            case "source":
                connection.source_gone = True
                self._leader(connection).lost(connection.asker)
            case _:
                connection.target_gone = True
                self.hosts[connection.target].follower.lost(connection.number)
        node = connection.target if what in ("request", "target") else connection.source
        self.turn(node)

    def _leader(self, connection: Connection) -> NodeLeader:
        return self.hosts[connection.source].leaders[connection.target]

    def _make(self, connection: Connection) -> None:
        if connection.target not in self.hosts:
            connection.hang_up()
            return
        connection.is_made = True
        self.hosts[connection.target].follower.connected(connection.number)
        self._leader(connection).connected(connection.asker)

    def _hear_answer(self, connection: Connection) -> None:
        answer = decode_node_answer(connection.answers.popleft()[0])
        leader = self._leader(connection)
        lost = leader.counters.lost
        leader.answered(connection.asker, answer)
        assert isinstance(answer, Error) or leader.counters.lost == lost, f"{answer} does not fit"

    def _receive(self, connection: Connection) -> None:
        host, session = self.hosts[connection.target], connection.session
        message, attachment = connection.requests.popleft()
        request = decode_node_request(message)
        secret = f"secret {connection.number}"
        host.follower.received(
            connection.number, request, fresh_secret=secret, attachment=attachment
        )
        for output in host.follower.take():
            if isinstance(output, Deliver):
                last = host.deliver(output)
                if isinstance(request, Carry) and request.epoch != NO_EPOCH:
                    self._delivered[session].append((request.epoch, last))
            else:
                self._answer(host, output)

    # -- all at once -------------------------------------------------------------------------

    def deliver(self, rounds: int = 2_000) -> None:
        """Let everything happen on the connections, in order, until nothing is left to happen."""
        for _ in range(rounds):
            event = next(self.events(), None)
            if event is None:
                return
            self.happen(event)
        raise AssertionError("the nodes do not come to rest")

    def sync(self, *nodes: int) -> None:
        """Make all durable that was written."""
        for node in nodes or list(self.hosts):
            self.hosts[node].sync(len(self.hosts[node].queue))
            self.turn(node)

    def tick(self, *nodes: int) -> None:
        for node in nodes or list(self.hosts):
            self.hosts[node].tick()
            self.turn(node)

    def rest(self) -> None:
        """Deliver and sync, until nothing changes."""
        for _ in range(100):
            self.deliver()
            if not any(host.queue for host in self.hosts.values()):
                return
            self.sync()
        raise AssertionError("the nodes do not come to rest")

    def pass_time(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()
            self.rest()

    # -- the operator, played by hand --------------------------------------------------------

    def elect(self, stream: int, leader: int | None = None) -> int:
        """Elect a leader among the nodes that live: this one, or one with the highest head."""
        self.terms[stream] += 1
        term, is_first = Term(self.terms[stream]), self.terms[stream] == 1
        heads = [
            self._ask(node, FenceRequest(OPERATOR, NodeId(node), StreamId(stream), term, is_first))
            for node in self.hosts
        ]
        known = {
            answer.source: FollowerHead(answer.source, answer.head, answer.is_complete)
            for answer in heads
            if isinstance(answer, FenceResponse)
        }
        chosen = leader or max(known, key=lambda node: (known[node].head, node))
        others = tuple(one for node, one in known.items() if node != chosen)
        ensemble = tuple(map(NodeId, self.nodes))
        request = BecomeLeaderRequest(
            OPERATOR, NodeId(chosen), StreamId(stream), term, ensemble, Quorum.MAJORITY, others
        )
        assert isinstance(self._ask(chosen, request), BecomeLeaderResponse)
        return chosen

    def _ask(self, node: int, request: FenceRequest | BecomeLeaderRequest) -> Message:
        host = self.hosts[node]
        host.step(request.stream, request)
        self.sync(node)
        return host.to_operator.pop()

    def leader_of(self, stream: int) -> int | None:
        """Who leads a stream in its last term."""
        for node, host in self.hosts.items():
            replica = host.replicas[stream]
            if replica.role is Role.LEADER and replica.term == self.terms[stream]:
                return node
        return None

    def is_led(self, stream: int) -> bool:
        """Whether a stream has a leader that serves all others."""
        leader = self.leader_of(stream)
        cursors = self.hosts[leader].replicas[stream].cursors if leader is not None else {}
        return leader is not None and len(cursors) == len(self.nodes) - 1

    def append(self, stream: int) -> int | None:
        """Append at the leader of a stream, if there is one; its turn goes on."""
        leader = self.leader_of(stream)
        if leader is None:
            return None
        self.appended += 1
        return self.hosts[leader].append(stream, b"entry %d" % self.appended)

    def is_open(self) -> bool:
        """Whether all sessions are."""
        return all(one.is_open for host in self.hosts.values() for one in host.leaders.values())

    def lost_sessions(self) -> int:
        """How many sessions have ended, opened or not."""
        leaders = [one for host in self.hosts.values() for one in host.leaders.values()]
        return sum(one.counters.lost for one in leaders)

    def log(self, node: int, stream: int) -> list[tuple[int, int, bytes]]:
        """What is on a node's disk of a stream."""
        batches = self.disks[node][stream].durable.batches
        return [(batch.term, batch.llsn_begin, batch.data) for batch in batches]

    def has_converged(self, stream: int) -> bool:
        """Whether all replicas have the same, durably, and know that it stays."""
        first, *others = [self.log(node, stream) for node in self.nodes]
        ends = [self.disks[node][stream].durable.end for node in self.nodes]
        commits = [host.replicas[stream].commit_index for host in self.hosts.values()]
        return all(one == first for one in others) and all(one == ends[0] - 1 for one in commits)
