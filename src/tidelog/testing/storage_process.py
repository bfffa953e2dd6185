"""One storage node, modelled: replicas, copies between them, reports up, commits down.

It is small enough to be seen to be right, so that what breaks is the metadata repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.core.metadata.messages import Collect, CommitResult, NodeReport
from tidelog.core.order.commands import VersionedCommit
from tidelog.testing.journal import Happened
from tidelog.testing.sometimes import Rare
from tidelog.testing.storage_messages import (
    AskCommits,
    Copy,
    CopyAnswer,
    CopyRefusal,
    Fence,
    Fenced,
    Lead,
    Leads,
    MissedCommits,
    Record,
    StorageMessage,
    ToOperator,
)
from tidelog.testing.storage_replica import Replica
from tidelog.testing.world import MILLISECOND, Process
from tidelog.types import NO_NODE, NO_VERSION, NodeId, StreamId, Version

if TYPE_CHECKING:
    from tidelog.testing.metadata_cluster import MetadataCluster, ToStorageNode

TICK: Final = 20 * MILLISECOND


class StorageProcess(Process):
    """The replicas of one node and its one disk."""

    __slots__ = (
        "_assignment",
        "_chance",
        "_cluster",
        "_collector",
        "_delays",
        "_is_syncing",
        "_reported",
        "_ticks",
        "_waiting",
        "replicas",
        "version",
    )

    def __init__(self, cluster: MetadataCluster, node: NodeId) -> None:
        super().__init__(cluster.world, node)
        self._cluster = cluster
        self._delays = cluster.chance.stream("sync", node)
        self._chance = cluster.chance.stream("disk", node)
        self.replicas: dict[StreamId, Replica] = {}
        self._begin_life()

    def _begin_life(self) -> None:
        self._collector = NO_NODE
        self._assignment = -1
        self._is_syncing = False
        self._reported: dict[StreamId, object] = {}
        self._waiting: dict[tuple[StreamId, int], int] = {}
        """Appends of clients that wait for their GLSN, by stream and number of the record."""
        self._ticks = 0
        behind = [replica for replica in self.replicas.values() if replica.is_behind]
        self.version: Version = min(
            (replica.version for replica in self.replicas.values() if not replica.is_behind),
            default=NO_VERSION,
        )
        """The last version that the node was told of."""
        for replica in behind:
            replica.fall_behind(self.version)

    def on_start(self) -> None:
        self._begin_life()
        for replica in self.replicas.values():
            self._cluster.contexts.on_recovery(replica)
        self.after(self._delays.randrange(TICK), self._tick)

    def on_stop(self, *, power_lost: bool) -> None:
        for replica in self.replicas.values():
            replica.lose(self._chance if power_lost else None)

    def host(self, stream: StreamId, *, version: Version) -> None:
        """Have a replica of a stream from now on.

        A version says that the stream has been ordered up to it: a peer has to tell how.
        """
        replica = Replica(self.node, stream, self._cluster.quorum, self.version)
        if version > NO_VERSION:
            replica.fall_behind(version)
        self.replicas[stream] = replica

    def drop(self, stream: StreamId) -> None:
        """Delete a replica that the operator has taken out of the ensemble."""
        self.replicas.pop(stream, None)

    def durable_record(self, stream: StreamId, llsn: int) -> Record | None:
        """Return a record, if it is on the disk for good."""
        replica = self.replicas.get(stream)
        if replica is None or replica.synced_records < llsn:
            return None
        return replica.records[llsn - 1]

    # Time.

    def _tick(self) -> None:
        self.after(TICK, self._tick)
        self._ticks += 1
        for replica in self.replicas.values():
            if replica.leads:
                for target, follower in replica.followers.items():
                    # What was sent and not acknowledged by now is taken for lost.
                    follower.sent = follower.matched
                    self._copy_to(replica, target)
            if replica.is_behind:
                self._ask_peer(replica)
        self._settle()

    def _ask_peer(self, replica: Replica) -> None:
        peers = [node for node in replica.ensemble if node != self.node]
        if peers:
            peer = peers[self._ticks % len(peers)]
            self._send(peer, AskCommits(self.node, peer, replica.stream, replica.version))

    # Clients.

    def append(self, stream: StreamId, payload: int) -> bool:
        """Take an append, if the stream's leader is here."""
        replica = self.replicas.get(stream)
        if replica is None or not replica.leads:
            return False
        self._waiting[stream, replica.append(payload)] = payload
        self._copy_to_all(replica)
        self._settle()
        return True

    # Messages.

    def receive(self, message: ToStorageNode) -> None:
        """Take a message."""
        match message:
            case Collect():
                self._on_collect(message)
            case CommitResult():
                self._on_commits(message)
            case _:
                self._on_storage_message(message)
        self._settle()

    def _on_storage_message(self, message: StorageMessage) -> None:
        replica = self.replicas.get(message.stream)
        if replica is None:
            return  # It came too late, or too early.
        match message:
            case Copy():
                self._on_copy(replica, message)
            case CopyAnswer() | CopyRefusal():
                self._on_copy_answer(replica, message)
            case Fence():
                if replica.fence(message.term):
                    term, count = replica.head
                    answer = Fenced(
                        self.node, message.source, message.stream, message.term, term, count
                    )
                    self._send(message.source, answer)
            case Lead():
                if replica.lead(message.term, message.ensemble):
                    self._send(
                        message.source,
                        Leads(self.node, message.source, message.stream, message.term),
                    )
                    self._copy_to_all(replica)
            case AskCommits():
                self._on_ask_commits(replica, message)
            case MissedCommits():
                self._on_missed_commits(replica, message)

    def _on_copy(self, replica: Replica, copy: Copy) -> None:
        if copy.term < replica.term or (copy.term == replica.term and replica.leads):
            return
        replica.fence(copy.term)
        before = replica.truncations
        hint = replica.take_copy(copy)
        self._cluster.sometimes.count(Rare.REPLICA_TRUNCATED, replica.truncations - before)
        if hint is not None:
            refusal = CopyRefusal(self.node, copy.source, copy.stream, copy.term, copy.begin, hint)
            self._send(copy.source, refusal)
        else:
            self._acknowledge(replica)

    def _acknowledge(self, replica: Replica) -> None:
        count = min(replica.synced_records, replica.matched)
        answer = CopyAnswer(self.node, replica.leader, replica.stream, replica.term, count)
        self._send(replica.leader, answer)

    def _on_copy_answer(self, replica: Replica, answer: CopyAnswer | CopyRefusal) -> None:
        follower = replica.followers.get(answer.source)
        if not replica.leads or answer.term != replica.term or follower is None:
            return
        if isinstance(answer, CopyRefusal):
            if answer.begin == follower.sent:
                follower.sent = max(follower.matched, answer.hint)
                self._send(answer.source, replica.next_copy(answer.source))
            return
        follower.matched = max(follower.matched, answer.count)
        follower.sent = max(follower.sent, follower.matched)
        if replica.count_propagated():
            self._copy_to_all(replica)
        elif follower.sent < len(replica.records):
            self._copy_to(replica, answer.source)

    def _copy_to_all(self, replica: Replica) -> None:
        for target in replica.followers:
            self._copy_to(replica, target)

    def _copy_to(self, replica: Replica, target: NodeId) -> None:
        copy = replica.next_copy(target)
        replica.followers[target].sent += len(copy.records)
        self._send(target, copy)

    def _on_ask_commits(self, replica: Replica, ask: AskCommits) -> None:
        if replica.is_behind or replica.synced_version < ask.version:
            return
        known = replica.commits[: replica.synced_commits]
        commits = tuple(commit for commit in known if commit.version > ask.version)
        answer = MissedCommits(
            self.node, ask.source, ask.stream, ask.version, replica.synced_version, commits
        )
        self._send(ask.source, answer)

    def _on_missed_commits(self, replica: Replica, missed: MissedCommits) -> None:
        if (
            replica.is_behind
            and missed.asked == replica.version
            and replica.catch_up(missed.commits, missed.version)
        ):
            self._cluster.sometimes.count(Rare.REPLICA_SYNCHRONISED)

    # The metadata repository.

    def _on_collect(self, collect: Collect) -> None:
        if collect.assignment >= self._assignment:
            self._assignment = collect.assignment
            self._collector = collect.source
            self._reported.clear()
            self._report(ask_for_all=True)

    def _report(self, *, ask_for_all: bool = False) -> None:
        """Report what changed; all of it, and be it nothing, when asked."""
        if self._collector == NO_NODE:
            return
        reports = []
        for stream, replica in self.replicas.items():
            report = replica.report()
            if report is not None and report != self._reported.get(stream):
                self._reported[stream] = report
                reports.append(report)
        if reports or ask_for_all:
            version = self._durable_version()
            message = NodeReport(self.node, self._collector, version, tuple(reports))
            self.world.journal.note(Happened.REPORT, self.node, self._collector, len(reports))
            self._send(self._collector, message)

    def _durable_version(self) -> Version:
        """The last version that all replicas have applied for good; who asks a peer is left out."""
        versions = [
            replica.synced_version for replica in self.replicas.values() if not replica.is_behind
        ]
        return min(versions, default=self.version)

    def _on_commits(self, result: CommitResult) -> None:
        if result.previous > self.version or result.version <= self.version:
            return
        by_stream: dict[StreamId, list[VersionedCommit]] = {}
        for versioned in result.commits:
            by_stream.setdefault(versioned.commit.stream, []).append(versioned)
        for stream in result.behind:
            if stream in self.replicas:
                self.replicas[stream].fall_behind(result.version)
        for stream, replica in self.replicas.items():
            commits = by_stream.get(stream, ())
            if commits and commits[0].version <= replica.version:
                self._cluster.sometimes.count(Rare.COMMIT_REPEATED)
            replica.hear(commits, result.version)
        self.version = result.version

    # The host's duties.

    def _send(self, target: NodeId, message: StorageMessage | NodeReport | ToOperator) -> None:
        self._cluster.network.send(self.node, target, message)

    def _settle(self) -> None:
        """Apply, sync and report what can be."""
        for replica in self.replicas.values():
            while (commit := replica.apply_next()) is not None:
                self._cluster.on_applied(replica, commit)
        # What a peer told them may be newer than what the node was told.
        self.version = max(self.version, self._durable_version())
        if not self._is_syncing and any(r.is_dirty() for r in self.replicas.values()):
            self._begin_sync()
        self._report()

    def _begin_sync(self) -> None:
        self._is_syncing = True
        marks: list[tuple[Replica, int, Version]] = []
        for replica in self.replicas.values():
            replica.syncing_records = len(replica.records)
            marks.append((replica, len(replica.commits), replica.version))
        plan = self._cluster.plan
        delay = plan.sync_min + int(self._delays.expovariate(1.0) * plan.sync_mean)
        self.world.plan(delay, lambda: self._end_sync(marks), self)

    def _end_sync(self, marks: list[tuple[Replica, int, Version]]) -> None:
        self._is_syncing = False
        for replica, commits, version in marks:
            grown = replica.syncing_records > replica.synced_records
            replica.synced_records = max(replica.synced_records, replica.syncing_records)
            acknowledged = replica.commits[replica.synced_commits : commits]
            replica.synced_commits, replica.synced_version = commits, version
            for commit in acknowledged:
                self._answer_clients(replica, commit)
            if grown and replica.leads and replica.count_propagated():
                self._copy_to_all(replica)
            elif grown and not replica.leads and not replica.is_silent:
                self._acknowledge(replica)
        self.world.journal.note(Happened.SYNC, self.node)
        self._settle()

    def _answer_clients(self, replica: Replica, versioned: VersionedCommit) -> None:
        """Tell clients the GLSNs of their appends, now that the commit is durable here."""
        commit = versioned.commit
        for place in range(commit.length):
            payload = self._waiting.pop((replica.stream, commit.llsn_begin + place), None)
            if payload is None:
                continue
            record = replica.records[commit.llsn_begin + place - 1]
            if record.payload == payload:
                self._cluster.on_append_acknowledged(
                    replica, commit.llsn_begin + place, commit.glsn_begin + place, payload
                )
