"""One storage node of a test: real replicas, real sessions, one modelled disk for all.

It does what the shell of a storage node owes to its cores (docs/node-sessions.md), and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.core.replica.protocol.disk import Disk
from tests.core.replica.protocol.replicas import stored
from tests.core.replica.protocol.witness import Witness
from tidelog.core.replica.messages import Message, ToReplica
from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.replica.output import Output
from tidelog.core.replica.replica import Appended, Replica
from tidelog.core.session.node_follower import NodeFollower
from tidelog.core.session.node_leader import NodeLeader
from tidelog.core.session.node_output import Deliver, Heard, NodeOptions
from tidelog.errors import BadFrame, CorruptData
from tidelog.formats.replica_messages import (
    awaits_disk,
    decode_carried,
    encode_replica_message,
    is_for_leader,
)
from tidelog.types import NodeId, StreamId

CLUSTER = "a cluster"
LOOK_EVERY = 4
"""A replica is looked at in full so often; what it says, always."""


class Host:
    """One node while it lives; its disks outlive it."""

    def __init__(
        self,
        node: int,
        peers: list[int],
        disks: dict[int, Disk],
        witnesses: dict[int, Witness],
        options: tuple[ReplicaOptions, NodeOptions],
    ) -> None:
        self.node = NodeId(node)
        self.disks = disks
        self.witnesses = witnesses
        self.options = options
        self.replicas = {
            stream: Replica(self.node, StreamId(stream), stored(disk.durable), disk, options[0])
            for stream, disk in disks.items()
        }
        self.follower = NodeFollower(cluster_id=CLUSTER, node=self.node, options=options[1])
        self.leaders = {
            peer: NodeLeader(
                cluster_id=CLUSTER, node=self.node, follower=NodeId(peer), options=options[1]
            )
            for peer in peers
        }
        self.begun = 0
        """The number of the last write that was begun, over all streams."""
        self.durable = 0
        self.queue: list[int] = []
        """The streams of the writes that are not durable, in their order."""
        self._looks = 0
        self.to_operator: list[Message] = []
        self.carried: Callable[[int], None] = lambda peer: None
        """Told of every message of an epoch that the session with a peer took."""
        self.closed: Callable[[int], None] = lambda peer: None
        """Told when such a session closes an epoch."""

    # -- what comes in -----------------------------------------------------------------------

    def step(self, stream: int, message: ToReplica) -> None:
        self.replicas[stream].step(message)
        self.settle(stream)

    def append(self, stream: int, data: bytes) -> int | None:
        """Append at a leader; return the LLSN, or None if it does not lead."""
        appended = self.replicas[stream].append(data, 1)
        self.settle(stream)
        return appended.llsn_begin if isinstance(appended, Appended) else None

    def tick(self) -> None:
        for leader in self.leaders.values():
            leader.tick()
        for stream, replica in self.replicas.items():
            replica.tick()
            self.settle(stream)

    def deliver(self, output: Deliver) -> int:
        """Hand over what another node carried here; return the last write begun by then."""
        try:
            message = decode_carried(
                output.message,
                output.attachment,
                source=output.source,
                target=self.node,
                stream=StreamId(output.channel),
            )
        except (BadFrame, CorruptData):
            self.follower.undeliverable(output.source, output.ticket)
            return self.begun
        self.step(output.channel, message)
        self.follower.delivered(output.source, output.ticket, self.begun)
        return self.begun

    def hear(self, output: Heard) -> None:
        """Hand over what another node said with an answer."""
        message = decode_carried(
            output.message,
            b"",
            source=output.source,
            target=self.node,
            stream=StreamId(output.channel),
        )
        self.step(output.channel, message)

    def sync(self, count: int) -> None:
        """Make the first writes durable: replicas hear of it first, then the sessions."""
        done, self.queue = self.queue[:count], self.queue[count:]
        last: dict[int, int] = {}
        for stream in done:
            last[stream] = self.disks[stream].sync(1)
        self.durable += len(done)
        for stream, sequence in last.items():
            self.replicas[stream].written(sequence)
            self.settle(stream)
        self.follower.durable(self.durable)

    # -- what goes out -----------------------------------------------------------------------

    def settle(self, stream: int) -> None:
        """Carry out what a replica wants done."""
        replica, disk, witness = self.replicas[stream], self.disks[stream], self.witnesses[stream]
        outputs: list[Output] = []
        while replica.has_output:
            output = replica.take()
            outputs.append(output)
            if output.write is not None:
                disk.take(output.write)
                self.begun += 1
                self.queue.append(stream)
            witness.hear(self.node, disk, output)
            for message in output.messages:
                self.send(message)
        self._looks += bool(outputs)
        if outputs and self._looks % LOOK_EVERY == 0:
            witness.look(self.node, replica, disk)

    def send(self, message: Message) -> None:
        """With the next answer, if one is due; else by the session that this node leads."""
        if message.target not in self.leaders:
            self.to_operator.append(message)
            return
        payload = encode_replica_message(message)
        is_said = is_for_leader(message) and self.follower.say(
            message.target, message.stream, payload.message
        )
        if is_said:
            return
        in_epoch = awaits_disk(message)
        with self._noting_closed(message.target) as leader:
            is_taken = leader.carry(
                message.stream, payload.message, payload.attachment, in_epoch=in_epoch
            )
        if is_taken and in_epoch:
            self.carried(message.target)

    def end_turn(self) -> None:
        """One group commit for all that was carried in this turn."""
        for peer in self.leaders:
            with self._noting_closed(peer) as leader:
                leader.commit()

    @contextmanager
    def _noting_closed(self, peer: int) -> Iterator[NodeLeader]:
        """Tell whether the session with a peer closes an epoch meanwhile."""
        leader = self.leaders[peer]
        before = leader.counters.group_commits
        yield leader
        if leader.counters.group_commits > before:
            self.closed(peer)
