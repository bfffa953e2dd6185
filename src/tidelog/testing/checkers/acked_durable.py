"""What is committed lies on the synced disks of a quorum, at the very moment it is committed.

White box: no crash has to come at the right time to show that a node counted too early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.core.order.commands import Quorum, StreamCommit
from tidelog.core.raft.entries import Index
from tidelog.testing.shadow_log import ShadowLog
from tidelog.testing.storage_messages import Record
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "acked_durable"


def check_committed_durable(
    leader: NodeId, commit: Index, log: ShadowLog, synced: Mapping[NodeId, ShadowLog]
) -> None:
    """Check a leader's new commit index against the disks; ``log`` is the leader's own."""
    term = log.term_of(commit)
    if term is None:
        raise Violation(NAME, f"leader {leader} commits index {commit}, which it does not have")
    voters = log.membership.voters
    holders = [node for node in voters if node in synced and synced[node].holds(commit, term)]
    if len(holders) * 2 <= len(voters):
        raise Violation(
            NAME,
            f"leader {leader} commits index {commit} of term {term}; of the voters {voters}"
            f" only {holders} have it on their disks",
        )


def check_ordered_durable(
    commit: StreamCommit, last: Sequence[Record | None], quorum: Quorum
) -> None:
    """Check what a cut orders against the disks of the ensemble.

    ``last``: the durable record at the end of the commit on each replica, None if it has none.
    The same record there is the same past, as in Raft.
    """
    holders = max(Counter(record for record in last if record is not None).values(), default=0)
    needed = len(last) if quorum is Quorum.ALL else len(last) // 2 + 1
    if holders < needed:
        raise Violation(NAME, f"{commit} is ordered, the disks of its ensemble end with {last}")
