"""Puts what tasks have told together.  No state of its own but what was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from tidelog.interface.audit_figures import AuditedReplica
from tidelog.pipeline.auditing.coverage import TopicOrder, bucket_range, missing
from tidelog.pipeline.auditing.findings import (
    AuditSummary,
    Cell,
    Finding,
    FindingKind,
    LeftOut,
    ReplicaAudit,
    TopicAudit,
)
from tidelog.pipeline.auditing.rows import GLSN_BUCKET_BITS, Covered, Found, Lost, Tally, Told
from tidelog.pipeline.auditing.targets import Targets
from tidelog.pipeline.auditing.tasks import WAL, AuditReplica, AuditTopic

FINDINGS_MAX: Final = 1_000
"""What a summary lists; more are only counted."""


class Words:
    """What tasks have told."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.more = 0
        self.wal_files = 0
        self.rows: Counter[tuple[int, int]] = Counter()
        """Entries of each replica, by node and log stream."""
        self.bytes: Counter[tuple[int, int]] = Counter()
        self.files: Counter[tuple[int, int]] = Counter()
        self.covered: list[Covered] = []
        self.lost: dict[tuple[int, int], str] = {}
        """Replicas that were not all read, and why."""

    @classmethod
    def of(cls, told: Iterable[Told]) -> Words:
        words = cls()
        words.add(told)
        return words

    def add(self, told: Iterable[Told]) -> None:
        for one in told:
            match one:
                case Tally():
                    self._add_tally(one)
                case Found():
                    self.findings.append(one.finding)
                    self.more += one.more
                case Lost():
                    self.lost.setdefault((one.node, one.stream), one.why)
                case Covered():
                    self.covered.append(one)

    def _add_tally(self, tally: Tally) -> None:
        if tally.stream == WAL:
            self.wal_files += tally.files
            return
        place = (tally.node, tally.stream)
        self.rows[place] += tally.entries
        self.bytes[place] += tally.bytes
        self.files[place] += tally.files

    @property
    def entries(self) -> int:
        return self.rows.total()

    @property
    def present(self) -> int:
        return sum(one.present for one in self.covered)


def dense_from(
    topic: AuditTopic,
    replicas: Iterable[AuditReplica],
    now: Mapping[tuple[int, int], AuditedReplica],
) -> int:
    """The first GLSN from which on none may be missing.

    What is missing on all replicas of a stream was compacted on each of them.  One that lags behind
    says nothing of what it has not got.  ``replicas`` are those that were read to their ends and
    told of themselves once more after it.
    """
    if topic.has_removed_streams:
        return topic.high_watermark + 1
    first = 1
    for stream in topic.streams:
        mine = [one for one in replicas if one.facts.stream == stream]
        if not mine:
            return topic.high_watermark + 1
        ends = [now[one.node, stream].settled_glsn_end for one in mine]
        first = max(first, max(ends) if any(one.lag for one in mine) else min(ends))
    return min(first, topic.high_watermark + 1)


def sum_up(
    targets: Targets, orders: Mapping[str, TopicOrder], words: Words, findings: Sequence[Finding]
) -> AuditSummary:
    """The summary, but for its times."""
    everything = merged([*findings, *_empty_buckets(orders, words)])
    listed = everything[:FINDINGS_MAX]
    return AuditSummary(
        log_id=targets.log_id.hex(),
        began_us=0,
        seconds=0.0,
        nodes=tuple(sorted(targets.endpoints)),
        topics=tuple([_topic(one, orders[one.name], words) for one in targets.topics]),
        replicas=tuple([_replica(one, words, everything) for one in targets.replicas]),
        findings=tuple(listed),
        findings_more=words.more + len(everything) - len(listed),
        left_out=(*targets.left_out, *_lost(targets, words)),
        wal_files=words.wal_files,
    )


def _lost(targets: Targets, words: Words) -> list[LeftOut]:
    topics = targets.topic_of()
    return [
        LeftOut(topics.get(stream, ""), stream, node, why)
        for (node, stream), why in sorted(words.lost.items())
    ]


