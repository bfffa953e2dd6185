"""What is committed lies on the synced disks of a quorum, at the very moment it is committed.

White box: no crash has to come at the right time to show that a node counted too early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
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
    commit: StreamCommit,
    terms: Mapping[NodeId, Term | None],
    ensembles: Iterable[Collection[NodeId]],
    quorum: Quorum,
    forgiven: Collection[NodeId] = (),
) -> None:
    """Check what a cut orders against the disks of the ensembles that the leader may count on.

    ``terms``: of the durable entry at the end of the commit on each replica; None if it has none.
    The same id there is the same past.  ``forgiven``: those that lost their disk.
    """
    for ensemble in ensembles:
        lost = sum(terms[node] is None and node in forgiven for node in ensemble)
        count = Counter(term for node in ensemble if (term := terms[node]) is not None)
        if max(count.values(), default=0) + lost >= quorum.size(len(ensemble)):
            return
    raise Violation(NAME, f"{commit} is ordered, the disks end with the terms {terms}")
