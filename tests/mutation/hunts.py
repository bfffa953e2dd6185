"""The checks that mutants are let loose on; each of them passes on the code as it is."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from tests.crash import scenarios, steps
from tests.crash.nested import Nested, first_stops
from tests.crash.repeatable import CHANCE
from tests.crash.scribe import Scribe, open_log
from tests.mutation.left_out import Change
from tidelog.errors import CorruptData, StorageFailed
from tidelog.testing.crash import Journal, enumerate_crashes
from tidelog.testing.disk import Op, SimDisk

Hunt: TypeAlias = Callable[[Change], None]
"""Gets what to put in place before anything is checked, after the state was prepared."""


def crashes_of(name: str) -> Hunt:
    """Every crash point of a scenario of the crash tests."""

    def hunt(change: Change) -> None:
        scenario = scenarios.scenario(name)
        disk, base = scenario.prepared()
        with change():
            enumerate_crashes(
                scenario.run,
                scenario.check(base),
                disk=disk,
                outcomes_max=scenarios.OUTCOMES_MAX,
            )

    return hunt


def kills_of(name: str) -> Hunt:
    """A power loss soon after every kill in a scenario of the crash tests."""

    def hunt(change: Change) -> None:
        scenario = scenarios.scenario(name)
        disk, base = scenario.prepared()
        with change():
            nested = Nested(scenario, base, outcomes_max=4)
            for _, how, left, journal in first_stops(disk, scenario.run, scenario.points(0), 1):
                if how == "kill":
                    nested.check_second_stops(left, journal)

    return hunt


def bit_rot_in_a_segment(change: Change) -> None:
    """A flipped bit in a value is an error, and never another value."""
    disk, path, offset = _segment_with(b"a value that rots")
    disk.flip_bit(path, offset, 3)
    with change(), open_log(disk.vfs()) as log:
        _check_damage_is_found(lambda: list(log.read()))


def _check_damage_is_found(read: Callable[[], object]) -> None:
    try:
        read()
    except CorruptData:
        return
    raise AssertionError("damage was not noticed")


def _segment_with(value: bytes) -> tuple[SimDisk, str, int]:
    """A disk with a segment that holds ``value``, the segment's path, and where the value is."""
    CHANCE.begin("prepare")
    disk = SimDisk()
    with open_log(disk.vfs()) as log:
        scribe = Scribe(log, Journal())
        scribe.append(value)
        scribe.flush()
    ((path, data),) = [(p, d) for p, d in disk.files().items() if p.endswith(".segment")]
    return disk, path, data.index(value)


def a_wal_that_was_cut(change: Change) -> None:
    """The manifest counts the durable frames, so a WAL that lost its last ones is damaged."""
    CHANCE.begin("prepare")
    disk = SimDisk()
    with open_log(disk.vfs()) as log:
        Scribe(log, Journal()).append(b"first")
        Scribe(log, Journal()).append(b"the last one")
    ((path, data),) = [(p, d) for p, d in disk.files().items() if p.endswith(".wal")]
    disk.truncate(path, data.index(b"the last one"))
    with change():
        _check_damage_is_found(lambda: open_log(disk.vfs()).close())


def deletes_through_compaction(change: Change) -> None:
    """What was deleted before one snapshot stays deleted through the next ones."""
    CHANCE.begin("prepare")
    log = open_log(SimDisk().vfs())
    steps.snapshot_of_deletes(Scribe(log, Journal()))
    with change():
        for number in range(2):
            log.compact(full=True)
            log.put(b"f", b"%d" % number)
        assert log.get(b"a") is None
        assert log.get(b"b") is None
    log.close()


def a_failed_fsync(change: Change) -> None:
    """An append whose sync failed is not acknowledged, or it is there after a crash."""
    CHANCE.begin("prepare")
    disk = SimDisk()
    log = open_log(disk.vfs())
    disk.fail(Op.SYNC, ".wal", errno.EIO)
    with change():
        try:
            receipt = log.append(b"not synced")
        except StorageFailed:
            return
        left = open_log(disk.after_crash().vfs())
        assert left.high_watermark == receipt.glsn
        left.close()


def a_failed_directory_sync(change: Change) -> None:
    """The same for the name of a new WAL file."""
    CHANCE.begin("prepare")
    disk = SimDisk()
    log = open_log(disk.vfs())
    disk.fail(Op.SYNC_DIR, "/wal", errno.EIO)
    with change():
        try:
            log.engine.node.wal.roll()
            receipt = log.append(b"in a file without a name")
        except StorageFailed:
            return
        left = open_log(disk.after_crash().vfs())
        assert left.high_watermark == receipt.glsn
        left.close()


DIRECTED = (
    bit_rot_in_a_segment,
    a_wal_that_was_cut,
    deletes_through_compaction,
    a_failed_fsync,
    a_failed_directory_sync,
)


def nothing() -> AbstractContextManager[None]:
    """No change at all."""
    return nullcontext()
