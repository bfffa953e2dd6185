"""Rare things that a batch of simulations must have met, or it proved nothing.

A simulation that never tears a write cannot find what a torn write breaks; so each of these is
counted, and a batch in which one of them stayed at zero fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum


class Kind(Enum):
    """What is simulated."""

    RAFT = "raft"
    CLUSTER = "cluster"


class Rare(Enum):
    """What must happen sometimes; the value is the text for people."""

    # Any kind.
    MESSAGE_REPEATED = "messages repeated"
    MESSAGE_FOR_A_PAUSED_PROCESS = "messages that waited for a paused process"
    POWER_LOST = "machines that lost their power"
    EVERY_MACHINE_LOST_POWER = "times that all machines lost their power at once"
    KILLED = "processes killed"
    CRASHED_IN_A_DISK_CALL = "crashes inside a disk call"
    TORN_WRITE = "writes torn by a crash"
    UNSYNCED_WRITE_KEPT = "unsynced writes that survived a crash"
    UNSYNCED_WRITE_LOST = "unsynced writes that a crash took away"
    CAMPAIGN = "campaigns for a vote"
    CRASHED_AROUND_CAMPAIGN = "crashes around a campaign"
    PARTITIONED = "partitions"
    SEVERED_ONE_WAY = "paths severed in one direction"
    WIPED = "machines destroyed and replaced"
    ELECTION = "elections"
    TWO_LEADERS = "times that two nodes led at once, in different terms"
    UNCOMMITTED_ENTRY_REPLACED = "uncommitted entries replaced by another leader's"
    COMMIT = "entries committed"
    LINEARIZABLE_READ = "linearizable reads served"
    READ_LOST = "reads that failed"
    MEMBERSHIP_CHANGED = "membership changes committed"
    LEADERSHIP_TRANSFERRED = "leaderships handed over"
    COMPACTED = "logs compacted"
    SNAPSHOT_INSTALLED = "snapshots installed from a leader"
    # A whole cluster.
    CUT_DECIDED = "cuts decided"
    APPEND_ACKNOWLEDGED = "appends acknowledged"
    STALE_REPORT_ANSWERED = "stale reports answered from the history"
    COMMIT_REPEATED = "commits that came again to a replica that had them"
    REPLICA_SYNCHRONISED = "replicas filled up by their leader"
    TERM_CHANGED = "terms of a stream begun"
    REPLICA_TRUNCATED = "replicas truncated by a new leader"
    TRUNCATION_LOOPED = "truncations that took more than one round"
    REPLICA_COMPACTED = "replicas compacted"
    APPEND_REPEATED = "repeated appends answered with their old place"
    LEADER_DEPOSED = "leaders of streams deposed"
    STORAGE_WIPED = "storage nodes destroyed and replaced"
    OPERATOR_STOPPED = "operators stopped"
    REQUEST_REFUSED = "requests to an operator refused"
    SWAP_COMPLETED = "swaps completed"
    EXPANSION_COMPLETED = "expansions completed"
    CONTRACTION_COMPLETED = "contractions completed"
    CHANGE_ABORTED = "reconfigurations aborted"
    SWAP_STALLED_IN_PREPARE = "swaps dropped in prepare by an election"
    EXPANSION_STALLED_IN_PREPARE = "expansions dropped in prepare by an election"
    CONTRACTION_STALLED_IN_PREPARE = "contractions dropped in prepare by an election"
    SWAP_STALLED_IN_COMMIT = "elections during a swap in commit"
    EXPANSION_STALLED_IN_COMMIT = "elections during an expansion in commit"
    CONTRACTION_STALLED_IN_COMMIT = "elections during a contraction in commit"
    SWAP_RESOLVED_BY_ELECTION = "swaps completed by an election"
    EXPANSION_RESOLVED_BY_ELECTION = "expansions completed by an election"
    CONTRACTION_RESOLVED_BY_ELECTION = "contractions rolled back by an election"
    ENSEMBLE_CHANGED = "ensembles changed"
    COLLECTOR_TAKEN_OVER = "storage nodes taken over from a dead metadata node"
    UPDATE_CONFLICTED = "changes refused since another one came first"


RAFT_ONLY = frozenset((Rare.WIPED, Rare.MEMBERSHIP_CHANGED))
RARELY = frozenset(
    (
        Rare.TRUNCATION_LOOPED,
        Rare.CHANGE_ABORTED,
        Rare.SWAP_STALLED_IN_PREPARE,
        Rare.EXPANSION_STALLED_IN_PREPARE,
        Rare.CONTRACTION_STALLED_IN_PREPARE,
        Rare.SWAP_STALLED_IN_COMMIT,
        Rare.EXPANSION_STALLED_IN_COMMIT,
        Rare.CONTRACTION_STALLED_IN_COMMIT,
        Rare.SWAP_RESOLVED_BY_ELECTION,
        Rare.EXPANSION_RESOLVED_BY_ELECTION,
        Rare.CONTRACTION_RESOLVED_BY_ELECTION,
    )
)
"""What only thousands of seeds are sure to meet."""
CLUSTER_ONLY = tuple(Rare)[tuple(Rare).index(Rare.CUT_DECIDED) :]


class Sometimes:
    """Counts of one simulation."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[Rare] = Counter()

    def count(self, rare: Rare, times: int = 1) -> None:
        """Note that it happened."""
        self.counts[rare] += times


def never(counts: Mapping[Rare, int], kind: Kind) -> list[Rare]:
    """What did not happen, though it should have in a batch of this kind."""
    return [rare for rare in expected(kind) if not counts.get(rare)]


def expected(kind: Kind) -> list[Rare]:
    """What a batch of this kind must have met."""
    others = CLUSTER_ONLY if kind is Kind.RAFT else RAFT_ONLY
    return [rare for rare in Rare if rare not in others]
