"""Runs one seed and tells how it went.  No state.

The same plan gives the same outcome, digest included, in every process.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.invariants import InvariantViolation
from tidelog.testing.cluster import Cluster
from tidelog.testing.faults import Plan, Reduction, draw_plan
from tidelog.testing.log_cluster import LogCluster
from tidelog.testing.raft_cluster import RaftCluster
from tidelog.testing.session_cluster import SessionCluster
from tidelog.testing.sometimes import Kind, Rare
from tidelog.testing.violation import Violation

EVENTS_SHOWN: Final = 100


class Failure(msgspec.Struct, frozen=True):
    """A promise was broken, or the program stopped."""

    checker: str
    message: str
    events: tuple[str, ...]
    """The last ones, oldest first."""


class Outcome(msgspec.Struct, frozen=True):
    """How a seed went."""

    kind: Kind
    seed: int
    digest: str
    happened: int
    """How many events there were."""
    ended_at: int
    """Virtual time of the end, or of the failure."""
    counts: Mapping[Rare, int]
    failure: Failure | None = None


def simulate(kind: Kind, seed: int, reduction: Reduction | None = None) -> Outcome:
    """Run one seed, or what ``reduction`` leaves of it."""
    return run_plan(draw_plan(kind, seed, reduction))


def run_plan(plan: Plan) -> Outcome:
    """Run what was drawn."""
    cluster = new_cluster(plan)
    failure: Failure | None = None
    try:
        cluster.run()
    except (Exception, InvariantViolation) as error:
        failure = failure_of(cluster, error)
    return Outcome(
        kind=plan.kind,
        seed=plan.seed,
        digest=cluster.journal.digest(),
        happened=cluster.world.happened,
        ended_at=cluster.world.now,
        counts=dict(cluster.sometimes.counts),
        failure=failure,
    )


def new_cluster(plan: Plan) -> Cluster:
    """Set up what a plan is for."""
    match plan.kind:
        case Kind.RAFT:
            return RaftCluster(plan)
        case Kind.CLUSTER:
            return LogCluster(plan)
        case Kind.SESSION:
            return SessionCluster(plan)


def failure_of(cluster: Cluster, error: BaseException) -> Failure:
    """Name the promise that was broken; any error of the product breaks one."""
    events = tuple(cluster.journal.last(EVENTS_SHOWN))
    if isinstance(error, Violation):
        return Failure(error.checker, error.message, events)
    name = "invariant" if isinstance(error, InvariantViolation) else type(error).__name__
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.name}, line {place.lineno} of {place.filename.rpartition('/')[2]}"
    return Failure(name, f"{error} (in {where})", events)
