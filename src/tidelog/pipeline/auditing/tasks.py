"""What an audit is to look at, and how that is cut into the tasks of a Spark job.  No state.

K1  every LLSN of every replica that is looked at is in exactly one task
K2  a task asks one node, and nobody else
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tidelog.interface.audit_figures import AuditedReplica

TASK_ENTRIES: Final = 1 << 18
WAL: Final = 0
"""Stands for the write-ahead log where a task names a log stream."""


class AuditTopic(msgspec.Struct, frozen=True):
    """A topic up to its high watermark when the audit began."""

    name: str
    streams: tuple[int, ...]
    high_watermark: int
    has_removed_streams: bool = False


class AuditReplica(msgspec.Struct, frozen=True):
    """A replica that can be looked at."""

    topic: str
    node: int
    role: str
    facts: AuditedReplica
    llsn_end: int
    """The first LLSN that is not looked at: not ordered everywhere when the audit began."""
    lag: int = 0


class ReadTask(msgspec.Struct, frozen=True, tag="read"):
    """Read and hash the entries ``[begin, end)`` of one replica."""

    node: int
    endpoint: str
    topic: str
    stream: int
    begin: int
    end: int


class FilesTask(msgspec.Struct, frozen=True, tag="files"):
    """Check the segments of one replica, or the write-ahead log of a node."""

    node: int
    endpoint: str
    topic: str
    stream: int


Task = ReadTask | FilesTask


def plan_tasks(
    replicas: Sequence[AuditReplica],
    endpoints: dict[int, str],
    *,
    entries_max: int = TASK_ENTRIES,
) -> list[Task]:
    """The long ones first; neighbours ask different nodes."""
    tasks: list[Task] = [FilesTask(node, where, "", WAL) for node, where in endpoints.items()]
    for replica in replicas:
        facts, where = replica.facts, endpoints[replica.node]
        tasks.append(FilesTask(replica.node, where, replica.topic, facts.stream))
    reads = [
        ReadTask(one.node, endpoints[one.node], one.topic, one.facts.stream, begin, end)
        for one in replicas
        for begin, end in _ranges(_begin(one.facts), one.llsn_end, entries_max)
    ]
    reads.sort(key=lambda task: (task.begin, task.stream, task.node))
    return [*reads, *tasks]


def _begin(facts: AuditedReplica) -> int:
    """What was trimmed long ago need not be asked for; what is missing without a reason must."""
    return max(1, min(facts.first_llsn, facts.settled_index + 1))


def _ranges(begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(begin, end, size):
        yield first, min(first + size, end)
