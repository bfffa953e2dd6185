"""The replicas of one storage node towards the metadata repository: reports up, cuts down.

Input: ``Collect`` and ``CommitResult``, and which replica was touched.  Output: calls of the
replicas (``Listener``), and ``NodeReport``.

A replica *listens* while it is placed (the node is in its stream's ensemble), complete, and not
behind.  Of a stream that a result does not name nothing was ordered; so it matters that both sides
mean the same streams, and from which version on.

Invariants:
  G1  only a replica that listens is told of cuts; only a placed one is reported
  G2  a listening replica was told of all cuts of its stream up to the version that it stands at:
      ``version``, or a later one (``ahead``)
  G3  a result is taken only if the node knows its placements, its ``previous``, and all that it
      takes single replicas to know
  G4  ``ends`` of placed streams are true as of ``newest``, which is at or above ``version``, or as
      of a later cut: no result tells anew of what a replica was said to be ``ahead`` by
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from tidelog import limits
from tidelog.core.metadata.messages import Behind, Collect, CommitResult, NodeReport
from tidelog.core.order.commands import Report, VersionedCommit
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.reporting import Reporter, Reporting
from tidelog.invariants import check
from tidelog.types import NO_NODE, NO_VERSION, Llsn, NodeId, StreamId, Version


class Listener(Reporter, Protocol):
    """What is asked of a replica."""

    @property
    def context(self) -> CommitContext:
        """The last cut that it applied."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether it has all that it ever acknowledged."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether it asks others for cuts that the metadata repository does not keep any more."""
        ...

    def commit(self, commits: Sequence[VersionedCommit], version: Version) -> None:
        """Take all cuts of its stream above those that it was told of, up to ``version``."""
        ...

    def place(self, llsn_end: Llsn, version: Version) -> None:
        """As of ``version`` the stream is ordered up to ``llsn_end``, which is its own end."""
        ...

    def fall_behind(self, version: Version) -> None:
        """Ask others for the cuts up to ``version``."""
        ...


class Unheard(Enum):
    """Why a message of a metadata node, or a part of it, was left without effect."""

    NOT_FOR_US = "it is for another node"
    OLD_ASSIGNMENT = "another metadata node collects from this node now"
    OLD_PLACEMENTS = "the node knows of later changes of what it hosts"
    UNKNOWN_PLACEMENTS = "the node does not know these placements"
    NO_NEWS = "the node knows all of it"
    GAP = "it goes on behind what the node knows"
    OUTDATED = "a replica that it takes to lack forgotten cuts knows more by now"
    NOT_LISTENING = "the replica is not placed, not complete, or asks others"


class Hosting:
    """The placed replicas of a node; ``take`` until ``has_output`` is false."""

    __slots__ = (
        "_ahead",
        "_assignment",
        "_collector",
        "_ends",
        "_find",
        "_listening",
        "_newest",
        "_node",
        "_placements",
        "_reporting",
        "_unheard",
        "_version",
    )

    def __init__(self, node: NodeId, find: Callable[[StreamId], Listener | None]) -> None:
        """``find`` returns the replica of a stream, placed or not; None if there is none."""
        self._node = node
        self._find = find
        self._collector = NO_NODE
        self._assignment = 0
        self._placements = 0
        self._version = NO_VERSION
        self._newest = NO_VERSION
        self._ends: dict[StreamId, Llsn] = {}
        self._listening: dict[StreamId, Listener] = {}
        self._ahead: dict[StreamId, Version] = {}
        self._reporting = Reporting()
        self._unheard: dict[Unheard, int] = {}

    # What a host and a test may look at.

    @property
    def version(self) -> Version:
        """All listening replicas were told of the cuts up to this one."""
        return self._version

    @property
    def newest(self) -> Version:
        """``ends`` are as of this version, or of later cuts (G4)."""
        return self._newest

    @property
    def placements(self) -> int:
        """The last change of what the node hosts that it knows; 0 for none."""
        return self._placements

    @property
    def placed(self) -> tuple[StreamId, ...]:
        """The streams that the node hosts, as far as it knows."""
        return tuple(self._ends)

    @property
    def ends(self) -> Mapping[StreamId, Llsn]:
        """How far the placed streams are ordered, as of ``version`` or a later cut (G4)."""
        return MappingProxyType(self._ends)

    @property
    def collector(self) -> NodeId:
        """The metadata node that is reported to."""
        return self._collector

    @property
    def unheard(self) -> Mapping[Unheard, int]:
        """How much was left without effect, by reason, since the start."""
        return MappingProxyType(self._unheard)

    @property
    def has_output(self) -> bool:
        """Whether ``take`` may return anything."""
        return self._collector != NO_NODE and self._reporting.is_due

    # Input.

    def tick(self) -> None:
        """Let one unit of time pass."""
        self._reporting.tick()

    def touched(self, stream: StreamId) -> None:
        """Note that something was done with the replica of a stream."""
        if stream in self._ends:
            self._reporting.touch(stream)
            self._look_at(stream)

    def collect(self, message: Collect) -> None:
        """Take the question of a metadata node for all replicas."""
        if message.target != self._node:
            self._leave(Unheard.NOT_FOR_US)
        elif message.assignment < self._assignment:
            self._leave(Unheard.OLD_ASSIGNMENT)
        else:
            self._assignment, self._collector = message.assignment, message.source
            self._reporting.ask()
            if message.hosted is not None:
                self._learn_placements(message)

    def commits(self, result: CommitResult) -> None:
        """Take cuts."""
        reason = self._reason_against(result)
        if reason is None:
            self._hand_out(result)
            return
        self._leave(reason)
        # Whoever sent it believes something else of this node.
        self._reporting.is_owed |= reason is not Unheard.NOT_FOR_US

    # Placements.

    def _learn_placements(self, message: Collect) -> None:
        if message.placements <= self._placements or message.version < self._newest:
            self._leave(Unheard.OLD_PLACEMENTS)
            return
        hosted = message.hosted or ()
        self._placements, self._newest = message.placements, message.version
        self._ends = {
            # A replica may have learnt more from its leader than the sender knows.
            one.stream: max(one.llsn_end, self._ends.get(one.stream, one.llsn_end))
            for one in hosted
        }
        for stream in [stream for stream in self._listening if stream not in self._ends]:
            self._deafen(stream)
        if not self._listening:
            self._version = message.version
        for stream in self._ends:
            self._look_at(stream)

    def _look_at(self, stream: StreamId) -> None:
        """Notice whether the replica of a stream listens, and from where on (G1)."""
        # It may have been placed when it was touched, and not be any more.
        replica = self._find(stream) if stream in self._ends else None
        listener = self._listening.get(stream)
        if listener is not None and listener is not replica:
            self._deafen(stream)
            listener = None
        if replica is None or not can_listen(replica):
            self._deafen(stream)
            return
        if listener is None:
            self._begin(stream, replica)
        elif replica.context.version > self._told(stream):
            # It learnt more from its leader.
            self._ahead[stream] = Version(replica.context.version)
        # No result will tell of what it is ahead by, which need not be durable here yet (G4).
        self._raise_end(stream, replica.context.llsn_end)

    def _begin(self, stream: StreamId, replica: Listener) -> None:
        told = Version(replica.context.version)
        end = self._ends[stream]
        if end == replica.context.llsn_end and told < self._newest:
            # Nothing that it lacks was ordered, whatever happened since its last cut.
            told = self._newest
            replica.place(end, told)
        if told < self._version:
            self._go_back(told)
        self._listening[stream] = replica
        if told > self._version:
            self._ahead[stream] = told

    def _go_back(self, version: Version) -> None:
        """Ask for cuts again that only one replica misses (G2)."""
        for stream in self._listening:
            self._ahead.setdefault(stream, self._version)
        self._version = version
        self._reporting.is_owed = True

    def _deafen(self, stream: StreamId) -> None:
        self._listening.pop(stream, None)
        self._ahead.pop(stream, None)
        self._reporting.forget(stream)

    def _told(self, stream: StreamId) -> Version:
        return self._ahead.get(stream, self._version)

    # Cuts.

    def _reason_against(self, result: CommitResult) -> Unheard | None:
        """Say why a result cannot be taken (G3)."""
        if result.target != self._node:
            return Unheard.NOT_FOR_US
        if not self._knows_placements(result):
            return Unheard.UNKNOWN_PLACEMENTS
        if result.version <= self._version:
            return Unheard.NO_NEWS
        if self._misses_before(result):
            return Unheard.GAP
        return Unheard.OUTDATED if self._knows_more(result) else None

    def _knows_placements(self, result: CommitResult) -> bool:
        return result.placements == self._placements

    def _misses_before(self, result: CommitResult) -> bool:
        if result.previous > self._version:
            return True
        return any(
            stream in self._listening and self._told(stream) < known
            for stream, known in result.ahead
        )

    def _knows_more(self, result: CommitResult) -> bool:
        """Whether a replica is sent to others for cuts that it may know.

        The sender went by a report that was overtaken; the history reaches back to a newer one.
        """
        known = dict(result.ahead)
        return any(
            one.stream in self._listening
            and self._told(one.stream) > known.get(one.stream, result.previous)
            for one in result.behind
        )

    def _hand_out(self, result: CommitResult) -> None:
        by_stream: dict[StreamId, list[VersionedCommit]] = {}
        for one in result.commits:
            by_stream.setdefault(one.commit.stream, []).append(one)
        self._note_ends(result, by_stream)
        for stream, commits in by_stream.items():
            self._tell(stream, commits, result.version)
        self._version = result.version
        for stream in [stream for stream, told in self._ahead.items() if told <= self._version]:
            del self._ahead[stream]
        for behind in result.behind:
            self._fall_behind(behind)
        if not by_stream:
            # No replica will have news to report, and yet the sender waits for a sign.
            self._reporting.is_owed = True

    def _note_ends(
        self, result: CommitResult, by_stream: Mapping[StreamId, Sequence[VersionedCommit]]
    ) -> None:
        if result.version <= self._newest:
            return
        self._newest = result.version
        for one in result.behind:
            self._raise_end(one.stream, one.llsn_end)
        for stream, commits in by_stream.items():
            self._raise_end(stream, commits[-1].commit.llsn_end)

    def _raise_end(self, stream: StreamId, end: Llsn) -> None:
        """A placed stream is known to be ordered up to here, and may be known to be further."""
        if stream in self._ends:
            self._ends[stream] = max(self._ends[stream], end)

    def _fall_behind(self, behind: Behind) -> None:
        replica = self._listening.get(behind.stream)
        if replica is None:
            self._leave(Unheard.NOT_LISTENING)
            return
        self._deafen(behind.stream)
        self._reporting.touch(behind.stream)
        replica.fall_behind(behind.version)

    def _tell(self, stream: StreamId, commits: Sequence[VersionedCommit], version: Version) -> None:
        replica = self._listening.get(stream)
        if replica is None:
            self._leave(Unheard.NOT_LISTENING)
            return
        told = self._told(stream)
        missed = [one for one in commits if one.version > told]
        if missed:
            replica.commit(missed, version)
            self._reporting.touch(stream)
        else:
            self._leave(Unheard.NO_NEWS)

    # Output.

    def take(self) -> tuple[NodeReport, ...]:
        """Hand over what is to be reported: what changed, or all if it was asked for."""
        # What cuts did to the replicas shows only now.
        for stream in self._reporting.touched:
            self._look_at(stream)
        reports = self._reporting.take(self._listening)
        if self._collector == NO_NODE or reports is None:
            return ()
        return tuple(self._parts(reports))

    def _parts(self, reports: Sequence[Report]) -> Iterable[NodeReport]:
        size = limits.NODE_REPORT_REPLICAS_MAX
        ahead: tuple[tuple[StreamId, Version], ...] | None = tuple(self._ahead.items())
        for begin in range(0, max(1, len(reports)), size):
            yield NodeReport(
                source=self._node,
                target=self._collector,
                version=self._version,
                placements=self._placements,
                reports=tuple(reports[begin : begin + size]),
                ahead=ahead,
            )
            ahead = None

    # Inside.

    def _leave(self, reason: Unheard) -> None:
        self._unheard[reason] = self._unheard.get(reason, 0) + 1

    def validate(self) -> None:
        """Check every invariant at full length, for tests and simulations."""
        for stream, replica in self._listening.items():
            check(stream in self._ends, f"G1: stream {stream} is not placed, but listens")
            check(replica is self._find(stream), f"G1: a former replica of {stream} listens")
            end, context = self._ends[stream], replica.context
            # What it applied since it was looked at was not counted on yet.
            is_new = context.version > self._told(stream)
            check(is_new or context.llsn_end <= end, f"G4: stream {stream} ends beyond {end}")
        for stream, told in self._ahead.items():
            check(stream in self._listening, f"G2: stream {stream} is ahead, but does not listen")
            check(told > self._version, f"G2: stream {stream} is ahead at {told}, but is not")
        check(self._newest >= self._version, "G4: the node's version is newer than the newest")


def can_listen(replica: Listener) -> bool:
    """Whether a placed replica can be told of cuts (G1)."""
    return replica.is_complete and not replica.is_behind
