"""What an operator keeps of one stream, and what it makes of it.

Invariants:
  W1  elections of a stream begin at least a pause apart, unless a person asks for one
  W2  no election begins by itself that cannot succeed: while too many nodes are silent, the term
      stays what it is
  W3  what somebody else may be at work on is left alone for as long as patience lasts
"""

from __future__ import annotations

from enum import Enum

from tidelog.core.operator.detection import Detection
from tidelog.core.operator.options import OperatorOptions
from tidelog.core.operator.plan import Status
from tidelog.core.operator.procedure import is_sane_term
from tidelog.core.operator.row import Row
from tidelog.core.replica.messages import Role, StatusResponse
from tidelog.types import NO_VERSION, NodeId, Term, Version


class Next(Enum):
    """What is to be done about a stream."""

    WAIT = "wait"
    TEND = "look after its leader and its followers"
    RESUME = "go on with a reconfiguration"
    ELECT = "elect a leader"


class Watch:
    """One stream as this operator sees it; times are ticks."""

    __slots__ = (
        "attached",
        "attached_at",
        "drops",
        "elect_from",
        "is_unled",
        "known",
        "moved_at",
        "passed_at",
        "patience",
        "row",
        "seen_at",
        "version",
    )

    def __init__(self, row: Row, now: int, patience: int) -> None:
        self.row = row
        self.known = Term(0)
        """The highest term that a node told of."""
        self.elect_from = now
        """No election begins earlier by itself (W1)."""
        self.moved_at: int | None = None
        """When its leadership was last to be moved, to spread the load."""
        self.drops: dict[NodeId, int] = {}
        """Replicas to delete, and when to give that up."""
        self.version: Version = NO_VERSION
        """The last cut of it that was read of."""
        self._note(now, patience)

    def replace_row(self, row: Row, now: int, patience: int) -> None:
        """Know a newer row: what was concluded from the older one is void."""
        self.row = row
        self.drops = {node: until for node, until in self.drops.items() if self.may_drop(node)}
        self._note(now, patience)

    def _note(self, now: int, patience: int) -> None:
        self.seen_at = now
        self.patience = patience
        """How long to leave it alone if somebody else should be at work (W3)."""
        self.is_unled = False
        """Who should lead this row does not, or refuses."""
        self.passed_at: int | None = None
        """Since when a node is known to have a later term than the row's."""
        self.attached: tuple[NodeId, ...] = ()
        """The followers that the leader counts on, by its last answer, and when that came."""
        self.attached_at: int | None = None

    def may_drop(self, node: NodeId) -> bool:
        """Whether nobody counts on the node, nor is about to."""
        return node not in self.row.involved

    def note_term(self, term: Term, now: int) -> None:
        """A node knows this term."""
        if not is_sane_term(term, self.row.term):
            return
        self.known = max(self.known, term)
        if self.known > self.row.term and self.passed_at is None:
            self.passed_at = now

    def wait_again(self, now: int, patience: int) -> None:
        """Leave it alone for a while: somebody may be at work."""
        self.seen_at = now
        self.patience = patience

    def is_fresh(self, now: int, ticks: int) -> bool:
        """Whether the leader answered lately, for this row."""
        return self.attached_at is not None and now - self.attached_at <= ticks

    def may_move(self, now: int, pause: int) -> bool:
        """Whether it is long enough since its leadership was to be moved."""
        return self.moved_at is None or now - self.moved_at >= pause

    @property
    def missing(self) -> tuple[NodeId, ...]:
        """Members that the leader does not count on, by its last answer."""
        present = (*self.attached, self.row.leader)
        return tuple(node for node in self.row.ensemble if node not in present)


def decide(watch: Watch, now: int, detection: Detection, options: OperatorOptions) -> Next:
    """Return what is to be done about a stream that nothing is being done about."""
    wanted = want(watch, now, detection, options)
    if wanted is Next.ELECT and not may_elect(watch, now, detection):
        return Next.WAIT
    return wanted


def want(watch: Watch, now: int, detection: Detection, options: OperatorOptions) -> Next:
    """Return what a stream needs by its row, by what nodes told and by who is heard."""
    row, status = watch.row, watch.row.plan.status
    if watch.is_unled or status is Status.NEW:
        return Next.ELECT
    if watch.passed_at is not None and now - watch.passed_at >= options.patience_ticks:
        # Somebody who is at work in a later term would have written it by now: the metadata is
        # older than what the nodes know.
        return Next.ELECT
    is_led = status in (Status.STEADY, Status.RECONFIGURATION)
    if is_led and detection.is_suspected(row.leader):
        return Next.ELECT
    if status is Status.STEADY:
        return Next.TEND
    if is_others_work(watch, now):
        return Next.WAIT
    return Next.RESUME if status is Status.RECONFIGURATION else Next.ELECT


def is_others_work(watch: Watch, now: int) -> bool:
    """Whether somebody else may be about to go on (W3)."""
    return now - watch.seen_at < watch.patience


def may_elect(watch: Watch, now: int, detection: Detection) -> bool:
    """Whether an election may begin by itself (W1, W2)."""
    alive = [node for node in watch.row.fencing if not detection.is_suspected(node)]
    return now >= watch.elect_from and watch.row.can_elect(alive)


def is_unled(row: Row, status: StatusResponse) -> bool:
    """Whether the one who should lead says that it does not, or not so."""
    if status.own_term > row.term:
        return False  # It may be that the row is about to change: see ``Watch.passed_at``.
    is_leader = status.role is Role.LEADER and status.own_term == row.term
    return not is_leader or status.ensemble != row.ensemble
