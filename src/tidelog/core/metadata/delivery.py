"""What the storage nodes assigned to a metadata node know of the cuts, and what they are sent.

Input: cuts as they are decided, versions as storage nodes report them, ticks.  Output: per storage
node ``Collect``, with what it hosts if it does not know, and ``CommitResult``.

Invariants:
  V1  a storage node is sent each version once and in order; what its reports show to be lost is
      sent again
  V2  nothing is sent before the node has told which version it knows, and shown that it knows what
      it hosts: of streams that it does not know of it would take silence for "nothing"
  V3  what a node that cannot keep up still has to acknowledge is bounded: ``DELIVERY_CUTS_MAX``
  V4  a result fits into a message: one that tells of too many commits goes up to an earlier cut,
      and the high watermarks that it has are not later
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from tidelog import limits
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import (
    Behind,
    Collect,
    CommitResult,
    HighWatermark,
    Hosted,
    NodeReport,
)
from tidelog.core.order.commands import CutDecided, VersionedCommit
from tidelog.types import Glsn, NodeId, StreamId, TopicId, Version


@dataclass(slots=True)
class _Receiver:
    known: Version
    """The last version that the node has applied, by its own word."""
    sent: Version
    """The last version sent to it; never below ``known``."""
    placements: int
    """What it knows of what it hosts, by its own word."""
    ahead: Mapping[StreamId, Version] = field(default_factory=dict)
    """What single replicas were told of beyond ``known``."""
    offered: int = 0
    """The last change of what it hosts that it was told of in answer to a report."""
    quiet_ticks: int = 0
    """How long it has made no progress while something is on its way."""


class Delivery:
    """The storage nodes that this metadata node answers."""

    __slots__ = ("_machine", "_node", "_receivers", "_resend_ticks")

    def __init__(self, node: NodeId, machine: MetadataMachine, resend_ticks: int) -> None:
        self._node = node
        self._machine = machine
        self._resend_ticks = resend_ticks
        self._receivers: dict[NodeId, _Receiver] = {}

    def replace_machine(self, machine: MetadataMachine) -> None:
        """Go on with a state that came as a snapshot."""
        self._machine = machine

    def forget(self, node: NodeId) -> None:
        """Stop answering a storage node: another metadata node does, or will."""
        self._receivers.pop(node, None)

    def collect(self, node: NodeId, assignment: int) -> Collect:
        """Return what asks a node for all of its replicas, and tells what they are if need be."""
        order, placements = self._machine.order, self._placements(node)
        receiver = self._receivers.get(node)
        hosted: tuple[Hosted, ...] | None = None
        if receiver is not None and receiver.placements < placements:
            hosted = tuple(
                Hosted(stream, order.stream(stream).llsn_end)
                for stream in self._machine.hosted(node)
            )
        return Collect(self._node, node, assignment, placements, order.version, hosted)

    def must_tell_placements(self, node: NodeId) -> bool:
        """Tell, once for each change, whether a node has shown that it hosts more or less now."""
        receiver, placements = self._receivers[node], self._placements(node)
        is_told, is_known = receiver.offered == placements, receiver.placements >= placements
        receiver.offered = 0 if is_known else placements
        return not (is_told or is_known)

    def reported(self, report: NodeReport) -> list[CommitResult]:
        """Note the version that a node knows; return what it has missed and is not on its way."""
        node, version = report.source, report.version
        receiver = self._receivers.get(node)
        if receiver is None:
            receiver = self._receivers[node] = _Receiver(version, version, report.placements)
        elif version < receiver.known or report.placements != receiver.placements:
            # It forgot empty commits in a restart, a replica came to it that knows less, or it
            # refused what was sent; if the report was overtaken it gets again what it will ignore.
            receiver.known = receiver.sent = version
            receiver.quiet_ticks = 0
        elif version > receiver.known:
            receiver.known = version
            receiver.sent = max(receiver.sent, version)
            receiver.quiet_ticks = 0
        receiver.placements = report.placements
        if report.ahead is not None:
            receiver.ahead = dict(report.ahead)
        return self._send(node, receiver)

    def decided(self) -> list[CommitResult]:
        """Return what goes out after new cuts."""
        return [
            result
            for node, receiver in self._receivers.items()
            for result in self._send(node, receiver)
        ]

    def tick(self) -> list[CommitResult]:
        """Send again what seems to be lost."""
        results: list[CommitResult] = []
        for node, receiver in self._receivers.items():
            if receiver.sent == receiver.known:
                continue
            receiver.quiet_ticks += 1
            if receiver.quiet_ticks >= self._resend_ticks:
                receiver.sent, receiver.quiet_ticks = receiver.known, 0
                results.extend(self._send(node, receiver))
        return results

    def _placements(self, node: NodeId) -> int:
        known = self._machine.nodes.get(node)
        return 0 if known is None else known.placements

    def _knows_placements(self, node: NodeId, receiver: _Receiver) -> bool:
        return receiver.placements == self._placements(node)

    def _send(self, node: NodeId, receiver: _Receiver) -> list[CommitResult]:
        newest = self._machine.order.version
        results: list[CommitResult] = []
        if not self._knows_placements(node, receiver):
            return results
        while receiver.sent < newest and receiver.sent - receiver.known < limits.DELIVERY_CUTS_MAX:
            result = self._result(node, receiver)
            receiver.sent = result.version
            results.append(result)
        return results

    def _result(self, node: NodeId, receiver: _Receiver) -> CommitResult:
        cuts = self._machine.order.cuts_after(receiver.sent)
        if cuts is None:
            return self._result_beyond_history(node, receiver.sent, receiver.ahead)
        return self._result_of(node, receiver.sent, cuts[: limits.DELIVERY_CUTS_MAX])

    def _result_of(
        self, node: NodeId, previous: Version, cuts: tuple[CutDecided, ...]
    ) -> CommitResult:
        watermarks: dict[TopicId, Glsn] = {}
        commits: list[VersionedCommit] = []
        for cut in cuts:
            for commit in cut.commits:
                watermarks[commit.topic] = commit.high_watermark
                if self._machine.hosts(node, commit.stream):
                    commits.append(VersionedCommit(cut.version, commit))
        return CommitResult(
            source=self._node,
            target=node,
            previous=previous,
            version=cuts[-1].version,
            placements=self._placements(node),
            watermarks=tuple(HighWatermark(*item) for item in sorted(watermarks.items())),
            commits=tuple(commits),
        )

    def _result_beyond_history(
        self, node: NodeId, previous: Version, ahead: Mapping[StreamId, Version]
    ) -> CommitResult:
        """Tell each replica what it missed, if that is known: an idle stream missed nothing.

        A replica often knows more than its whole node, which is as old as its oldest one.
        """
        order = self._machine.order
        commits: list[VersionedCommit] = []
        behind: list[Behind] = []
        topics: dict[TopicId, None] = {}
        for stream in self._machine.hosted(node):
            row = order.stream(stream)
            topics[row.topic] = None
            known = max(previous, ahead.get(stream, previous))
            missed = order.commits_after(stream, known)
            if missed is None:
                behind.append(Behind(stream, row.version, row.llsn_end))
            else:
                commits.extend(missed)
        commits.sort(key=lambda one: (one.version, one.commit.topic, one.commit.stream))
        whole = CommitResult(
            source=self._node,
            target=node,
            previous=previous,
            version=order.version,
            placements=self._placements(node),
            watermarks=tuple(
                HighWatermark(topic, order.topic(topic).high_watermark) for topic in sorted(topics)
            ),
            commits=tuple(commits),
            behind=tuple(behind),
            ahead=tuple(ahead.items()),
        )
        return shortened(whole)


def shortened(result: CommitResult) -> CommitResult:
    """Return a result up to an earlier cut if it is too large for a message (V4)."""
    limit, commits = limits.DELIVERY_COMMITS_MAX, result.commits
    if len(commits) <= limit:
        return result
    version = max(commits[0].version, Version(commits[limit].version - 1))
    kept = tuple([one for one in commits if one.version <= version])
    highs = {one.commit.topic: one.commit.high_watermark for one in kept}
    return replace(
        result,
        version=version,
        watermarks=tuple(HighWatermark(*item) for item in sorted(highs.items())),
        commits=kept,
    )
