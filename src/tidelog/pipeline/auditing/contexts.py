"""Whether the commit contexts of replicas fit to their entries and to one another.  No state."""

from __future__ import annotations

from tidelog.pipeline.auditing.findings import Finding, FindingKind
from tidelog.pipeline.auditing.targets import Targets
from tidelog.pipeline.auditing.tasks import AuditReplica

_FIELDS = ("version", "high watermark", "GLSN begin", "LLSN begin", "length")


def flaws_in_contexts(targets: Targets) -> list[Finding]:
    """Contexts that their own node finds wrong, and different ones of one version."""
    findings: list[Finding] = []
    first: dict[tuple[int, int], AuditReplica] = {}
    for replica in targets.replicas:
        facts = replica.facts
        if facts.context_flaw:
            findings.append(_finding(replica, (replica.node,), facts.context_flaw))
        other = first.setdefault((facts.stream, facts.context[0]), replica)
        if other.facts.context != facts.context:
            nodes = (other.node, replica.node)
            findings.append(_finding(replica, nodes, _difference(other, replica)))
    return findings


def _difference(one: AuditReplica, other: AuditReplica) -> str:
    fields = zip(_FIELDS, one.facts.context, other.facts.context, strict=True)
    told = [f"{name} {mine} and {theirs}" for name, mine, theirs in fields if mine != theirs]
    version = one.facts.context[0]
    return f"contexts of version {version} differ on nodes {one.node} and {other.node}: " + (
        ", ".join(told)
    )


def _finding(replica: AuditReplica, nodes: tuple[int, ...], what: str) -> Finding:
    facts = replica.facts
    return Finding(
        kind=FindingKind.CONTEXT,
        topic=replica.topic,
        stream=facts.stream,
        nodes=nodes,
        what=what,
    )


def flaws_in_counts(targets: Targets) -> list[Finding]:
    """All log streams of a topic together have as many entries as GLSNs were given."""
    findings: list[Finding] = []
    for topic in targets.topics:
        ends = targets.ordered_ends
        if topic.has_removed_streams or any(stream not in ends for stream in topic.streams):
            continue
        entries = sum(ends[stream] - 1 for stream in topic.streams)
        if entries != topic.high_watermark:
            what = (
                f"{topic.high_watermark} GLSNs were given, "
                f"but {entries} entries of its log streams are ordered"
            )
            findings.append(Finding(kind=FindingKind.CONTEXT, topic=topic.name, what=what))
    return findings
