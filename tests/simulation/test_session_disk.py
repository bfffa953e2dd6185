"""The simulated epoch store (I1, I2), and what crashes do to its disk (E1 to E3)."""

from __future__ import annotations

from functools import partial

import pytest

from tidelog.core.session.output import ChannelBatch
from tidelog.testing import session_disk
from tidelog.testing.chance import Chance
from tidelog.testing.journal import Journal
from tidelog.testing.session_disk import SessionDisk
from tidelog.testing.session_image import AppendBatches, CutChannel, EpochImage, RecordEpoch
from tidelog.testing.sometimes import Sometimes
from tidelog.testing.violation import Violation
from tidelog.testing.world import SECOND, Process, World
from tidelog.types import NodeId


def batch(begin: int, data: bytes = b"x") -> ChannelBatch:
    return ChannelBatch(begin, begin + 1, data)


def append(channel: int, epoch: int, begin: int, data: bytes = b"x") -> AppendBatches:
    return AppendBatches(channel, epoch, (batch(begin, data),))


def image(*changes: AppendBatches | CutChannel | RecordEpoch) -> EpochImage:
    store = EpochImage()
    store._make_ready("id", 2)
    for change in changes:
        store.apply(change)
    return store


class Machine:
    """A disk with its process; nothing is written before it must be."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(Journal())
        self.process = Process(self.world, NodeId(1))
        chance = Chance(seed)
        self.disk = SessionDisk(
            self.process,
            chance.stream("sync"),
            chance.stream("disk"),
            Sometimes(),
            sync_min=100,
            sync_mean=100,
        )
        self.disk.create("id", 2)
        self.world.start(self.process)
        self.done: list[str] = []

    def run(self) -> None:
        self.world.run_until(self.world.now + SECOND)

    def restart(self, *, power_lost: bool) -> EpochImage:
        self.world.kill(self.process)
        self.disk.lose(power_lost=power_lost)
        before = self.disk.durable.copy()
        self.disk.open()
        self.world.start(self.process)
        return before


# Images.


def test_a_record_covers_the_epochs_up_to_its_own_in_the_order_of_channels() -> None:
    store = image(append(1, 2, 1), append(0, 3, 1), append(1, 4, 2), RecordEpoch(3))
    assert store.recorded == [1, 1]
    assert store.glsn_end == 3
    assert store.epoch == 3
    store.drop_unrecorded()
    assert store.ends() == (2, 2)


def test_the_same_entries_in_another_epoch_are_another_history() -> None:
    one = image(append(0, 2, 1), RecordEpoch(2))
    same = image(append(0, 2, 1), RecordEpoch(2))
    other = image(append(0, 2, 1), RecordEpoch(3))
    assert one.chain == same.chain != other.chain
    assert not other.holds(one.cuts[0])


@pytest.mark.parametrize(
    "change",
    [append(0, 2, 3), append(0, 1, 2), CutChannel(0, 1), RecordEpoch(2)],
    ids=["gap", "epoch over", "recorded cut", "recorded twice"],
)
def test_what_breaks_a_store_is_found(change: AppendBatches | CutChannel | RecordEpoch) -> None:
    store = image(append(0, 2, 1), RecordEpoch(2))
    with pytest.raises(Violation, match="session_entries"):
        store.apply(change)


def test_epochs_that_fall_within_a_channel_are_found() -> None:
    store = image(append(0, 5, 1))
    store.apply(append(1, 4, 1))
    with pytest.raises(Violation, match="follows"):
        store.apply(append(0, 4, 2))


def test_a_cut_takes_what_is_not_recorded() -> None:
    store = image(append(0, 2, 1), RecordEpoch(2), append(0, 3, 2), append(0, 3, 3))
    store.apply(CutChannel(0, 2))
    assert store.end(0) == 2


# Disks.


def test_a_flush_makes_its_channel_durable_and_says_so_then() -> None:
    machine = Machine()
    machine.disk.append(0, 1, (batch(1),))
    machine.disk.flush(0, lambda: machine.done.append("flushed"))
    assert machine.disk.seen.end(0) == 2
    assert (machine.disk.durable.end(0), machine.done) == (1, [])
    machine.run()
    assert (machine.disk.durable.end(0), machine.done) == (2, ["flushed"])


def test_what_only_waits_in_memory_dies_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_disk, "WRITTEN_EARLY", 0.0)
    machine = Machine()
    machine.disk.append(0, 1, (batch(1),))
    machine.run()
    assert machine.disk.seen.end(0) == 2
    assert machine.restart(power_lost=False).end(0) == 1
    assert machine.disk.seen.end(0) == 1


def test_what_is_written_out_early_survives_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_disk, "WRITTEN_EARLY", 1.0)
    machine = Machine()
    machine.disk.append(0, 1, (batch(1),))
    machine.run()
    assert machine.restart(power_lost=False).end(0) == 2


def test_a_restart_drops_what_was_flushed_and_not_recorded() -> None:
    machine = Machine()
    machine.disk.append(0, 1, (batch(1),))
    machine.disk.record(1, lambda: None)
    machine.disk.append(0, 2, (batch(2),))
    machine.disk.flush(0, lambda: None)
    machine.run()
    assert machine.restart(power_lost=True).end(0) == 3
    assert machine.disk.seen.end(0) == machine.disk.durable.end(0) == 2


def test_a_crash_during_a_sync_keeps_an_epoch_whole_or_not_at_all() -> None:
    kept = set[bool]()
    for seed in range(20):
        machine = Machine(seed)
        machine.disk.append(0, 1, (batch(1),))
        machine.disk.append(1, 1, (batch(1),))
        machine.disk.record(1, partial(machine.done.append, "recorded"))
        machine.world.run_until(machine.world.now + 50)
        machine.restart(power_lost=True)
        assert machine.done == []
        kept.add(machine.disk.seen.epoch == 1)
        assert machine.disk.seen.recorded == ([1, 1] if machine.disk.seen.epoch else [0, 0])
    assert kept == {True, False}


def test_what_is_written_during_a_sync_waits_for_the_next_one() -> None:
    machine = Machine()
    machine.disk.set_boundary(1, lambda: machine.done.append("first"))
    machine.world.run_until(machine.world.now + 50)
    machine.disk.set_boundary(2, lambda: machine.done.append("second"))
    while not machine.done:
        machine.world.step()
    assert (machine.done, machine.disk.durable.boundary) == (["first"], 1)
    machine.run()
    assert (machine.done, machine.disk.durable.boundary) == (["first", "second"], 2)
