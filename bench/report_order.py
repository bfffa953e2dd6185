"""Figures of the order layer as Markdown.  No state."""

from __future__ import annotations

from bench.tables import table

Figures = dict[str, dict[str, float]]


def order_section(figures: Figures) -> str:
    """What a cut costs, and how long a report takes to become a commit."""
    cut_note = (
        "*Cut*: the machine alone, in one process: one report of each of three replicas of every "
        "changed stream, then the cut over them. What is not changed costs nothing, whatever the "
        "number of streams."
    )
    cuts = [
        (
            name.removeprefix("cut, "),
            f"{found['microseconds']:,.0f}",
            f"{found['microseconds_per_stream']:,.1f}",
            f"{found['cuts_per_second']:,.1f}",
            f"{found['replica_reports_per_second']:,.0f}",
        )
        for name, found in figures.items()
        if name.startswith("cut, ")
    ]
    cut_headers = ("changed", "µs per cut", "µs per changed stream", "cuts/s", "replica reports/s")
    group_note = (
        "*Group*: three metadata nodes in one process, messages encoded and decoded as on the "
        "wire, every Raft write synced. From the reports of three storage nodes (ten streams "
        "each) until all of them have their commit results; the three nodes work and sync one "
        "after the other, so a real group, where they do so side by side, is faster."
    )
    groups = [
        (
            name.removeprefix("group, "),
            f"{found['p50_ms']:.2f}",
            f"{found['p99_ms']:.2f}",
            f"{found['rounds_per_second']:,.0f}",
        )
        for name, found in figures.items()
        if name.startswith("group, ")
    ]
    group_headers = ("group of", "p50 ms", "p99 ms", "rounds/s, one at a time")
    parts = (cut_note, table(cut_headers, cuts), group_note, table(group_headers, groups))
    return "\n\n".join(parts)
