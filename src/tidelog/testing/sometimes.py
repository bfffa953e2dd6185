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
    SESSION = "session"


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
    SHORTENED_WHILE_FILLING = "logs trimmed or compacted while others were filled up from them"
    APPEND_REPEATED = "repeated appends answered with their old place"
    LEADER_DEPOSED = "leaders of streams deposed"
    CUT_OFF_FROM_CUTS = "storage nodes that only the metadata did not reach"
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
    STREAM_ADDED = "streams added"
    STREAM_SEALED = "streams sealed"
    OPERATORS_PAUSED = "times that operators were paused, or went on"
    COLLECTOR_TAKEN_OVER = "storage nodes taken over from a dead metadata node"
    UPDATE_CONFLICTED = "changes refused since another one came first"
    # A master with its replicas.
    SESSION_OPENED = "masters whose sessions opened"
    SESSION_ENDED = "sessions ended by their master"
    SESSION_AFTER_DEAD_ONE = "sessions begun after one that had died"
    SESSION_REFUSED_WHILE_OPEN = "sessions refused since one was open"
    BROKEN_SESSION_REFUSED = "requests refused in a broken session"
    OLD_SECRET_REFUSED = "log channels refused for their secret"  # noqa: S105
    WRONG_CONFIGURATION_REFUSED = "sessions of another configuration refused"
    EPOCH_PROPAGATED = "epochs propagated"
    EPOCH_NUMBERS_SKIPPED = "group commits that skipped numbers"
    REMOTE_COMMIT_FIRST = "group commits that a replica had before the master"
    LOCAL_COMMIT_FIRST = "group commits that the master had before a replica"
    REMOTE_FLUSH_FIRST = "entries that a replica had synced before the master"
    LOCAL_FLUSH_FIRST = "entries that the master had synced before a replica"
    ABORTED_WITH_ENTRIES = "log sessions aborted with entries"
    LATE_WRITE = "entries that came when their connection was closed"
    CONNECTION_RESET = "connections reset"
    DEADLINE_PASSED = "replicas given up since they did not answer"
    WRITE_FAILED = "steps that a disk refused"
    BLOB_SENT = "BLOBs sent"
    BLOB_INTERRUPTED = "BLOBs interrupted"
    UNRECORDED_DROPPED = "batches dropped at a restart since their epoch was not recorded"
    DROPPED_AT_SESSION_BEGIN = "replicas that dropped unrecorded entries without a restart"
    MASTER_AHEAD = "sessions refused since the master was ahead"
    REPLICA_AHEAD = "sessions refused since a replica was ahead"
    DATA_COPIED = "machines that got a copy of another one's data"
    PROMOTED = "replicas made the master"
    FORMER_MASTER_LEFT_OUT = "promotions after which the former master was not used for a while"
    HISTORIES_DIFFERED = "sessions refused since the same epoch had another history"


RARELY = frozenset(
    (
        Rare.TRUNCATION_LOOPED,
        Rare.SHORTENED_WHILE_FILLING,
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
_ALL = tuple(Rare)
_RAFT = _ALL[: _ALL.index(Rare.CUT_DECIDED)]
_CLUSTER = _ALL[len(_RAFT) : _ALL.index(Rare.SESSION_OPENED)]
_SESSION = _ALL[len(_RAFT) + len(_CLUSTER) :]
_RAFT_ONLY = (Rare.WIPED, Rare.MEMBERSHIP_CHANGED)
_OF_MACHINES = (
    Rare.MESSAGE_FOR_A_PAUSED_PROCESS,
    Rare.POWER_LOST,
    Rare.EVERY_MACHINE_LOST_POWER,
    Rare.KILLED,
    Rare.UNSYNCED_WRITE_KEPT,
    Rare.UNSYNCED_WRITE_LOST,
    Rare.PARTITIONED,
    Rare.SEVERED_ONE_WAY,
    Rare.WIPED,
)
_EXPECTED = {
    Kind.RAFT: list(_RAFT),
    Kind.CLUSTER: [rare for rare in (*_RAFT, *_CLUSTER) if rare not in _RAFT_ONLY],
    Kind.SESSION: [*_OF_MACHINES, *_SESSION],
}


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
    return _EXPECTED[kind]
