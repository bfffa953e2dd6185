"""What the storage nodes assigned to a metadata node know of the cuts, and what they are sent.

Input: cuts as they are decided, versions as storage nodes report them, ticks.  Output: a
``CommitResult`` per storage node.

Invariants:
  V1  a storage node is sent each version once and in order; what its reports show to be lost is
      sent again
  V2  nothing is sent before the node has told which version it knows
  V3  what a node that cannot keep up still has to acknowledge is bounded: ``DELIVERY_CUTS_MAX``
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog import limits
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import CommitResult, HighWatermark
from tidelog.core.order.commands import CutDecided, VersionedCommit
from tidelog.types import Glsn, NodeId, StreamId, TopicId, Version


@dataclass(slots=True)
class _Receiver:
    known: Version
    """The last version that the node has applied, by its own word."""
    sent: Version
    """The last version sent to it; never below ``known``."""
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

    def reported(self, node: NodeId, version: Version) -> list[CommitResult]:
        """Note the version that a node knows; return what it has missed and is not on its way."""
        receiver = self._receivers.get(node)
        if receiver is None:
            receiver = self._receivers[node] = _Receiver(version, version)
        elif version > receiver.known:
            receiver.known = version
            receiver.sent = max(receiver.sent, version)
            receiver.quiet_ticks = 0
        elif version < receiver.known:
            # It forgot empty commits in a restart, or the report was overtaken: then it only
            # gets again what it will ignore.
            receiver.known = receiver.sent = version
            receiver.quiet_ticks = 0
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

    def _send(self, node: NodeId, receiver: _Receiver) -> list[CommitResult]:
        newest = self._machine.order.version
        results: list[CommitResult] = []
        while receiver.sent < newest and receiver.sent - receiver.known < limits.DELIVERY_CUTS_MAX:
            result = self._result(node, receiver.sent)
            receiver.sent = result.version
            results.append(result)
        return results

    def _result(self, node: NodeId, previous: Version) -> CommitResult:
        cuts = self._machine.order.cuts_after(previous)
        if cuts is None:
            return self._result_beyond_history(node, previous)
        return self._result_of(node, previous, cuts[: limits.DELIVERY_CUTS_MAX])

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
            watermarks=tuple(HighWatermark(*item) for item in sorted(watermarks.items())),
            commits=tuple(commits),
        )

    def _known_version(self, node: NodeId, stream: StreamId, previous: Version) -> Version:
        """What one replica knows: often more than its whole node, which is as old as its oldest."""
        replicas = self._machine.order.stream(stream).replicas
        return max(previous, *(one.version for one in replicas if one.node == node))

    def _result_beyond_history(self, node: NodeId, previous: Version) -> CommitResult:
        """Tell each replica what it missed, if that is known: an idle stream missed nothing."""
        order = self._machine.order
        commits: list[VersionedCommit] = []
        behind: list[StreamId] = []
        topics: dict[TopicId, None] = {}
        for stream in self._machine.hosted(node):
            topics[order.stream(stream).topic] = None
            missed = order.commits_after(stream, self._known_version(node, stream, previous))
            if missed is None:
                behind.append(stream)
            else:
                commits.extend(missed)
        commits.sort(key=lambda one: (one.version, one.commit.topic, one.commit.stream))
        return CommitResult(
            source=self._node,
            target=node,
            previous=previous,
            version=order.version,
            watermarks=tuple(
                HighWatermark(topic, order.topic(topic).high_watermark) for topic in sorted(topics)
            ),
            commits=tuple(commits),
            behind=tuple(behind),
        )
