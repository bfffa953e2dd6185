"""The report of an audit: one HTML file that needs nothing else.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tidelog.pipeline.auditing.findings import AuditSummary, Finding, ReplicaAudit, TopicAudit
from tidelog.pipeline.auditing.markup import Markup, document, element, joined, table, text, words
from tidelog.pipeline.auditing.plots import coverage_strip, replica_bars
from tidelog.pipeline.auditing.report_style import STYLE
from tidelog.storage.atomic_file import replace_file
from tidelog.storage.os_vfs import OsVfs

REPLICAS_SHOWN: Final = 2_000
BARS_SHOWN: Final = 120
"""Of one topic."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def write_report(path: Path, summary: AuditSummary) -> None:
    """Write the page; a reader of the file sees the old one or the new one."""
    data = report_page(summary).encode()
    replace_file(OsVfs(), str(path.parent), path.name, data)


def report_page(summary: AuditSummary) -> str:
    """The page as text."""
    return document(
        f"Audit of log {summary.log_id[:8]}: {verdict(summary)[1]}",
        STYLE,
        [
            element("header", *_header(summary)),
            element(
                "main",
                *_findings(summary),
                *_left_out(summary),
                *_order(summary.topics),
                *_replicas(summary.replicas),
            ),
        ],
    )


def verdict(summary: AuditSummary) -> tuple[str, str]:
    """A word for the style, and what it means."""
    if not summary.is_sound:
        count = len(summary.findings) + summary.findings_more
        return "bad", f"{count:,} {'finding' if count == 1 else 'findings'}"
    if not summary.is_complete:
        return "partly", "sound, as far as it could be looked at"
    return "good", "sound"


# -- head ----------------------------------------------------------------------------------------


def _header(summary: AuditSummary) -> Iterator[Markup]:
    kind, told = verdict(summary)
    began = datetime.fromtimestamp(summary.began_us / 1e6, UTC)
    yield element("h1", words("Audit "), text("span", told, class_=f"verdict {kind}"))
    yield element(
        "p",
        words("Log "),
        text("code", summary.log_id),
        words(f", {began:%Y-%m-%d %H:%M:%S} UTC, took {summary.seconds:,.1f} s"),
    )
    figures = (
        ("nodes", f"{len(summary.nodes):,}"),
        ("topics", f"{len(summary.topics):,}"),
        ("replicas", f"{len(summary.replicas):,}"),
        ("entries read", f"{summary.entries:,}"),
        ("bytes read", size_text(summary.bytes)),
        ("files checked", f"{_files(summary):,}"),
    )
    yield element(
        "dl",
        *(element("div", text("dt", name), text("dd", value)) for name, value in figures),
    )


def _files(summary: AuditSummary) -> int:
    return summary.wal_files + sum(one.files for one in summary.replicas)


# -- what is wrong -------------------------------------------------------------------------------


def _findings(summary: AuditSummary) -> Iterator[Markup]:
    yield text("h2", "Findings")
    if summary.is_sound:
        yield text("p", "Every entry that was read is as it should be.")
        return
    headers = ("What", "Where", "Nodes", "LLSNs", "GLSNs", "Details")
    yield table(headers, [_finding(one) for one in summary.findings])
    if summary.findings_more:
        yield text("p", f"{summary.findings_more:,} more are not listed.")


def _finding(one: Finding) -> list[Markup]:
    return [
        text("strong", one.kind.value),
        words(_where(one.topic, one.stream)),
        words(", ".join(map(str, one.nodes))),
        words(range_text(one.llsn_begin, one.llsn_end)),
        words(range_text(one.glsn_begin, one.glsn_end)),
        joined([*([text("code", one.file), element("br")] if one.file else []), words(one.what)]),
    ]


def _left_out(summary: AuditSummary) -> Iterator[Markup]:
    if summary.is_complete:
        return
    yield text("h2", "Not looked at")
    rows = [
        [words(_where(one.topic, one.stream)), words(one.node), words(one.why)]
        for one in summary.left_out
    ]
    yield table(("Where", "Node", "Why"), rows)


def _where(topic: str, stream: int) -> str:
    places = [topic] if topic else []
    return ", ".join([*places, f"log stream {stream}"] if stream else places) or "the whole node"


def range_text(begin: int, end: int) -> str:
    """A half open range of places, as people write it."""
    if begin >= end:
        return "–"
    return f"{begin:,}" if end - begin == 1 else f"{begin:,} to {end - 1:,}"


# -- what was looked at --------------------------------------------------------------------------


def _order(topics: Sequence[TopicAudit]) -> Iterator[Markup]:
    yield text("h2", "Total order")
    yield _legend(
        ("there", "there"),
        ("gone", "compacted or trimmed"),
        ("lost", "missing"),
        ("doubled", "given twice"),
    )
    for topic in topics:
        yield element(
            "figure",
            element("figcaption", text("strong", topic.topic), words(_order_text(topic))),
            coverage_strip(topic),
        )


def _order_text(topic: TopicAudit) -> str:
    told = f": {topic.present:,} of {topic.high_watermark:,} GLSNs have an entry"
    if topic.has_removed_streams:
        return f"{told}; log streams were removed, so gaps mean nothing"
    if topic.dense_from > 1:
        told += f"; from GLSN {topic.dense_from:,} on none may be missing"
    return told


def _replicas(replicas: Sequence[ReplicaAudit]) -> Iterator[Markup]:
    ordered = sorted(replicas, key=lambda one: (one.topic, one.stream, one.node))
    yield text("h2", "Replicas")
    yield _legend(("there", "there"), ("gone", "compacted or trimmed"), ("behind", "lag"))
    for topic in dict.fromkeys(one.topic for one in ordered):
        mine = [one for one in ordered if one.topic == topic]
        yield element(
            "figure",
            element("figcaption", text("strong", topic), words(_cut(len(mine), BARS_SHOWN))),
            replica_bars(mine[:BARS_SHOWN]),
        )
    yield _replica_table(ordered[:REPLICAS_SHOWN])
    if len(ordered) > REPLICAS_SHOWN:
        yield text("p", f"{len(ordered) - REPLICAS_SHOWN:,} more are not listed.")


def _cut(count: int, shown: int) -> str:
    return f": the first {shown:,} of {count:,} replicas" if count > shown else ""


def _replica_table(replicas: Iterable[ReplicaAudit]) -> Markup:
    headers = (
        *("Topic", "Log stream", "Node", "Role"),
        *("Entries", "Bytes", "Compacted", "Lag", "Last cut", "Files", "Findings"),
    )
    rows = [
        [
            *(words(cell) for cell in (one.topic, one.stream, one.node, one.role)),
            words(f"{one.entries:,}"),
            words(size_text(one.bytes)),
            words(f"{one.compacted:,}"),
            words(f"{one.lag:,}"),
            words(f"{one.version:,}"),
            words(f"{one.files:,}"),
            text("strong", one.findings, class_="bad") if one.findings else words(0),
        ]
        for one in replicas
    ]
    return table(headers, rows, numbers=7)


def _legend(*entries: tuple[str, str]) -> Markup:
    keys = [element("span", text("i", "", class_=kind), words(told)) for kind, told in entries]
    return element("p", *keys, class_="legend")


def size_text(size: float) -> str:
    """1536 → ``1.5 KiB``."""
    power = 0
    while size >= 1024 and power < len(_UNITS) - 1:
        size, power = size / 1024, power + 1
    return f"{size:,.1f} {_UNITS[power]}" if power else f"{size:,.0f} B"
