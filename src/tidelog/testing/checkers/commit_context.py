"""A replica's commits abut, also after a crash: each begins where the one before it ended."""

from __future__ import annotations

from typing import Final

from tidelog.core.order.commands import VersionedCommit
from tidelog.testing.storage_replica import Replica
from tidelog.testing.violation import Violation

NAME: Final = "commit_context"


class CommitContexts:
    """Checks every replica when it applies a commit and when it recovers."""

    __slots__ = ()

    def on_applied(self, replica: Replica, versioned: VersionedCommit) -> None:
        """Check a commit that was just applied."""
        before = replica.commits[-2] if len(replica.commits) > 1 else None
        self._check_abuts(replica, before, versioned)
        if versioned.commit.llsn_end - 1 > replica.synced_records:
            raise Violation(
                NAME,
                f"node {replica.node} orders stream {replica.stream} up to"
                f" {versioned.commit.llsn_end}, of which {replica.synced_records} are durable",
            )

    def on_recovery(self, replica: Replica) -> None:
        """Check what a crash left."""
        before: VersionedCommit | None = None
        for versioned in replica.commits:
            self._check_abuts(replica, before, versioned)
            before = versioned
        if replica.ordered > len(replica.records):
            raise Violation(
                NAME, f"node {replica.node} lost ordered records of stream {replica.stream}"
            )

    def _check_abuts(
        self, replica: Replica, before: VersionedCommit | None, after: VersionedCommit
    ) -> None:
        llsn = 1 if before is None else before.commit.llsn_end
        version = 0 if before is None else before.version
        if after.commit.llsn_begin != llsn or after.version <= version:
            raise Violation(
                NAME,
                f"node {replica.node}, stream {replica.stream}: {after} comes after {before}",
            )
