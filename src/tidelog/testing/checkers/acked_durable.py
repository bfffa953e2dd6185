"""What is committed lies on the synced disks of a quorum, at the very moment it is committed.

White box: no crash has to come at the right time to show that a node counted too early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from tidelog.core.order.commands import Quorum, StreamCommit
from tidelog.core.raft.entries import Index
from tidelog.testing.shadow_log import ShadowLog
from tidelog.testing.violation import Violation
from tidelog.types import NodeId, Term

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
    commit: StreamCommit, terms: Mapping[NodeId, Term | None], quorum: Quorum, forgiven: int
) -> None:
    """Check what a cut orders against the disks of the ensemble.

    ``terms``: of the durable entry at the end of the commit on each replica; None if it has none.
    The same id there is the same past.  ``forgiven``: so many of those without it lost their disk.
    """
    count = Counter(term for term in terms.values() if term is not None)
    holders = max(count.values(), default=0) + forgiven
    needed = len(terms) if quorum is Quorum.ALL else len(terms) // 2 + 1
    if holders < needed:
        raise Violation(NAME, f"{commit} is ordered, the disks end with the terms {terms}")