# -- findings ------------------------------------------------------------------------------------


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted by what they are and where; neighbours that say the same become one."""
    found: list[Finding] = []
    for one in sorted(findings, key=_place):
        last = found[-1] if found else None
        if last is not None and _continues(last, one):
            found[-1] = replace(last, llsn_end=one.llsn_end, glsn_end=one.glsn_end)
        else:
            found.append(one)
    return found


_ORDER: Final = {kind: number for number, kind in enumerate(FindingKind)}


def _place(one: Finding) -> tuple[int, str, int, tuple[int, ...], int, int, str]:
    return (
        _ORDER[one.kind],
        one.topic,
        one.stream,
        one.nodes,
        one.llsn_begin,
        one.glsn_begin,
        one.file,
    )


def _continues(last: Finding, one: Finding) -> bool:
    if one.kind not in (FindingKind.MISSING, FindingKind.DIVERGED, FindingKind.MISSING_GLSNS):
        return False
    if (last.kind, last.topic, last.stream, last.nodes) != (
        one.kind,
        one.topic,
        one.stream,
        one.nodes,
    ):
        return False
    if one.kind is FindingKind.MISSING_GLSNS:
        return last.glsn_end == one.glsn_begin
    return last.llsn_end == one.llsn_begin and (
        one.kind is FindingKind.DIVERGED or last.what == one.what
    )


def _empty_buckets(orders: Mapping[str, TopicOrder], words: Words) -> list[Finding]:
    """Buckets of GLSNs that no entry lies in, and that so nobody has looked at."""
    seen = {(one.topic, one.glsn_begin >> GLSN_BUCKET_BITS) for one in words.covered}
    findings: list[Finding] = []
    for order in orders.values():
        for number in range(order.glsn_end - 1 >> GLSN_BUCKET_BITS, -1, -1):
            begin, end = bucket_range(number, order.glsn_end)
            first = max(begin, order.dense_from)
            if (order.topic, number) not in seen and first < end:
                findings.append(missing(order.topic, first, end))
    return findings


# -- topics and replicas -------------------------------------------------------------------------


def _topic(topic: AuditTopic, order: TopicOrder, words: Words) -> TopicAudit:
    mine = sorted(
        [one for one in words.covered if one.topic == topic.name], key=lambda one: one.glsn_begin
    )
    return TopicAudit(
        topic=topic.name,
        streams=topic.streams,
        high_watermark=topic.high_watermark,
        dense_from=order.dense_from,
        present=sum(one.present for one in mine),
        cells=tuple(_joined([cell for one in mine for cell in one.cells], order)),
        has_removed_streams=topic.has_removed_streams,
    )


def _joined(cells: Sequence[Cell], order: TopicOrder) -> list[Cell]:
    """All cells of a topic: the two halves of one are put together, and those of nobody added."""
    width = order.cell_width
    present: Counter[int] = Counter()
    doubled: Counter[int] = Counter()
    for cell in cells:
        number = (cell.glsn_begin - 1) // width
        present[number] += cell.present
        doubled[number] += cell.doubled
    begins = range(1, order.glsn_end, width)
    return [
        Cell(begin, min(begin + width, order.glsn_end), present[number], doubled[number])
        for number, begin in enumerate(begins)
    ]


def _replica(replica: AuditReplica, words: Words, findings: Sequence[Finding]) -> ReplicaAudit:
    place = (replica.node, replica.facts.stream)
    mine = [
        one for one in findings if replica.node in one.nodes and one.stream == replica.facts.stream
    ]
    lost = [one for one in mine if one.kind in (FindingKind.MISSING, FindingKind.UNREADABLE)]
    gone = sum(one.llsn_end - one.llsn_begin for one in lost)
    return ReplicaAudit(
        topic=replica.topic,
        stream=replica.facts.stream,
        node=replica.node,
        role=replica.role,
        llsn_end=replica.llsn_end,
        entries=words.rows[place],
        bytes=words.bytes[place],
        compacted=max(0, replica.llsn_end - 1 - words.rows[place] - gone),
        lag=replica.lag,
        version=replica.facts.context[0],
        files=words.files[place],
        findings=len(mine),
    )
