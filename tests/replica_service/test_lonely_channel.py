"""Where steps of the store run: in threads, or in the event loop while one channel works alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from tidelog.core.session.output import CONTROL
from tidelog.replica_service import store_work
from tidelog.replica_service.store_work import ALONE, Step, StoreWork

PLENTY = 40


@pytest.fixture(autouse=True)
def brisk_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is too slow, however busy this machine is."""
    monkeypatch.setattr(store_work, "_BRISK_NS", 10**12)


class Steps:
    """Notes for each step, in the order in which they were told, whether it ran in the loop."""

    def __init__(self) -> None:
        self._loop_thread = threading.get_ident()
        self.told: list[tuple[int, bool]] = []

    def step(
        self, lane: int, during: Callable[[], object] = lambda: None, *, is_brief: bool = True
    ) -> Step:
        def work() -> Callable[[], None]:
            here = threading.get_ident() == self._loop_thread
            during()
            return lambda: self.told.append((lane, here))

        return Step(lane, work, is_brief)


async def run(work: StoreWork, steps: list[Step]) -> None:
    """One after the other, as the requests of a peer come."""
    for step in steps:
        work.add(step)
        await work.wait_until_idle()


def test_a_channel_that_works_alone_costs_no_threads_and_group_commits_neither() -> None:
    async def scenario() -> list[tuple[int, bool]]:
        work, steps = StoreWork(2, "test"), Steps()
        lanes = [CONTROL if number % 5 == 0 else 1 for number in range(PLENTY)]
        await run(work, [steps.step(lane) for lane in lanes])
        await work.stop()
        assert [lane for lane, _ in steps.told] == lanes
        return steps.told

    told = asyncio.run(scenario())
    assert not told[0][1]
    assert all(here for _, here in told[-10:])


def test_channels_that_work_at_once_have_threads_so_that_they_share_syncs() -> None:
    async def scenario() -> list[tuple[int, bool]]:
        work, steps = StoreWork(2, "test"), Steps()
        await run(work, [steps.step(number % 2) for number in range(PLENTY)])
        await work.stop()
        return steps.told

    assert not any(here for _, here in asyncio.run(scenario()))


def test_a_slow_disk_and_long_steps_do_not_hold_up_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> tuple[list[tuple[int, bool]], list[tuple[int, bool]]]:
        work, steps = StoreWork(2, "test"), Steps()
        await run(work, [steps.step(1) for _ in range(PLENTY)])
        await run(work, [steps.step(1, is_brief=False), steps.step(ALONE, is_brief=False)])
        long = steps.told[-2:]
        monkeypatch.setattr(store_work, "_BRISK_NS", 0)  # Every disk is too slow for this.
        await run(work, [steps.step(1) for _ in range(PLENTY)])
        await work.stop()
        return long, steps.told[-PLENTY:]

    long, slow = asyncio.run(scenario())
    assert not any(here for _, here in long)
    assert slow[0][1], "the first slow step is what shows that the disk is slow"
    assert not any(here for _, here in slow[1:])


def test_a_step_waits_for_one_of_its_lane_that_runs_in_a_thread() -> None:
    async def scenario() -> list[tuple[int, bool]]:
        work, steps = StoreWork(2, "test"), Steps()
        await run(work, [steps.step(1) for _ in range(PLENTY)])
        gate = threading.Event()
        work.add(steps.step(1, gate.wait, is_brief=False))
        work.add(steps.step(1))
        assert not work.is_free(1)
        gate.set()
        await work.wait_until_idle()
        assert work.is_free(1)
        await work.stop()
        return steps.told[-2:]

    assert [here for _, here in asyncio.run(scenario())] == [False, False]
