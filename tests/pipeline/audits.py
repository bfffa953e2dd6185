"""Audits without Spark and without a network: stores in memory, steps that run where they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pyarrow as pa

from tests.storage.streams import Streams
from tidelog.client.replica_reading import ReplicaEntries
from tidelog.formats.audit_messages import CheckedFile
from tidelog.interface.audit_figures import AuditedNode, AuditedReplica
from tidelog.pipeline.auditing.closer import look_closer
from tidelog.pipeline.auditing.comparing import compare
from tidelog.pipeline.auditing.coverage import TopicOrder, cover
from tidelog.pipeline.auditing.findings import AuditSummary, Finding, FindingKind
from tidelog.pipeline.auditing.reading import Node, ReplicaRead, check_files
from tidelog.pipeline.auditing.rows import (
    ENTRIES,
    GLSN_BUCKET_BITS,
    RUNS,
    Told,
    decode_told,
    told_rows,
)
from tidelog.pipeline.auditing.running import run
from tidelog.pipeline.auditing.targets import Targets
from tidelog.pipeline.auditing.tasks import AuditReplica, AuditTopic, ReadTask, Task
from tidelog.storage.file_checks import check_segments, check_wal
from tidelog.storage.node_store import NodeStore
from tidelog.storage.replica_facts import audited_replicas
from tidelog.storage.replica_pages import read_replica

LOG_ID = bytes(16)


class MemoryNode:
    """A node whose store is in this process."""

    def __init__(self, number: int, store: NodeStore, page_bytes: int = 0) -> None:
        self.number = number
        self.store = store
        self._page_bytes = page_bytes

    def replicas(self) -> AuditedNode:
        return AuditedNode(self.number, LOG_ID.hex(), audited_replicas(self.store))

    def page(self, stream: int, begin: int, end: int) -> ReplicaEntries:
        page = read_replica(self.store.streams[stream], begin, end, self._page_bytes)
        slices = [(stream, piece) for piece in page.pieces]
        return ReplicaEntries(slices, page.begin, page.end, page.settled_index, page.damage)

    def check_files(self, stream: int) -> Iterator[CheckedFile]:
        if stream:
            yield from check_segments(self.store, self.store.streams[stream], 0).files
        else:
            yield from check_wal(self.store, 0).files


class LocalSteps:
    """``running.Steps``, one task after the other."""

    def __init__(self, nodes: Mapping[int, Node], topic_of: Mapping[int, str]) -> None:
        self._nodes = nodes
        self._topic_of = dict(topic_of)
        self._runs: Any = None

    def compare(self, tasks: Sequence[Task]) -> list[Told]:
        batches = [batch for task in tasks for batch in self._rows(task)]
        entries = pa.Table.from_batches(batches, ENTRIES)
        buckets = _grouped(entries, lambda row: (row["stream"], row["bucket"]))
        compared = [compare(bucket, self._topic_of) for bucket in buckets]
        self._runs = pa.concat_tables([RUNS.empty_table(), *compared])
        return _told(self._runs)

    def _rows(self, task: Task) -> Iterator[Any]:
        node = self._nodes[task.node]
        if isinstance(task, ReadTask):
            yield from ReplicaRead(task).run(node)
        else:
            yield told_rows(check_files(task, node), ENTRIES, task.stream)

    def cover(self, orders: Mapping[str, TopicOrder]) -> list[Told]:
        runs = self._runs.filter(self._runs.column("told").is_null())
        topics = [self._topic_of[stream] for stream in runs.column("stream").to_pylist()]
        buckets = [glsn >> GLSN_BUCKET_BITS for glsn in runs.column("glsn").to_pylist()]
        runs = runs.append_column("topic", pa.array(topics, pa.string()))
        runs = runs.append_column("bucket", pa.array(buckets, pa.int64()))
        told: list[Told] = []
        for group in _grouped(runs, lambda row: (row["topic"], row["bucket"])):
            told += _told(cover(group, dict(orders)))
        return told


class MemoryNodes:
    """``running.Nodes`` that are in this process."""

    def __init__(self, nodes: Mapping[int, MemoryNode]) -> None:
        self._nodes = nodes

    def ask_again(self) -> dict[tuple[int, int], AuditedReplica]:
        return {
            (number, one.stream): one
            for number, node in self._nodes.items()
            for one in node.replicas().replicas
        }

    def look_closer(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        return look_closer(findings, lambda number: nullcontext(self._nodes[number]))


def audit_of(*stories: Streams, page_bytes: int = 0) -> AuditSummary:
    """Audit the replicas of these stores, as nodes 1, 2, 3 and so on of one cluster."""
    nodes = {
        number: MemoryNode(number, story.node, page_bytes)
        for number, story in enumerate(stories, 1)
    }
    targets = targets_of(nodes)
    return run(targets, LocalSteps(nodes, targets.topic_of()), MemoryNodes(nodes), lambda _: None)


def targets_of(nodes: Mapping[int, MemoryNode]) -> Targets:
    told = {number: node.replicas().replicas for number, node in nodes.items()}
    targets = Targets(LOG_ID, dict.fromkeys(nodes, ""))
    ends: dict[int, int] = defaultdict(int)
    highs: dict[str, int] = defaultdict(int)
    streams: dict[str, dict[int, None]] = defaultdict(dict)
    for one in (one for replicas in told.values() for one in replicas):
        ends[one.stream] = max(ends[one.stream], one.ordered_end_llsn)
        highs[one.topic] = max(highs[one.topic], one.context[1])
        streams[one.topic][one.stream] = None
    targets.ordered_ends = dict(ends)
    targets.topics = [AuditTopic(name, tuple(streams[name]), highs[name]) for name in streams]
    targets.replicas = [
        AuditReplica(
            one.topic,
            number,
            "",
            one,
            one.ordered_end_llsn,
            ends[one.stream] - one.ordered_end_llsn,
        )
        for number, replicas in told.items()
        for one in replicas
    ]
    return targets


def kinds_of(summary: AuditSummary) -> list[FindingKind]:
    return [one.kind for one in summary.findings]


def _grouped(table: Any, key: Any) -> Iterator[Any]:
    places: dict[Any, list[int]] = defaultdict(list)
    for place, row in enumerate(table.to_pylist()):
        places[key(row)].append(place)
    for rows in places.values():
        yield table.take(pa.array(rows))


def _told(table: Any) -> list[Told]:
    return [decode_told(one) for one in table.column("told").to_pylist() if one is not None]
