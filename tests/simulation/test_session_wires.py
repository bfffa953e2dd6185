"""Connections of the simulated pair (V1 to V3)."""

from __future__ import annotations

from tidelog.core.session.messages import Ack, Answer, GroupCommit, Request
from tidelog.testing.chance import Chance
from tidelog.testing.journal import Journal
from tidelog.testing.network import FAIR
from tidelog.testing.session_wires import CLIENT, Asked, Endpoint, Wire, Wires
from tidelog.testing.sometimes import Sometimes
from tidelog.testing.world import SECOND, World
from tidelog.types import NodeId

ONE, TWO = NodeId(1), NodeId(2)
THERE, BACK = (ONE, TWO), (TWO, ONE)


class Talker(Endpoint):
    """Notes all that happens to it, and answers with the number it was asked."""

    __slots__ = ("heard", "lost", "wires")

    def __init__(self, world: World, node: NodeId) -> None:
        super().__init__(world, node)
        self.heard: list[tuple[int, int]] = []
        self.lost: list[int] = []
        self.wires: Wires

    def on_asked(self, wire: Wire, asked: Asked) -> None:
        assert isinstance(asked.message, GroupCommit)
        self.heard.append((wire.number, asked.message.epoch))
        self.wires.answer(wire, Ack(asked.message.epoch))

    def on_answered(self, wire: Wire, answer: Answer) -> None:
        assert isinstance(answer, Ack)
        self.heard.append((wire.number, answer.append_us))

    def on_lost(self, wire: Wire) -> None:
        self.lost.append(wire.number)


class Pair:
    """Two talkers, and what came for nobody."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(Journal())
        self.stray: list[Request | Answer] = []
        self.wires = Wires(self.world, Chance(seed), FAIR, Sometimes(), self.stray.append)
        self.client, self.server = (Talker(self.world, node) for node in (ONE, TWO))
        for talker in (self.client, self.server):
            talker.wires = self.wires
            self.world.start(talker)

    def ask(self, wire: Wire, *numbers: int) -> None:
        for number in numbers:
            self.wires.ask(wire, Asked(GroupCommit(number)))

    def connect(self) -> Wire:
        return self.wires.connect(self.client, self.server)

    def run(self) -> None:
        self.world.run_until(self.world.now + SECOND)


def test_a_connection_keeps_its_order_and_connections_overtake_one_another() -> None:
    overtaken = False
    for seed in range(10):
        pair = Pair(seed)
        first, second = pair.connect(), pair.connect()
        pair.ask(first, 1, 2, 3)
        pair.ask(second, 1, 2, 3)
        pair.run()
        for talker in (pair.client, pair.server):
            for wire in (first, second):
                assert [said for at, said in talker.heard if at == wire.number] == [1, 2, 3]
            overtaken |= [at for at, _ in talker.heard] != [1, 1, 1, 2, 2, 2]
    assert overtaken


def test_what_meets_a_severed_path_waits_and_then_comes_in_its_order() -> None:
    pair = Pair()
    wire = pair.connect()
    pair.wires.sever((THERE,))
    pair.ask(wire, 1, 2)
    pair.run()
    assert pair.server.heard == []
    pair.wires.mend((THERE,))
    pair.ask(wire, 3)
    pair.run()
    assert pair.client.heard == [(1, 1), (1, 2), (1, 3)]


def test_answers_wait_for_their_own_direction() -> None:
    pair = Pair()
    wire = pair.connect()
    pair.wires.sever((BACK,))
    pair.ask(wire, 1)
    pair.run()
    assert (pair.server.heard, pair.client.heard) == ([(1, 1)], [])
    pair.wires.clear()
    pair.run()
    assert pair.client.heard == [(1, 1)]


def test_who_hangs_up_is_heard_to_the_end_and_hears_nothing_more() -> None:
    pair = Pair()
    wire = pair.connect()
    pair.ask(wire, 1)
    pair.wires.hang(wire, CLIENT)
    pair.run()
    assert pair.server.heard == [(1, 1)]
    assert pair.server.lost == [1]
    assert (pair.client.heard, pair.client.lost) == ([], [])


def test_a_reset_is_known_at_both_ends_and_nothing_passes_afterwards() -> None:
    pair = Pair()
    wire = pair.connect()
    pair.run()
    pair.wires.reset(wire)
    pair.run()
    assert pair.client.lost == pair.server.lost == [1]
    pair.ask(wire, 1)
    pair.run()
    assert pair.server.heard == []


def test_a_killed_process_is_missed_soon_and_one_without_power_in_the_end() -> None:
    for power_lost in (False, True):
        pair = Pair()
        pair.connect()
        pair.run()
        pair.wires.stopped(pair.client, power_lost=power_lost)
        pair.run()
        assert pair.server.lost == [1]


def test_a_process_that_was_started_again_hears_nothing_of_its_former_life() -> None:
    pair = Pair()
    wire = pair.connect()
    pair.run()
    pair.world.crash(pair.server)
    pair.wires.stopped(pair.server, power_lost=True)
    pair.world.start(pair.server)
    pair.ask(wire, 1)
    pair.run()
    assert pair.server.heard == []
    assert pair.stray == [GroupCommit(1)]
    assert pair.client.lost == [1]


def test_nobody_listens_where_no_process_runs() -> None:
    pair = Pair()
    pair.world.kill(pair.server)
    pair.connect()
    pair.run()
    assert pair.client.lost == [1]
