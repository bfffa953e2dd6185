"""Virtual time and the lives of processes (W1 to W3)."""

from __future__ import annotations

from functools import partial

from tidelog.testing.disk_faults import SimulatedCrash
from tidelog.testing.journal import Journal
from tidelog.testing.world import Process, State, World
from tidelog.types import NodeId


class Clock(Process):
    """Ticks every 10 and notes when; says how its lives ended."""

    __slots__ = ("ends", "ticks")

    def __init__(self, world: World) -> None:
        super().__init__(world, NodeId(1))
        self.ticks: list[int] = []
        self.ends: list[bool] = []

    def on_start(self) -> None:
        self.after(10, self.tick)

    def on_stop(self, *, power_lost: bool) -> None:
        self.ends.append(power_lost)

    def tick(self) -> None:
        self.ticks.append(self.world.now)
        self.after(10, self.tick)


def started() -> tuple[World, Clock]:
    world = World(Journal())
    clock = Clock(world)
    world.start(clock)
    return world, clock


def test_events_of_the_same_time_happen_in_the_order_they_were_planned() -> None:
    world, happened = World(Journal()), list[int]()
    for number in range(5):
        world.plan(7, partial(happened.append, number))
    world.plan(3, partial(happened.append, 9))
    world.run_until(10)
    assert happened == [9, 0, 1, 2, 3, 4]
    assert world.now == 10


def test_a_crashed_process_meets_nothing_that_it_planned() -> None:
    world, clock = started()
    world.run_until(25)
    world.crash(clock)
    world.run_until(45)
    world.start(clock)
    world.run_until(60)
    assert clock.ticks == [10, 20, 55]
    assert clock.ends == [True]


def test_a_kill_leaves_the_machine_its_power() -> None:
    world, clock = started()
    world.kill(clock)
    assert clock.ends == [False]
    assert clock.state is State.DOWN


def test_a_destroyed_machine_never_comes_back() -> None:
    world, clock = started()
    world.wipe(clock)
    world.start(clock)
    assert clock.state is State.GONE
    assert not clock.is_up


def test_a_paused_process_misses_ticks_and_then_gets_what_came_for_it_in_order() -> None:
    world, clock = started()
    world.run_until(15)
    world.pause(clock)
    heard: list[int] = []
    for number in range(3):
        world.let(clock, partial(heard.append, number))
    world.run_until(95)
    assert (clock.ticks, heard) == ([10], [])
    world.resume(clock)
    assert (clock.ticks, heard) == ([10, 95], [0, 1, 2])


def test_a_crash_while_paused_forgets_what_waited() -> None:
    world, clock = started()
    world.pause(clock)
    heard: list[int] = []
    world.let(clock, partial(heard.append, 1))
    world.crash(clock)
    world.start(clock)
    world.resume(clock)
    assert heard == []


def test_a_slow_clock_makes_a_process_late() -> None:
    world = World(Journal())
    clock = Clock(world)
    clock.clock_percent = 200
    world.start(clock)
    world.run_until(45)
    assert clock.ticks == [20, 40]


def test_a_crash_inside_a_disk_call_ends_the_life_that_made_the_call() -> None:
    world, clock = started()

    def call() -> None:
        raise SimulatedCrash("the disk is down")

    world.let(clock, call)
    assert clock.state is State.DOWN
    assert clock.ends == [True]
