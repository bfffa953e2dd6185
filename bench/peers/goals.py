"""What Tidelog is to reach, as ratios to its peers in the same run.  No state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.peers.measuring import Figures
from bench.peers.running import Row
from bench.peers.works import BATCHES, MIDDLE, SMALL, TOTAL_ORDER, Kind, Work

Found = Mapping[Work, Mapping[Row, Figures]]

BATCHED_SMALL: Final = Work(Kind.BATCHED, SMALL, BATCHES[SMALL])
BATCHED_MIDDLE: Final = Work(Kind.BATCHED, MIDDLE, BATCHES[MIDDLE])
PIPELINED: Final = Work(Kind.SMALL, SMALL)
ONE: Final = Work(Kind.ONE, SMALL)
AT_RATE: Final = Work(Kind.RATE, SMALL)
CONSUME: Final = Work(Kind.CONSUME, SMALL)
DISK: Final = Work(Kind.DISK, SMALL)


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for Tidelog's figure, as a multiple of a peer's if there is one."""

    work: Work
    figure: str
    bound: float
    at_least: bool
    peer: str = ""
    """Empty: the bound is for the figure itself."""
    peer_work: Work | None = None
    """The peer's, if it is another one."""
    syncing: bool | None = None
    """Peers that sync, or that do not; None: whichever."""
    variant: str = "ordered"
    is_stock: bool = False
    """Compare with clients that are not lean."""

    @property
    def text(self) -> str:
        sign = "≥" if self.at_least else "≤"
        name = f"{self.work.name}, {self.variant.upper()}"
        if not self.peer:
            return f"{name}: {self.figure} {sign} {self.bound:g}"
        kind = {None: "", True: ", which syncs", False: ", which does not sync"}[self.syncing]
        client = ", usual clients" if self.is_stock else ""
        return f"{name}: {sign} {self.bound:g} × {self.peer}{kind}{client}"


_RATE: Final = "records_per_second"
_SYNCING: Final = ("NATS JetStream", "Redis streams", "etcd", "RabbitMQ", "Kafka")

GOALS: Final = (
    Goal(BATCHED_SMALL, _RATE, 3, True, "RabbitMQ", syncing=False),
    Goal(BATCHED_SMALL, _RATE, 4, True, "Kafka", syncing=False),
    Goal(BATCHED_SMALL, _RATE, 8, True, "NATS JetStream", syncing=False),
    Goal(BATCHED_MIDDLE, _RATE, 1.5, True, "RabbitMQ", syncing=False),
    Goal(BATCHED_MIDDLE, _RATE, 2, True, "Kafka", syncing=False),
    Goal(BATCHED_MIDDLE, _RATE, 2, True, "NATS JetStream", syncing=False),
    Goal(PIPELINED, _RATE, 1, True, "RabbitMQ", syncing=False),
    Goal(PIPELINED, _RATE, 3, True, "NATS JetStream", syncing=False),
    *(Goal(BATCHED_SMALL, _RATE, 5, True, peer, syncing=True) for peer in _SYNCING),
    *(Goal(BATCHED_MIDDLE, _RATE, 3, True, peer, syncing=True) for peer in _SYNCING),
    Goal(ONE, "p50_us", 0.6, False, "etcd", variant="propagated"),
    Goal(ONE, "p50_us", 1.5, False, "etcd"),
    Goal(AT_RATE, "p99_us", 5_000, False),
    *(
        Goal(TOTAL_ORDER, _RATE, 3, True, peer, peer_work=CONSUME, is_stock=True)
        for peer in ("NATS JetStream", "Redis streams", "etcd", "RabbitMQ", "Kafka")
    ),
    Goal(DISK, "disk_bytes_per_byte", 1.3, False),
)


def goal_rows(found: Found) -> list[tuple[str, str, str]]:
    """Goal, what was measured, and whether it is met; nothing of what was not measured."""
    return [row for goal in GOALS if (row := _row(goal, found)) is not None]


def goals_line(found: Found) -> str:
    """How many goals are met, and which are not; what was not measured is counted, too."""
    rows = goal_rows(found)
    missed = [goal for goal, _, met in rows if met == "no"]
    counts = [f"{len(rows) - len(missed)} of {len(GOALS)} met", f"{len(missed)} missed"]
    if unmeasured := len(GOALS) - len(rows):
        counts.append(f"{unmeasured} not measured")
    names = f" Missed: {'; '.join(missed)}." if missed else ""
    return f"**Goals: {', '.join(counts)}.**{names}"


def _row(goal: Goal, found: Found) -> tuple[str, str, str] | None:
    ours = _best(goal, found.get(goal.work, {}), lambda row: _is_ours(goal, row))
    if ours is None:
        return None
    if not goal.peer:
        return goal.text, f"{ours:,.2f}", _met(goal, ours)
    rows = found.get(goal.peer_work or goal.work, {})
    theirs = _best(goal, rows, lambda row: _is_theirs(goal, row))
    if theirs is None:
        return None
    ratio = ours / theirs
    return goal.text, f"{ratio:.2f} × ({ours:,.0f} to {theirs:,.0f})", _met(goal, ratio)


def _is_ours(goal: Goal, row: Row) -> bool:
    return row.peer == "Tidelog" and row.variant.name == goal.variant


def _is_theirs(goal: Goal, row: Row) -> bool:
    if row.peer != goal.peer or (goal.is_stock and row.client == "lean"):
        return False
    return goal.syncing is None or row.variant.syncs == goal.syncing


def _best(goal: Goal, rows: Mapping[Row, Figures], counts: Callable[[Row], bool]) -> float | None:
    """The best figure of those that count, whoever drives them."""
    figures = [figures[goal.figure] for row, figures in rows.items() if counts(row)]
    if not figures:
        return None
    return max(figures) if goal.at_least else min(figures)


def _met(goal: Goal, value: float) -> str:
    is_met = value >= goal.bound if goal.at_least else value <= goal.bound
    return "yes" if is_met else "no"
