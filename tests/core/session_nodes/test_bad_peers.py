"""Whatever a peer sends, a side answers, hangs up or ignores it; it never breaks."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.core.session_nodes.hosts import CLUSTER
from tests.core.session_nodes.sides import LEADER, ME, LeaderSide, begin
from tidelog.core.session.messages import Ack, Error
from tidelog.core.session.node_follower import NodeFollower
from tidelog.core.session.node_messages import (
    NO_EPOCH,
    Carry,
    ChannelDispose,
    LaneOpen,
    NodeAnswer,
    NodeErrorCode,
    NodeGroupCommitted,
    NodeRequest,
    NodeSessionBegun,
    Said,
)
from tidelog.core.session.node_output import CONTROL, Deliver, Hang, NodeOptions, Reply

STEPS = 150
SECRET = "secret"
OPTIONS = NodeOptions(lanes=2, underway_max=6, underway_bytes_max=400, channels_max=4)


def any_request(draw: random.Random) -> NodeRequest:
    """A request that hardly fits."""
    number = draw.choice((0, 1, 2, 3, 4, 5, (1 << 63) - 1))
    match draw.randrange(4):
        case 0:
            return begin(source=draw.choice((0, 1, 2, 3)), lanes=draw.choice((0, 1, 2, 99)))
        case 1:
            return LaneOpen(LEADER, draw.choice((SECRET, "guess")), draw.choice((0, 1, number)))
        case 2:
            epoch, commit = draw.choice((NO_EPOCH, 1, 2, 3, number)), draw.choice((0, 1, 2, number))
            return Carry(draw.randrange(6), epoch, b"message", commit)
        case _:
            return ChannelDispose(number)


class Peers:
    """A follower among peers that send anything, and what must hold of what it says."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.core = NodeFollower(cluster_id=CLUSTER, node=ME, options=OPTIONS)
        self.asked: Counter[int] = Counter()
        self.replied: Counter[int] = Counter()
        self.waiting: list[Deliver] = []
        self.gone: set[int] = set()
        self.connections = self.written = self.durable = 0
        self.lanes: dict[int, int] = {}
        """What the peers take their connections for."""
        self.epoch, self.carries = 1, 0

    def step(self) -> None:
        if self.draw.random() < 0.1 or not self.connections:
            self.connections += 1
            self.core.connected(self.connections)
        present = [one for one in range(1, self.connections + 1) if one not in self.gone]
        anyone = self.draw.randint(1, self.connections)
        self._come(self.draw.choice(present) if present and self.draw.random() < 0.9 else anyone)
        if self.waiting and self.draw.random() < 0.7:
            self._deliver(self.waiting.pop(self.draw.randrange(len(self.waiting))))
        self.core.say(LEADER, 1, bytes(self.draw.randrange(100)))
        self.durable = self.draw.randint(self.durable, self.written)
        self.core.durable(self.durable)
        self._collect()

    def _come(self, connection: int) -> None:
        chance = self.draw.random()
        if chance < 0.02:
            self.core.lost(connection)
            self.gone.add(connection)
            return
        self.asked[connection] += 1
        if chance < 0.04:
            self.core.undecodable(connection)
        else:
            attachment = bytes(self.draw.choice((0, 0, 0, 100, 1000)))
            is_sound = self.draw.random() < 0.95
            if is_sound and self.lanes.get(connection) == CONTROL:
                return  # Nothing belongs there any more.
            request = self._fitting(connection) if is_sound else any_request(self.draw)
            if is_sound and not isinstance(request, Carry):
                attachment = b""
            self.core.received(connection, request, fresh_secret=SECRET, attachment=attachment)

    def _fitting(self, connection: int) -> NodeRequest:
        """A request that may well be right at this place."""
        lane = self.lanes.get(connection)
        alive = {number: one for one, number in self.lanes.items() if one not in self.gone}
        if lane is None and CONTROL not in alive:
            self.lanes[connection] = CONTROL
            self.epoch, self.carries = 1, 0
            return begin(lanes=2)
        if lane is None:
            self.lanes[connection] = 0 if 0 not in alive else 1
            return LaneOpen(LEADER, SECRET, self.lanes[connection])
        channel = lane + 2 * self.draw.randrange(2)
        self.carries += 1
        if self.draw.random() < 0.6:
            return Carry(channel, self.epoch, b"message")
        epoch, commit = self.epoch, self.carries
        if commit > 1 and self.draw.random() < 0.1:
            commit -= 1
        self.epoch, self.carries = epoch + 1, 0
        return Carry(channel, epoch, b"message", commit)

    def _deliver(self, one: Deliver) -> None:
        self.written += self.draw.randrange(2)
        if self.draw.random() < 0.9:
            self.core.delivered(one.source, one.ticket, self.written)
        else:
            self.core.undeliverable(one.source, one.ticket)

    def _collect(self) -> None:
        for output in self.core.take():
            match output:
                case Reply(connection):
                    assert connection not in self.gone
                    self.replied[connection] += 1
                    assert self.replied[connection] <= self.asked[connection]
                case Hang(connection):
                    self.gone.add(connection)
                case Deliver():
                    self.waiting.append(output)
        self.core.validate()


@pytest.mark.parametrize("seed", range(40))
def test_a_follower_survives_any_sequence_of_requests(seed: int) -> None:
    peers = Peers(seed)
    for _ in range(STEPS):
        peers.step()


def test_the_requests_of_these_peers_reach_every_kind_of_answer() -> None:
    """The test above would be worth little if all of them were refused at the door."""
    errors: Counter[NodeErrorCode] = Counter()
    committed = 0
    for seed in range(40):
        peers = Peers(seed)
        for _ in range(STEPS):
            peers.step()
        errors += Counter(peers.core.counters.errors)
        committed += peers.core.counters.group_commits
    assert committed > 20
    assert set(errors) >= {
        NodeErrorCode.UNEXPECTED_MESSAGE,
        NodeErrorCode.NO_SESSION,
        NodeErrorCode.NO_LANE,
        NodeErrorCode.BAD_EPOCH,
        NodeErrorCode.BAD_PAYLOAD,
        NodeErrorCode.TOO_MUCH,
    }


def any_answer(draw: random.Random) -> NodeAnswer:
    match draw.randrange(6):
        case 0 | 1 | 2:
            return Ack()
        case 3:
            return NodeGroupCommitted(draw.randrange(5), (Said(draw.randrange(3), b"word"),))
        case 4:
            return NodeSessionBegun("secret")
        case _:
            return Error(draw.randrange(99), "no")


@pytest.mark.parametrize("seed", range(40))
def test_a_leader_survives_any_sequence_of_answers(seed: int) -> None:
    draw = random.Random(seed)
    leader = LeaderSide(NodeOptions(lanes=2, underway_max=6, window=2, retry_ticks=1))
    for _ in range(STEPS):
        if not leader.core.is_open and draw.random() < 0.5:
            leader.tick(2)
            if leader.connections[CONTROL] not in leader.left and not leader.asked[CONTROL]:
                leader.open()
        leader.carry(draw.randrange(4), in_epoch=draw.random() < 0.5, size=10)
        if draw.random() < 0.5:
            leader.commit()
        connection = draw.choice(list(leader.connections.values()))
        if draw.random() < 0.7:
            leader.core.answered(connection, any_answer(draw))
        leader.collect()
    assert leader.core.counters.lost > 0
