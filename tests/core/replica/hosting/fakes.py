"""Replicas that only count, and the messages of a metadata node in few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.core.metadata.messages import Behind, Collect, CommitResult, Hosted, NodeReport
from tidelog.core.order.commands import Report, StreamCommit, VersionedCommit
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.hosting import Hosting
from tidelog.types import (
    FIRST_TERM,
    NO_VERSION,
    Glsn,
    Llsn,
    NodeId,
    StreamId,
    Term,
    TopicId,
    Version,
)

NODE, OTHER_NODE = NodeId(11), NodeId(12)
COLLECTOR, OTHER = NodeId(1), NodeId(2)


@dataclass
class Fake:
    """A replica that applies what it is told at once, and stops if a cut is missing."""

    stream: StreamId
    context: CommitContext = NONE
    is_complete: bool = True
    is_behind: bool = False
    is_silent: bool = False
    unordered: int = 0
    leads: bool = True
    term: Term = FIRST_TERM
    told: Version = NO_VERSION
    asked_others_for: list[Version] = field(default_factory=list)

    def commit(self, commits: Sequence[VersionedCommit], version: Version) -> None:
        assert self.is_complete
        assert not self.is_behind
        for one in commits:
            assert one.commit.stream == self.stream
            assert one.version > self.told, "it was told so before"
            assert one.commit.llsn_begin == self.context.llsn_end, "a cut is missing"
            self.ordered_up_to(one.commit.llsn_end, one.version)
        self.told = version

    def place(self, llsn_end: Llsn, version: Version) -> None:
        assert llsn_end == self.context.llsn_end
        assert version > self.told
        self.told = version

    def fall_behind(self, version: Version) -> None:
        self.is_behind = True
        self.asked_others_for.append(version)

    def report(self) -> Report | None:
        if self.is_silent or self.is_behind or not self.is_complete:
            return None
        version = Version(self.context.version)
        begin = self.context.llsn_end
        committed = Llsn(begin + self.unordered if self.leads else 0)
        return Report(NODE, self.stream, self.term, version, begin, self.unordered, committed)

    @property
    def version(self) -> Version:
        return self.told

    @property
    def ordered_end(self) -> Llsn:
        return self.context.llsn_end

    def ordered_up_to(self, llsn_end: int, version: int) -> None:
        begin = self.context.llsn_end
        self.context = CommitContext(version, llsn_end - 1, begin, begin, llsn_end - begin)
        self.told = Version(version)


class Node:
    """A storage node: its replicas, and what it said."""

    def __init__(self, *streams: int) -> None:
        self.replicas = {StreamId(stream): Fake(StreamId(stream)) for stream in streams}
        self.hosting = Hosting(NODE, self.replicas.get)

    def __getitem__(self, stream: int) -> Fake:
        return self.replicas[StreamId(stream)]

    def touch(self, stream: int) -> None:
        self.hosting.touched(StreamId(stream))
        self.hosting.validate()

    def told(self) -> list[NodeReport]:
        """All that it says now."""
        said: list[NodeReport] = []
        while self.hosting.has_output:
            said.extend(self.hosting.take())
        self.hosting.validate()
        return said

    def hear(self, message: Collect | CommitResult) -> list[NodeReport]:
        """Let a message arrive; return the answer."""
        if isinstance(message, Collect):
            self.hosting.collect(message)
        else:
            self.hosting.commits(message)
        self.hosting.validate()
        return self.told()

    def tick(self) -> list[NodeReport]:
        """Let time pass; return what it says then."""
        self.hosting.tick()
        self.hosting.validate()
        return self.told()


def collect(
    hosted: dict[int, int] | None = None,
    *,
    placements: int = 1,
    version: int = 0,
    assignment: int = 1,
    source: NodeId = COLLECTOR,
) -> Collect:
    """``hosted``: where each stream ends."""
    listed = None
    if hosted is not None:
        listed = tuple(Hosted(StreamId(stream), Llsn(end)) for stream, end in hosted.items())
    return Collect(source, NODE, assignment, placements, Version(version), listed)


def commit(version: int, stream: int, llsn: int, length: int) -> VersionedCommit:
    high = Glsn(llsn + length - 1)
    parts = StreamCommit(TopicId(1), StreamId(stream), high, Glsn(llsn), Llsn(llsn), length)
    return VersionedCommit(Version(version), parts)


def result(
    previous: int,
    version: int,
    *commits: VersionedCommit,
    placements: int = 1,
    behind: Sequence[tuple[int, int, int]] = (),
    ahead: dict[int, int] | None = None,
) -> CommitResult:
    return CommitResult(
        COLLECTOR,
        NODE,
        Version(previous),
        Version(version),
        placements,
        (),
        commits,
        tuple(Behind(StreamId(one), Version(last), Llsn(end)) for one, last, end in behind),
        tuple((StreamId(stream), Version(known)) for stream, known in (ahead or {}).items()),
    )


def streams_of(reports: Sequence[NodeReport]) -> list[int]:
    return [one.stream for report in reports for one in report.reports]
