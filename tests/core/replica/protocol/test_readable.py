"""What a node may show while its replicas catch up, with the real hosting and delivery between.

Which cuts a replica knows and what it has durable are two things: a reader is told by the second.
"""

from __future__ import annotations

from tests.core.replica.protocol.harness import STREAM, Group, nodes
from tidelog.core.metadata.commands import Assign, Batch, Change, RegisterNode, Request
from tidelog.core.metadata.delivery import Delivery
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import CommitResult, NodeReport
from tidelog.core.order.commands import CreateTopic, NewStream
from tidelog.core.replica.hosting import Hosting
from tidelog.runtime.storage_node.readable import Snapshot, readable_up_to
from tidelog.types import NodeId, TopicId

METADATA = NodeId(1)
TOPIC = TopicId(1)
LATE = 13
MEMBERS = nodes(11, 12, LATE)


class Hosted(Group):
    """Three replicas; one of them has the hosting that its node would have."""

    def __init__(self) -> None:
        super().__init__(*MEMBERS)
        self.machine = MetadataMachine()
        for node in MEMBERS:
            self.change(RegisterNode(node))
        self.change(CreateTopic(TOPIC, (NewStream(STREAM, MEMBERS),)))
        for node in MEMBERS:
            self.machine.apply(Batch((Assign(node, METADATA),)))
        self.order = self.machine.order
        self.delivery = Delivery(METADATA, self.machine, resend_ticks=5)
        self.hosting = Hosting(NodeId(LATE), lambda _: self[LATE])
        self.watermarks: dict[TopicId, int] = {}
        self.results: list[CommitResult] = []

    def change(self, change: Change) -> None:
        self.machine.apply(Batch((Request(METADATA, 1, change),)))

    def ask_late(self) -> None:
        """A metadata node collects from the late node, and tells it what it lacks."""
        self.hosting.collect(self.delivery.collect(NodeId(LATE), 1))
        self.hosting.touched(STREAM)
        while reports := self.hosting.take():
            for report in reports:
                self._answer(report)
            self.hosting.touched(STREAM)
            self.hosting.validate()

    def _answer(self, report: NodeReport) -> None:
        answers = self.delivery.reported(report)
        if self.delivery.must_tell_placements(NodeId(LATE)):
            self.hosting.collect(self.delivery.collect(NodeId(LATE), 1))
        for result in answers:
            self._take(result)

    def _take(self, result: CommitResult) -> None:
        before = self.hosting.version
        self.hosting.commits(result)
        if before < result.version == self.hosting.version:
            self.watermarks |= {one.topic: one.glsn for one in result.watermarks}
        self.results.append(result)
        self.collect(LATE)

    def order_without_late(self) -> None:
        """Order all that there is; nobody keeps the history for the late node."""
        for _ in range(3):
            self.deliver()
            self.report(11, 12)
            self.cut()
            self.tell_cuts(11, 12)
        self.report(11, 12)

    def readable(self) -> int:
        """The last GLSN that the late node may show, as a reader is told."""
        snapshot = Snapshot(self.watermarks, self.hosting.ends)
        return readable_up_to(TOPIC, STREAM, self[LATE].durable_context, (snapshot,))


def test_what_a_replica_was_filled_up_with_is_not_shown_before_it_is_durable() -> None:
    """The known bad schedule: the replica is ahead of history, so the next result, which is beyond
    history, is silent of its stream and brings a newer high watermark."""
    group = Hosted()
    group.elect(11, 12, LATE)
    group.append(11, b"a", b"b")
    group.order_all()
    group.ask_late()
    assert group.readable() == 2
    # It is cut off, and the others go on.
    group.isolate(LATE)
    group.elect(11, 12)
    for word in (b"c", b"d", b"e"):
        group.append(11, word)
        group.order_without_late()
    assert group.order.cuts_after(group.hosting.version) is None
    # What it lacks is in segments of its leader, which fills it up; and its disk is slow.
    group[11].joined(group[11].head.llsn)
    group.drop()
    group.heal()
    group.add_follower(11, LATE)
    group.hold_back(LATE)
    while group[LATE].context.llsn_end == 3:
        group.sync(LATE)
        group.deliver()
        group.tick(11)
    assert (group[LATE].context.llsn_end, group[LATE].durable_context.llsn_end) == (6, 3)
    group.results.clear()
    group.ask_late()
    assert [(one.commits, one.behind) for one in group.results] == [((), ())]
    assert group.watermarks == {TOPIC: 5}
    assert group.hosting.ends == {STREAM: 6}
    assert group.readable() == 2, "a reader would go on behind entries that it never saw"
    group.release(LATE)
    assert group.readable() == 5
