"""Steps of the store run in order within a lane, at once across lanes, alone where told so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event, Lock

from tests.server.raw import run, until
from tidelog.replica_service.store_work import ALONE, Step, StoreWork


class Recorder:
    """Steps that wait until they are let go, and note when they begin and end."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.begun: list[str] = []
        self.told: list[str] = []
        self._gates: dict[str, Event] = {}

    def step(self, lane: int, name: str) -> Step:
        gate = self._gates[name] = Event()

        def work() -> Callable[[], None]:
            with self._lock:
                self.begun.append(name)
            assert gate.wait(30)
            return lambda: self.told.append(name)

        return Step(lane, work)

    def let_go(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()


async def settle() -> None:
    """Let everything that can happen by itself happen."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def test_steps_of_one_lane_run_one_after_the_other_and_lanes_at_once() -> None:
    async def main() -> None:
        work, recorder = StoreWork(8, "test"), Recorder()
        for lane, name in ((0, "a1"), (0, "a2"), (1, "b1"), (0, "a3"), (1, "b2")):
            work.add(recorder.step(lane, name))
        await until(lambda: sorted(recorder.begun) == ["a1", "b1"], "one of each lane runs")
        recorder.let_go("b1")
        await until(lambda: "b2" in recorder.begun, "the next of its lane runs")
        assert "a2" not in recorder.begun
        recorder.let_go("a1", "a2", "a3", "b2")
        await work.stop()
        assert [name for name in recorder.begun if name[0] == "a"] == ["a1", "a2", "a3"]
        assert sorted(recorder.told) == ["a1", "a2", "a3", "b1", "b2"]

    run(main())


def test_a_step_that_needs_the_store_for_itself_waits_and_lets_wait() -> None:
    async def main() -> None:
        work, recorder = StoreWork(8, "test"), Recorder()
        for lane, name in ((0, "a1"), (0, "a2"), (ALONE, "alone"), (1, "b1"), (0, "a3")):
            work.add(recorder.step(lane, name))
        await until(lambda: recorder.begun == ["a1"], "the first runs")
        await settle()
        assert recorder.begun == ["a1"]
        recorder.let_go("a1", "a2")
        await until(lambda: recorder.begun == ["a1", "a2", "alone"], "it runs behind all before")
        await settle()
        assert recorder.begun[-1] == "alone"
        recorder.let_go("alone", "b1", "a3")
        await work.stop()
        assert sorted(recorder.begun[3:]) == ["a3", "b1"]

    run(main())


def test_no_more_steps_run_than_there_are_threads() -> None:
    async def main() -> None:
        work, recorder = StoreWork(2, "test"), Recorder()
        for lane in range(4):
            work.add(recorder.step(lane, str(lane)))
        await until(lambda: len(recorder.begun) == 2, "two run")
        await settle()
        assert sorted(recorder.begun) == ["0", "1"]
        recorder.let_go("0", "1", "2", "3")
        await work.stop()
        assert sorted(recorder.told) == ["0", "1", "2", "3"]

    run(main())
