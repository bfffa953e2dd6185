"""One replica of a log stream, modelled: what it has, what of it is durable, what it may say.

Records are counted: the first ``count`` of them have the LLSNs 1 to ``count``.

Invariants:
  P1  what is ordered is durable, propagated and never truncated
  P2  a replica reports only what is durable and proven to be a prefix of its leader's log, and of
      older terms only what a record of its own term stands behind
  P3  a commit is applied only to records that a quorum has: no later leader can replace those, so
      a commit that a later term decided is about the same records
  P4  commits are applied in the order of versions, and each begins where the one before it ended
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidelog.core.order.commands import Quorum, Report, VersionedCommit
from tidelog.invariants import check
from tidelog.testing.storage_messages import Copy, Record
from tidelog.types import NO_NODE, NO_VERSION, Llsn, NodeId, StreamId, Term, Version

NO_TERM = Term(0)
COPY_RECORDS_MAX = 8


class Follower:
    """What a leader believes of one follower: ``sent`` records are on their way or there."""

    __slots__ = ("matched", "sent")

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.matched = 0


class Replica:
    """The replica of one stream on one node."""

    __slots__ = (
        "behind_until",
        "commits",
        "ensemble",
        "floor",
        "followers",
        "heard_version",
        "is_silent",
        "leader",
        "matched",
        "node",
        "pending",
        "propagated",
        "quorum",
        "records",
        "stream",
        "synced_commits",
        "synced_records",
        "synced_version",
        "syncing_records",
        "term",
        "truncations",
        "version",
    )

    def __init__(
        self, node: NodeId, stream: StreamId, quorum: Quorum, version: Version = NO_VERSION
    ) -> None:
        self.node = node
        self.stream = stream
        self.quorum = quorum
        self.term = NO_TERM
        self.records: list[Record] = []
        self.commits: list[VersionedCommit] = []
        self.version = version
        self.synced_records = 0
        self.synced_commits = 0
        self.synced_version = version
        self.truncations = 0
        self.floor = NO_VERSION
        """Up to here a metadata node may not know yet that this is a replica, and then says nothing
        of its commits: they count only from a peer, until they are durable."""
        self.behind_until = NO_VERSION
        """It waits for a peer to tell it the commits up to here; 0: it does not."""
        self._begin_life()

    def _begin_life(self) -> None:
        self.is_silent = True
        """It does not know its leader's log yet."""
        self.leader = NO_NODE
        self.ensemble: tuple[NodeId, ...] = ()
        self.followers: dict[NodeId, Follower] = {}
        self.matched = self.propagated = self.ordered
        self.pending: list[VersionedCommit] = []
        self.heard_version = self.version
        self.syncing_records = 0

    # What it has.

    @property
    def is_behind(self) -> bool:
        """Whether commits are missing that only a peer can tell."""
        return self.behind_until > NO_VERSION

    @property
    def leads(self) -> bool:
        """Whether it leads its term."""
        return self.leader == self.node

    @property
    def ordered(self) -> int:
        """How many records have GLSNs."""
        return self.commits[-1].commit.llsn_end - 1 if self.commits else 0

    @property
    def synced_ordered(self) -> int:
        """How many records have GLSNs that survive a crash."""
        if not self.synced_commits:
            return 0
        return self.commits[self.synced_commits - 1].commit.llsn_end - 1

    def term_at(self, count: int) -> Term:
        """Return the term of the ``count``-th record."""
        return self.records[count - 1].term if count else NO_TERM

    @property
    def head(self) -> tuple[Term, int]:
        """Term and number of the durable records, as a fenced replica tells them."""
        return self.term_at(self.synced_records), self.synced_records

    def report(self) -> Report | None:
        """Return what the metadata repository is told; None while it is silent."""
        if self.is_silent or self.is_behind:
            return None
        begin = self.synced_ordered
        return Report(
            self.node,
            self.stream,
            self.term,
            self.synced_version,
            Llsn(begin + 1),
            max(self._reportable(), begin) - begin,
        )

    def _reportable(self) -> int:
        count = min(self.synced_records, self.matched)
        if count > self.ordered and self.term_at(count) != self.term:
            return self.ordered  # P2: an older term's records wait for one of this term.
        return count

    # Terms.

    def fence(self, term: Term) -> bool:
        """Go to a later term, durably; False if it is over already."""
        if term < self.term:
            return False
        if term > self.term:
            self.term = term
            self.leader = NO_NODE
            self.is_silent = True
            self.followers.clear()
            self.matched = self.propagated = self.ordered
        return True

    def lead(self, term: Term, ensemble: tuple[NodeId, ...]) -> bool:
        """Lead a term that this replica was fenced in; a repeated order changes nothing."""
        if term != self.term or self.leader not in (NO_NODE, self.node):
            return False
        if not self.leads:
            self.leader = self.node
            self.is_silent = False
            self.ensemble = ensemble
            self.followers = {node: Follower(len(self.records)) for node in ensemble}
            self.followers.pop(self.node, None)
            if len(self.records) > self.ordered:
                self.records.append(Record(term, 0))
            self.matched = len(self.records)
        return True

    def learn_ensemble(self, ensemble: tuple[NodeId, ...]) -> None:
        """Go on in another ensemble, in the same term."""
        self.ensemble = ensemble
        if self.leads:
            known, count = self.followers, len(self.records)
            self.followers = {node: known.get(node) or Follower(count) for node in ensemble}
            self.followers.pop(self.node, None)
            # Who leaves may have been all that a quorum waited for.
            self.count_propagated()

    # Records.

    def append(self, payload: int) -> int:
        """Take a client's record as the leader; return its number."""
        self.records.append(Record(self.term, payload))
        self.matched = len(self.records)
        return self.matched

    def next_copy(self, target: NodeId) -> Copy:
        """Return what a follower is to be sent next."""
        begin = min(self.followers[target].sent, len(self.records))
        records = tuple(self.records[begin : begin + COPY_RECORDS_MAX])
        return Copy(
            source=self.node,
            target=target,
            stream=self.stream,
            term=self.term,
            begin=begin,
            before_term=self.term_at(begin),
            records=records,
            propagated=self.propagated,
            ensemble=self.ensemble,
        )

    def take_copy(self, copy: Copy) -> int | None:
        """Take a leader's records; return how many records cannot agree, or None if it fits."""
        begin = copy.begin
        if begin > len(self.records) or self.term_at(begin) != copy.before_term:
            return min(begin - 1, len(self.records))
        for place, record in enumerate(copy.records, begin):
            if place < len(self.records) and self.records[place] != record:
                self.truncate(place)
            if place == len(self.records):
                self.records.append(record)
        self.leader, self.ensemble, self.is_silent = copy.source, copy.ensemble, False
        self.matched = max(self.matched, begin + len(copy.records))
        self.propagated = max(self.propagated, min(copy.propagated, self.matched))
        return None

    def truncate(self, count: int) -> None:
        """Drop all but the first ``count`` records, durably."""
        check(count >= self.ordered, "P1: an ordered record would be truncated")
        self.truncations += 1
        del self.records[count:]
        self.synced_records = min(self.synced_records, count)
        self.syncing_records = min(self.syncing_records, count)
        self.matched = min(self.matched, count)

    def count_propagated(self) -> bool:
        """Find out as the leader what a quorum has; say whether it is more than before (P3)."""
        counts = [
            self.synced_records if node == self.node else self.followers[node].matched
            for node in self.ensemble
        ]
        counts.sort()
        place = 0 if self.quorum is Quorum.ALL else (len(counts) - 1) // 2
        count = counts[place] if counts else 0
        if count <= self.propagated or self.term_at(count) != self.term:
            return False
        self.propagated = count
        return True

    # Commits.

    def hear(self, commits: Sequence[VersionedCommit], version: Version) -> None:
        """Take the commits up to a version, to be applied when the records are there."""
        self.pending += [commit for commit in commits if commit.version > self.heard_version]
        self.heard_version = max(self.heard_version, version)

    def fall_behind(self, version: Version) -> None:
        """Forget what was heard: a peer has to tell what was missed up to ``version``."""
        self.heard_version = max(version, self.heard_version, self.behind_until)
        self.behind_until = self.floor = self.heard_version
        self.pending.clear()
        # Only its commits prove what it knows.
        self.version = self.commits[-1].version if self.commits else NO_VERSION
        self.synced_version = min(self.synced_version, self.version)

    def catch_up(self, commits: Sequence[VersionedCommit], version: Version) -> bool:
        """Take what a peer knows up to ``version``; False if that leaves a gap."""
        if version < self.behind_until:
            return False
        heard_since = [commit for commit in self.pending if commit.version > version]
        missed = [commit for commit in commits if commit.version > self.version]
        self.pending = missed + heard_since
        self.heard_version = max(self.heard_version, version)
        self.behind_until = NO_VERSION
        return True

    def apply_next(self) -> VersionedCommit | None:
        """Apply the next commit if that can be done, and return it."""
        if self.is_behind:
            return None
        if not self.pending:
            self.version = max(self.version, self.heard_version)
            return None
        commit = self.pending[0]
        if commit.commit.llsn_end - 1 > self._usable():
            return None
        del self.pending[0]
        self.commits.append(commit)
        self.version = commit.version
        return commit

    def _usable(self) -> int:
        """How many records may be ordered here (P1, P3)."""
        return min(self.synced_records, self.matched, self.propagated)

    # The disk.

    def is_dirty(self) -> bool:
        """Whether there is something to sync."""
        return (
            self.synced_records < len(self.records)
            or self.synced_commits < len(self.commits)
            or self.synced_version < self.version
        )

    def lose(self, chance: Random | None) -> None:
        """End a life: with a power loss only a prefix of what was not synced is left."""
        if chance is not None:
            kept = chance.randint(self.synced_records, len(self.records))
            del self.records[kept:]
            kept = chance.randint(self.synced_commits, len(self.commits))
            del self.commits[kept:]
            self.version = self.synced_version
        # What recovery finds it syncs before it is used.
        self.synced_records, self.synced_commits = len(self.records), len(self.commits)
        if self.commits:
            self.version = max(self.version, self.commits[-1].version)
        self.synced_version = self.version
        if self.version < self.floor:
            self.behind_until = self.floor
        self._begin_life()
