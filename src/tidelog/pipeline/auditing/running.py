"""A run of ``audit``: what there is, what it holds, and what is to be said of it.

Reading and comparing is left to ``Steps``, which Spark carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import perf_counter, time_ns
from typing import Protocol

from msgspec.structs import replace

from tidelog.interface.audit_figures import AuditedReplica
from tidelog.pipeline.auditing.contexts import flaws_in_contexts, flaws_in_counts
from tidelog.pipeline.auditing.coverage import TopicOrder
from tidelog.pipeline.auditing.findings import AuditProgress, AuditSummary, Finding
from tidelog.pipeline.auditing.rows import Lost, Told
from tidelog.pipeline.auditing.summing_up import Words, dense_from, sum_up
from tidelog.pipeline.auditing.targets import Targets
from tidelog.pipeline.auditing.tasks import Task, plan_tasks


class Steps(Protocol):
    """What is done to all entries."""

    def compare(self, tasks: Sequence[Task]) -> list[Told]:
        """Read all replicas and hold them against one another."""
        ...

    def cover(self, orders: Mapping[str, TopicOrder]) -> list[Told]:
        """Look at the GLSNs of what was compared."""
        ...


class Nodes(Protocol):
    """What the nodes are asked besides."""

    def ask_again(self) -> Mapping[tuple[int, int], AuditedReplica]:
        """What replicas say of themselves now, by node and log stream."""
        ...

    def look_closer(self, findings: Iterable[Finding]) -> Iterable[Finding]:
        """The findings, with what each replica holds where they differ."""
        ...


def run(
    targets: Targets, steps: Steps, nodes: Nodes, progress: Callable[[AuditProgress], None]
) -> AuditSummary:
    """Look at everything; changes nothing."""
    started, began_us = perf_counter(), time_ns() // 1000
    tasks = plan_tasks(targets.replicas, targets.endpoints)
    count = f"{len(targets.replicas)} replicas on {len(targets.endpoints)} nodes"
    progress(AuditProgress("plan", f"{count}, {len(tasks)} tasks"))
    words = Words.of(steps.compare(tasks))
    progress(AuditProgress("read", f"{words.entries:,} entries of all replicas compared"))
    # Only now: what was compacted while it was read may be missing.
    now = nodes.ask_again()
    words.add(silent(targets, now))
    orders = topic_orders(targets, words, now)
    words.add(steps.cover(orders))
    progress(AuditProgress("order", f"{words.present:,} GLSNs of {len(orders)} topics"))
    findings = [
        *flaws_in_contexts(targets),
        *flaws_in_counts(targets),
        *nodes.look_closer(words.findings),
    ]
    progress(AuditProgress("look closer", f"{len(findings)} findings"))
    summary = sum_up(targets, orders, words, findings)
    return replace(summary, began_us=began_us, seconds=perf_counter() - started)


def silent(targets: Targets, now: Mapping[tuple[int, int], AuditedReplica]) -> Iterator[Lost]:
    """Replicas that did not answer again: nobody knows what they compacted meanwhile."""
    for one in targets.replicas:
        if (one.node, one.facts.stream) not in now:
            why = "it was read, but what it compacted meanwhile could not be asked"
            yield Lost(one.facts.stream, one.node, why)


def topic_orders(
    targets: Targets, words: Words, now: Mapping[tuple[int, int], AuditedReplica]
) -> dict[str, TopicOrder]:
    """Up to where, and from where on, the GLSNs of each topic must be dense."""
    read = [one for one in targets.replicas if (one.node, one.facts.stream) not in words.lost]
    return {
        topic.name: TopicOrder(topic.name, topic.high_watermark + 1, dense_from(topic, read, now))
        for topic in targets.topics
    }
