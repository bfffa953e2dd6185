"""Crash a workload at every call that changes the disk, and check everything a crash can leave.

``enumerate_crashes`` is exhaustive over crash points, and over what each of them can leave on the
disk as far as the bound on outcomes allows.  A failure names the crash, and ``replay`` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from tidelog.invariants import InvariantViolation
from tidelog.testing.disk import (
    Choice,
    Choices,
    Effect,
    Op,
    SimDisk,
    SimulatedCrash,
    SimVfs,
    crash_outcomes,
    outcome_count,
)


class Variant(Enum):
    """How the crash meets the call it is counted by."""

    AFTER = "after"
    """The call returns; whatever the workload calls next finds the disk down."""
    CUT = "cut"
    """The call does not return: its effect is pending, and a sync did not take place."""


@dataclass(slots=True)
class Journal:
    """What a workload knows at the time of the crash; it survives, to be held against the disk.

    The workload notes an attempt before it calls the product, and what was acknowledged after.
    """

    attempted: list[Any] = field(default_factory=list)
    acknowledged: list[Any] = field(default_factory=list)

    def copy(self) -> Journal:
        return Journal(list(self.attempted), list(self.acknowledged))


Run: TypeAlias = Callable[[SimVfs, Journal], None]
Check: TypeAlias = Callable[[SimVfs, Journal], None]
Prepare: TypeAlias = Callable[[SimVfs], None]


@dataclass(frozen=True, slots=True)
class CrashReport:
    """How much was tried."""

    points: int
    """Calls that the workload was crashed at, each in both variants."""
    outcomes: int
    """Different pairs of disk and journal that were checked."""
    bounded_points: int
    """Points with more outcomes than the bound, where only a part was tried."""


class CrashFailure(AssertionError):
    """The check did not hold after a crash."""

    def __init__(
        self, crash: _Crash, effects: Sequence[Effect], choices: Choices, error: BaseException
    ) -> None:
        self.point = crash.point
        self.variant = crash.variant
        self.effects = tuple(effects)
        self.choices = choices
        letters = "".join(choice.value for choice in choices)
        call = "nothing" if crash.call is None else f"{crash.call[0].value} {crash.call[1]}"
        lines = [
            f"{type(error).__name__}: {error}",
            f"crash point {crash.point}, {crash.variant.value}: {call}",
            *(f"  {c.name:<9} {effect}" for effect, c in zip(effects, choices, strict=True)),
            f"acknowledged: {_shortened(crash.journal.acknowledged)}",
            f"replay(point={crash.point}, variant={crash.variant}, choices={letters!r})",
        ]
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class _Crash:
    """A workload that was crashed: the disk before anything was lost, and the journal."""

    point: int
    variant: Variant
    call: tuple[Op, str] | None
    disk: SimDisk
    journal: Journal


def enumerate_crashes(
    run: Run,
    check: Check,
    *,
    prepare: Prepare | None = None,
    outcomes_max: int,
    points: range | None = None,
    disk: SimDisk | None = None,
) -> CrashReport:
    """Run ``check`` on everything that a crash of ``run`` can leave on the disk.

    ``prepare`` runs once, without faults, on a new disk or on a copy of ``disk``; what it did
    not sync can be lost as well.  ``run`` is then crashed at each of its counted calls, or at
    those of ``points`` (from 1; points behind the last call are left out), and must make the
    same calls each time.  ``check`` gets a disk of its own and may write to it, so that it can
    recover, and even enumerate the crashes of the recovery.  Equal disks with equal journals
    are checked once.
    """
    base = _prepared(prepare, disk)
    seen: dict[int, list[Journal]] = {}
    outcomes = bounded_points = tried = 0
    total = _calls_of(base, run)
    for point in _clipped(points, total):
        tried += 1
        bounded = False
        for variant in Variant:
            crash = _crash(base, run, point, variant, total)
            effects = crash.disk.pending_effects()
            bounded = bounded or outcome_count(effects) > outcomes_max
            for choices in crash_outcomes(effects, outcomes_max):
                left = crash.disk.after_crash(choices)
                journals = seen.setdefault(left.fingerprint(), [])
                if crash.journal in journals:
                    continue
                journals.append(crash.journal)
                outcomes += 1
                _check(check, left, crash, effects, choices)
        bounded_points += bounded
    return CrashReport(tried, outcomes, bounded_points)


def replay(
    run: Run,
    check: Check,
    *,
    prepare: Prepare | None = None,
    point: int,
    variant: Variant,
    choices: Iterable[Choice] | str,
    disk: SimDisk | None = None,
) -> None:
    """Repeat one crash of ``enumerate_crashes``; ``choices`` as the failure prints them."""
    base = _prepared(prepare, disk)
    crash = _crash(base, run, point, variant, _calls_of(base, run))
    chosen = tuple(Choice(choice) for choice in choices)
    effects = crash.disk.pending_effects()
    _check(check, crash.disk.after_crash(chosen), crash, effects, chosen)


def _prepared(prepare: Prepare | None, disk: SimDisk | None) -> SimDisk:
    base = SimDisk() if disk is None else disk.copy()
    if prepare is not None:
        prepare(base.vfs())
    return base


def _calls_of(base: SimDisk, run: Run) -> int:
    """How many crash points the workload has."""
    disk = base.copy()
    run(disk.vfs(), Journal())
    return disk.operations


def _clipped(points: range | None, total: int) -> Iterable[int]:
    if points is None:
        return range(1, total + 1)
    return [point for point in points if 1 <= point <= total]


def _crash(base: SimDisk, run: Run, point: int, variant: Variant, total: int) -> _Crash:
    disk = base.copy()
    journal = Journal()
    disk.crash_after(point, cut=variant is Variant.CUT)
    try:
        run(disk.vfs(), journal)
    except SimulatedCrash:
        pass
    except (AssertionError, InvariantViolation):
        raise
    except Exception:
        # A thread of the product may meet the crash and report it in its own words.
        if not disk.crashed:
            raise
    if disk.operations != point or not (disk.crashed or point == total):
        raise AssertionError(f"the workload made other calls than before, up to call {point}")
    return _Crash(point, variant, disk.last_call, disk, journal)


def _check(
    check: Check, left: SimDisk, crash: _Crash, effects: Sequence[Effect], choices: Choices
) -> None:
    try:
        check(left.vfs(), crash.journal.copy())
    except (Exception, InvariantViolation) as error:
        raise CrashFailure(crash, effects, choices, error) from error


def _shortened(values: Sequence[object], shown: int = 20) -> str:
    more = f" and {len(values) - shown} before" if len(values) > shown else ""
    return f"{list(values[-shown:])!r}{more}"
