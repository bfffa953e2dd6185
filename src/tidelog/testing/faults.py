"""Which faults a seed has, drawn before it runs.  No state.

Each class of faults is in a seed or not, by the toss of a coin; variety finds more than
intensity.  All faults are drawn in advance, each with its own numbers, so that any of them can be
left out and the others stay as they are: that is what shrinking does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from random import Random
from typing import Final

import msgspec

from tidelog.testing.chance import Chance
from tidelog.testing.network import Weather
from tidelog.testing.sometimes import Kind
from tidelog.testing.world import MILLISECOND, SECOND

DRAW_END: Final = 1 << 30
BUDGET_MAX: Final = {Kind.RAFT: 120, Kind.CLUSTER: 120, Kind.SESSION: 40}
"""About so many faults strike in one seed; each class has its share."""
DURATION_MAX: Final = {
    Kind.RAFT: 12 * SECOND,
    Kind.CLUSTER: 7 * SECOND,
    Kind.SESSION: 3 * SECOND,
}
CAMPAIGNS_MAX: Final = 16
"""Short restarts strike around one of the first so many campaigns."""


class FaultClass(Enum):
    """What can go wrong, or be asked for at a bad time; the value names it on the command line."""

    LOSS = "loss"
    DUPLICATION = "duplication"
    DELAY = "delay"
    REORDERING = "reordering"
    PARTITION = "partition"
    ONE_WAY = "one-way"
    CLOG = "clog"
    CRASH = "crash"
    KILL = "kill"
    DISK_CRASH = "disk-crash"
    POWER_LOSS = "power-loss"
    SHORT_RESTART = "short-restart"
    PAUSE = "pause"
    WIPE = "wipe"
    SLOW_DISK = "slow-disk"
    CLOCK_SKEW = "clock-skew"
    TRANSFER = "transfer"
    MEMBERSHIP = "membership"
    COMPACTION = "compaction"
    TERM = "term"
    ENSEMBLE = "ensemble"
    METADATA = "metadata"
    RESET = "reset"
    DISK_FAILURE = "disk-failure"
    CLOSE = "close"
    PROMOTION = "promotion"
    STRANGER = "stranger"


WEATHER: Final = (
    FaultClass.LOSS,
    FaultClass.DUPLICATION,
    FaultClass.DELAY,
    FaultClass.REORDERING,
    FaultClass.SLOW_DISK,
    FaultClass.CLOCK_SKEW,
    FaultClass.COMPACTION,
)
"""Classes that are there all the time; the others strike at single moments."""

_OF_SESSIONS: Final = (
    FaultClass.RESET,
    FaultClass.DISK_FAILURE,
    FaultClass.CLOSE,
    FaultClass.PROMOTION,
    FaultClass.STRANGER,
)
OF_OTHER_KIND: Final = {
    Kind.RAFT: (FaultClass.TERM, FaultClass.ENSEMBLE, FaultClass.METADATA, *_OF_SESSIONS),
    Kind.CLUSTER: (FaultClass.MEMBERSHIP, *_OF_SESSIONS),
    Kind.SESSION: (
        # A connection loses, repeats and reorders nothing; its disk is a model.
        FaultClass.LOSS,
        FaultClass.DUPLICATION,
        FaultClass.REORDERING,
        FaultClass.DISK_CRASH,
        FaultClass.SHORT_RESTART,
        FaultClass.TRANSFER,
        FaultClass.MEMBERSHIP,
        FaultClass.COMPACTION,
        FaultClass.TERM,
        FaultClass.ENSEMBLE,
        FaultClass.METADATA,
    ),
}
"""Classes that make no sense in a kind."""


class Fault(msgspec.Struct, frozen=True):
    """One fault.  ``target`` and ``strength`` are draws that its class makes sense of.

    ``at`` is a time, or for a short restart the number of the campaign that it strikes.
    """

    what: FaultClass
    number: int
    at: int
    duration: int
    target: int
    strength: int

    @property
    def name(self) -> str:
        """How the command line calls it."""
        return f"{self.what.value}:{self.number}"

    def __str__(self) -> str:
        if self.what is FaultClass.SHORT_RESTART:
            when = f"around campaign {self.at}"
        else:
            when = f"at {self.at / 1000:,.1f} ms"
        return f"{self.name} {when}, for {self.duration / 1000:,.1f} ms"


class Reduction(msgspec.Struct, frozen=True):
    """What is left out of a seed: to find out what a failure needs, or to repeat it."""

    without: tuple[FaultClass, ...] = ()
    only: tuple[str, ...] | None = None
    """Names of the faults that stay; None: all."""
    stop_at: int | None = None
    """When the faults end and the healing begins; None: as drawn."""


class Plan(msgspec.Struct, frozen=True):
    """All that is drawn before a seed runs; times in microseconds."""

    kind: Kind
    seed: int
    reduction: Reduction
    duration: int
    weather: Weather
    sync_min: int
    sync_mean: int
    clock_spread_percent: int
    compacts: bool
    faults: tuple[Fault, ...]

    @property
    def chance(self) -> Chance:
        """The chance of this seed."""
        return Chance(self.seed)

    def has(self, what: FaultClass) -> bool:
        """Whether a class is in this seed."""
        return what in present_classes(self)


def draw_plan(kind: Kind, seed: int, reduction: Reduction | None = None) -> Plan:
    """Draw the plan of a seed, and leave out what ``reduction`` says."""
    reduction = Reduction() if reduction is None else reduction
    chance = Chance(seed)
    drawn = _drawn_classes(kind, chance)
    classes = [what for what in drawn if what not in reduction.without]
    shape = chance.stream("plan", "shape")
    duration = shape.randrange(DURATION_MAX[kind] // 4, DURATION_MAX[kind])
    if reduction.stop_at is not None:
        duration = min(duration, reduction.stop_at)
    disk = chance.stream("plan", "disk")
    slow = disk.choice((2, 10, 40)) * MILLISECOND
    return Plan(
        kind=kind,
        seed=seed,
        reduction=reduction,
        duration=duration,
        weather=_draw_weather(chance.stream("plan", "weather"), classes),
        sync_min=100,
        sync_mean=slow if FaultClass.SLOW_DISK in classes else 200,
        clock_spread_percent=50 if FaultClass.CLOCK_SKEW in classes else 0,
        compacts=FaultClass.COMPACTION in classes,
        faults=tuple(_draw_faults(chance, kind, drawn, duration, reduction)),
    )


def present_classes(plan: Plan) -> list[FaultClass]:
    """Return the classes that a plan has, in their order."""
    drawn = _drawn_classes(plan.kind, plan.chance)
    left = {fault.what: None for fault in plan.faults}
    return [
        what
        for what in drawn
        if what not in plan.reduction.without and (what in WEATHER or what in left)
    ]


def _drawn_classes(kind: Kind, chance: Chance) -> list[FaultClass]:
    return [
        what
        for what in FaultClass
        if what not in OF_OTHER_KIND[kind]
        and chance.stream("plan", "class", what.value).random() < 0.5
    ]


def _draw_weather(chance: Random, classes: Collection[FaultClass]) -> Weather:
    loss, duplication = chance.choice((0.01, 0.05, 0.2)), chance.choice((0.02, 0.1, 0.4))
    delay_mean = chance.choice((1, 5, 20)) * MILLISECOND
    return Weather(
        loss=loss if FaultClass.LOSS in classes else 0.0,
        duplication=duplication if FaultClass.DUPLICATION in classes else 0.0,
        delay_mean=delay_mean if FaultClass.DELAY in classes else 300,
        reordering=FaultClass.REORDERING in classes,
    )


def _draw_faults(
    chance: Chance, kind: Kind, drawn: Collection[FaultClass], duration: int, reduction: Reduction
) -> Iterator[Fault]:
    """Draw the same faults whatever is left out, and then leave that out."""
    struck = [what for what in drawn if what not in WEATHER]
    share = max(1, BUDGET_MAX[kind] // max(1, len(struck)))
    for what in struck:
        draws = chance.stream("plan", "faults", what.value)
        for number in range(1, draws.randrange(1, share + 1) + 1):
            fault = _draw_fault(what, number, draws, DURATION_MAX[kind])
            is_in_time = what is FaultClass.SHORT_RESTART or fault.at < duration
            is_kept = reduction.only is None or fault.name in reduction.only
            if is_in_time and is_kept and what not in reduction.without:
                yield fault


def _draw_fault(what: FaultClass, number: int, draws: Random, end: int) -> Fault:
    if what is FaultClass.SHORT_RESTART:
        at = draws.randrange(1, CAMPAIGNS_MAX + 1)
        duration = draws.randrange(1, draws.choice((2, 20, 200)) * MILLISECOND)
    else:
        at = draws.randrange(50 * MILLISECOND, end)
        duration = int(draws.expovariate(1.0) * draws.choice((10, 100, 800)) * MILLISECOND) + 1
    return Fault(
        what=what,
        number=number,
        at=at,
        duration=min(duration, 3 * SECOND),
        target=draws.randrange(DRAW_END),
        strength=draws.randrange(DRAW_END),
    )
