"""Figures of a datastore and its replica as Markdown.  No state."""

from __future__ import annotations

from bench.tables import table

Figures = dict[str, dict[str, float]]

_SPANNED = ("parallel, 1 × 100 B", "serial, 1 × 100 B")
"""Modes and works whose spans are shown."""


def pair_section(figures: Figures) -> str:
    """Log sessions a second, beside the plain way; then what their time goes to."""
    note = (
        "One datastore and one replica on this machine, each in its process, over TCP; epochs of "
        "3 ms. A log session has ended when its entries are durable on both sides. *Plain*: the "
        "same bytes by sendall, written and synced by both sides at the same time, one byte back; "
        "no frames, checksums, epochs or recovery. *Flush at group commit*: the end of a log "
        "session does not wait for a sync, its epoch does."
    )
    rows = [
        (
            *_named(name),
            f"{found['sessions_per_second']:,.0f}",
            f"{found['megabytes_per_second']:,.1f}",
            f"{found['p50_us']:,.0f}",
            f"{found['p99_us']:,.0f}",
            f"{found['ratio_to_plain']:.0%}",
        )
        for name, found in figures.items()
        if not name.startswith("span, ")
    ]
    headers = ("mode", "log session", "sessions/s", "MB/s", "p50 µs", "p99 µs", "of plain")
    return "\n\n".join([note, table(headers, rows), *_span_tables(figures)])


def _named(name: str) -> tuple[str, str]:
    mode, _, work = name.partition(", ")
    return mode, work


def _span_tables(figures: Figures) -> list[str]:
    tables: list[str] = []
    for shown in _SPANNED:
        before = f"span, {shown}, "
        rows = [
            (
                name.removeprefix(before),
                f"{found['count']:,.0f}",
                f"{found['p50_us']:,.0f}",
                f"{found['p99_us']:,.0f}",
            )
            for name, found in figures.items()
            if name.startswith(before) and "channels" not in name
        ]
        if rows:
            tables.append(table((f"spans: {shown}", "count", "p50 µs", "p99 µs"), rows))
    return tables
