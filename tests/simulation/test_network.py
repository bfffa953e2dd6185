"""What the simulated network does to messages (K1 to K3)."""

from __future__ import annotations

import pytest

from tidelog.testing.chance import Chance
from tidelog.testing.journal import Journal
from tidelog.testing.network import WIRE_SAMPLE, Network, Weather
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.violation import Violation
from tidelog.testing.world import Process, World
from tidelog.types import NodeId

A, B = NodeId(1), NodeId(2)


class Post:
    """Two processes on a network, and what they got."""

    def __init__(self, weather: Weather, *, seed: int = 1, wire_adds: int = 0) -> None:
        self.world = World(Journal())
        self.sometimes = Sometimes()
        self.got: list[tuple[NodeId, int]] = []
        self.network: Network[int] = Network(
            self.world,
            Chance(seed),
            weather,
            self.sometimes,
            lambda target, message: self.got.append((target, message)),
            lambda message: message + wire_adds,
        )
        self.processes = {node: Process(self.world, node) for node in (A, B)}
        for process in self.processes.values():
            self.network.connect(process)
            self.world.start(process)

    def send(self, count: int) -> list[int]:
        """Send so many messages from A to B, and return what arrives."""
        for message in range(count):
            self.network.send(A, B, message)
        self.world.run_until(self.world.now + 10_000_000)
        return [message for target, message in self.got if target == B]


def test_a_fair_network_delivers_everything_once_and_in_order() -> None:
    assert Post(Weather()).send(200) == list(range(200))


def test_loss_takes_about_its_share() -> None:
    arrived = Post(Weather(loss=0.2)).send(1000)
    assert 700 < len(arrived) < 900
    assert len(set(arrived)) == len(arrived)


def test_duplication_repeats_about_its_share() -> None:
    post = Post(Weather(duplication=0.3))
    arrived = post.send(1000)
    assert 1200 < len(arrived) < 1400
    assert set(arrived) == set(range(1000))
    assert post.sometimes.counts[Rare.MESSAGE_REPEATED] == len(arrived) - 1000


def test_reordering_overtakes_and_loses_nothing() -> None:
    arrived = Post(Weather(reordering=True, delay_mean=5_000)).send(100)
    assert arrived != sorted(arrived)
    assert sorted(arrived) == list(range(100))


def test_nothing_passes_a_severed_path_also_what_was_in_flight() -> None:
    post = Post(Weather())
    post.network.send(A, B, 1)
    post.network.sever(((A, B),))
    post.network.send(B, A, 2)
    post.world.run_until(1_000_000)
    assert post.got == [(A, 2)]
    post.network.mend(((A, B),))
    assert post.send(3) == [0, 1, 2]


def test_two_breaks_of_a_path_need_two_repairs() -> None:
    post = Post(Weather())
    post.network.sever(((A, B),))
    post.network.sever(((A, B),))
    post.network.mend(((A, B),))
    assert post.send(1) == []
    post.network.mend(((A, B),))
    assert post.send(1) == [0]


def test_a_clogged_path_delivers_in_one_go_afterwards() -> None:
    post = Post(Weather())
    post.network.clog((A, B), 50_000)
    for message in range(3):
        post.network.send(A, B, message)
    post.world.run_until(49_999)
    assert post.got == []
    post.world.run_until(50_000)
    assert [message for _, message in post.got] == [0, 1, 2]


def test_a_process_that_is_down_gets_nothing() -> None:
    post = Post(Weather())
    post.network.send(A, B, 1)
    post.world.crash(post.processes[B])
    post.world.run_until(1_000_000)
    post.world.start(post.processes[B])
    post.world.run_until(2_000_000)
    assert post.got == []


def test_a_message_that_does_not_survive_the_wire_is_found() -> None:
    post = Post(Weather(), wire_adds=1)
    with pytest.raises(Violation, match="wire"):
        post.send(WIRE_SAMPLE)


def test_the_same_seed_brings_the_same_luck() -> None:
    weather = Weather(loss=0.1, duplication=0.1, delay_mean=5_000, reordering=True)
    first = Post(weather, seed=7).send(200)
    assert first == Post(weather, seed=7).send(200)
    assert first != Post(weather, seed=8).send(200)
