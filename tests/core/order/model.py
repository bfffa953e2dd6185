"""The rules of the order layer once more, without any care for cost.

The model remembers everything for ever and computes all anew after each command: what the machine
keeps up to date in small steps must come to the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog import limits
from tidelog.core.order.commands import (
    AddStreams,
    Command,
    CreateTopic,
    Cut,
    NewStream,
    Quorum,
    RemoveStream,
    Report,
    StreamStatus,
    UpdateStream,
)

Range = tuple[int, int, int, int]
"""Stream, first GLSN, first LLSN, number of entries."""


@dataclass
class Replica:
    version: int = 0
    end: int = 0


@dataclass
class Stream:
    topic: int
    replicas: dict[int, Replica]
    term: int = 1
    revision: int = 1
    sealed: bool = False
    committed: int = 0
    """By the word of the leader of the term."""
    commits: list[tuple[int, int]] = field(default_factory=list)
    """Version and number of entries of each commit ever."""
    forgotten: int = 0

    def end_at(self, version: int) -> int:
        return 1 + sum(length for known, length in self.commits if known <= version)

    def first_missed(self, version: int) -> int:
        return min((known for known, _ in self.commits if known > version), default=0)

    def majority(self, values: list[int]) -> int:
        """The highest value that a majority reaches."""
        needed = len(values) // 2 + 1
        return max(value for value in values if sum(v >= value for v in values) >= needed)

    @property
    def applied(self) -> int:
        return self.majority([replica.version for replica in self.replicas.values()])


class Model:
    def __init__(self) -> None:
        self.version = 0
        self.first = 1
        self.highs: dict[int, int] = {}
        self.quorums: dict[int, Quorum] = {}
        self.streams: dict[int, Stream] = {}
        self.sizes: list[int] = []
        self.retired = 0

    def step(self, command: Command) -> tuple[Range, ...] | None:
        """Return what a cut decided, in its order; None: it decided nothing, or was no cut."""
        answer = None
        match command:
            case Cut():
                answer = self._cut()
            case Report():
                self._report(command)
            case CreateTopic():
                self.highs[command.topic] = 0
                self.quorums[command.topic] = command.quorum
                self._add(command.topic, command.streams)
            case AddStreams():
                self._add(command.topic, command.streams)
            case RemoveStream():
                del self.streams[command.stream]
            case UpdateStream():
                self._update(command)
        for stream in self.streams.values():
            bound = min(self.first - 1, stream.applied)
            gone = [version for version, _ in stream.commits if version <= bound]
            stream.forgotten = max([stream.forgotten, *gone])
        return answer

    def _add(self, topic: int, streams: tuple[NewStream, ...]) -> None:
        for new in streams:
            self.streams[new.stream] = Stream(topic, {node: Replica() for node in new.ensemble})

    def _update(self, command: UpdateStream) -> None:
        stream = self.streams[command.stream]
        stream.replicas = {node: stream.replicas.get(node, Replica()) for node in command.ensemble}
        if command.term > stream.term:
            stream.committed = 0
            for replica in stream.replicas.values():
                replica.end = 0
        stream.term = command.term
        stream.revision += 1
        stream.sealed = command.status is StreamStatus.SEALED

    def _report(self, report: Report) -> None:
        stream = self.streams.get(report.stream)
        if stream is None or report.term != stream.term or report.node not in stream.replicas:
            return
        if report.length < 0 or report.committed_end < 0:
            return
        if not stream.forgotten <= report.version <= self.version:
            return
        if report.llsn_begin != stream.end_at(report.version):
            return
        replica = stream.replicas[report.node]
        end = report.llsn_begin + report.length
        if end >= replica.end:
            replica.end = end
            replica.version = max(replica.version, report.version)
            stream.committed = max(stream.committed, report.committed_end)

    def _cut(self) -> tuple[Range, ...] | None:
        ordered: list[Range] = []
        version = self.version + 1
        for number, stream in sorted(
            self.streams.items(), key=lambda item: (item[1].topic, item[0])
        ):
            begin = stream.end_at(self.version)
            length = self._orderable_end(stream) - begin
            if length > 0:
                ordered.append((number, self.highs[stream.topic] + 1, begin, length))
                self.highs[stream.topic] += length
                stream.commits.append((version, length))
        if not ordered:
            return None
        self.version = version
        self.sizes.append(len(ordered))
        self._trim()
        return tuple(ordered)

    def _orderable_end(self, stream: Stream) -> int:
        applied = stream.applied
        kept = [version for version, _ in stream.commits if version > stream.forgotten]
        unapplied = [version for version in kept if version > applied]
        if stream.sealed or len(unapplied) >= limits.ORDER_UNAPPLIED_CUTS_MAX:
            return 0
        ends = [replica.end for replica in stream.replicas.values()]
        is_all = self.quorums[stream.topic] is Quorum.ALL
        return max(stream.committed, min(ends) if is_all else stream.majority(ends))

    def _trim(self) -> None:
        while self.first <= self.version and not self._is_kept(self.first):
            self.first += 1

    def _is_kept(self, first: int) -> bool:
        if self.version - first + 1 > limits.ORDER_HISTORY_CUTS_MAX:
            return False
        if sum(self.sizes[first - 1 :]) > limits.ORDER_HISTORY_COMMITS_MAX:
            return False
        return any(
            replica.end and stream.first_missed(replica.version) == first
            for stream in self.streams.values()
            for replica in stream.replicas.values()
        )
