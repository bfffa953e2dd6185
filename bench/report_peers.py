"""Figures of Tidelog and its peers as Markdown and plots.  No state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from bench.peers.goals import goal_rows, goals_line
from bench.peers.measuring import Figures
from bench.peers.running import PeerResults, Row
from bench.peers.tidelog import Tidelog
from bench.peers.works import APPENDS, DISKS, READS, SPARK, TOTAL_ORDER, Kind, Work
from bench.plots import PLOTS, Bar, bar_chart
from bench.tables import table

OURS: Final = Tidelog.name
_NOTE: Final = (
    "Three nodes of every system on this machine, three replicas of everything, one client. In "
    "each round every system is started afresh in every variant, does all works and is stopped; "
    "the median of the rounds counts. *Durability* is what an acknowledgement promises: most peers "
    "sync nothing by default. *Lean*: a client of our own that sends prepared bytes and counts "
    "acknowledgements, where the usual client would be the bottleneck; Tidelog's sends batches "
    "that were encoded once. *Small*: each append for itself, as many under way as the system "
    "likes. *At a fixed rate*: 2,000 appends a second, begun on time whether or not the last was "
    "answered. *Consume* of Tidelog: Arrow batches in total order. *Spark*: a session of its own "
    "reads all columns that the system's source has. *Node µs*, *client µs*: time of "
    "processors for each record, of all nodes and of the client."
)
_SPACE: Final = (
    "Bytes on all disks for each byte of values and each replica, once nothing more is written. "
    "Tidelog's WAL was moved into segments by `tidelog compact run --full`; its files, which have "
    "all of their blocks from the start and are used again, are not counted."
)


def peers_section(results: PeerResults) -> str:
    """Who was measured, the goals, then a table for each work."""
    parts = [_NOTE, _systems(results)]
    if goals := goal_rows(results.figures):
        parts.append("### Against the goals\n\n" + table(("goal", "measured", "met"), goals))
    for work in (*APPENDS, *READS, TOTAL_ORDER, SPARK):
        if rows := results.figures.get(work):
            parts.append(_work_section(work, rows, results))
    if space := _space_rows(results):
        headers = ("system", "variant", *(work.name for work in DISKS))
        parts.append(f"### Space\n\n{_SPACE}\n\n{table(headers, space)}")
    parts.append(goals_line(results.figures))
    return "\n\n".join(parts)


def _systems(results: PeerResults) -> str:
    rows = [(name, version, "measured") for name, version in results.versions.items()]
    rows += [(name, "", f"left out: {why}") for name, why in results.skipped.items()]
    rows += [
        (name, "", f"has no figures for {', '.join(sorted(works))}")
        for name, works in results.not_offered.items()
    ]
    return table(("system", "release", ""), rows)


def _work_section(work: Work, rows: dict[Row, Figures], results: PeerResults) -> str:
    title = work.name[:1].upper() + work.name[1:]
    picture = f"![{title}]({PLOTS}/{plot_name(work)})"
    if work.kind in (Kind.ONE, Kind.RATE):
        text = _latency_table(rows)
    elif work.kind in (Kind.CONSUME, Kind.CONSUME_STREAMS, Kind.SPARK):
        text = _consume_table(rows, results)
    else:
        text = _append_table(rows)
    return f"### {title}\n\n{text}\n\n{picture}"


def _append_table(rows: dict[Row, Figures]) -> str:
    headers = (
        "system",
        "durability",
        "client",
        "records/s",
        "MB/s",
        "node µs",
        "client µs",
        "Tidelog is",
    )
    best = best_of_ours(rows, "records_per_second", max)
    lines = [
        (
            *_names(row),
            f"{found['records_per_second']:,.0f}",
            f"{found['megabytes_per_second']:,.1f}",
            f"{found['node_cpu_us']:,.2f}",
            f"{found['client_cpu_us']:,.2f}",
            _times(row, best, found["records_per_second"]),
        )
        for row, found in rows.items()
    ]
    return table(headers, lines)


def _latency_table(rows: dict[Row, Figures]) -> str:
    headers = ("system", "durability", "client", "p50 µs", "p99 µs", "Tidelog's p50 is")
    best = best_of_ours(rows, "p50_us", min)
    lines = [
        (
            *_names(row),
            f"{found['p50_us']:,.0f}",
            f"{found['p99_us']:,.0f}",
            _times(row, best, found["p50_us"]),
        )
        for row, found in rows.items()
    ]
    return table(headers, lines)


def _consume_table(rows: dict[Row, Figures], results: PeerResults) -> str:
    headers = ("system", "variant", "client", "order", "records/s", "Tidelog is")
    best = best_of_ours(rows, "records_per_second", max)
    lines = [
        (
            row.peer,
            row.variant.name,
            row.client,
            "total" if results.orders_streams.get(row.peer) else "of each stream",
            f"{found['records_per_second']:,.0f}",
            _times(row, best, found["records_per_second"]),
        )
        for row, found in rows.items()
    ]
    return table(headers, lines)


def _space_rows(results: PeerResults) -> list[tuple[str, ...]]:
    found: dict[tuple[str, str], dict[Work, float]] = {}
    for work in DISKS:
        for row, figures in results.figures.get(work, {}).items():
            place = found.setdefault((row.peer, row.variant.name), {})
            place[work] = figures["disk_bytes_per_byte"]
    return [
        (*names, *(f"{ratios[work]:.2f}" if work in ratios else "" for work in DISKS))
        for names, ratios in found.items()
    ]


def _names(row: Row) -> tuple[str, str, str]:
    return f"{row.peer}, {row.variant.name}", row.variant.durability, row.client


def _times(row: Row, best: float | None, value: float) -> str:
    if best is None or row.peer == OURS:
        return ""
    return f"{best / value:.2f} ×"


def best_of_ours(
    rows: dict[Row, Figures], name: str, choose: Callable[[list[float]], float]
) -> float | None:
    """Tidelog's figure at its default durability, by its better client."""
    default = Tidelog.variants[0]
    ours = [f[name] for row, f in rows.items() if row.peer == OURS and row.variant == default]
    return choose(ours) if ours else None


# -- plots -----------------------------------------------------------------------------------------


def peer_plots(results: PeerResults) -> dict[str, str]:
    """Files by their names, one for each work."""
    return {
        plot_name(work): _plot(work, results.figures[work])
        for work in (*APPENDS, *READS, TOTAL_ORDER, SPARK)
        if work in results.figures
    }


def plot_name(work: Work) -> str:
    words = work.name.replace(",", "").replace("×", "x").lower().split()
    return "peers-" + "-".join(words) + ".svg"


def _plot(work: Work, rows: dict[Row, Figures]) -> str:
    is_latency = work.kind in (Kind.ONE, Kind.RATE)
    name = "p99_us" if is_latency else "records_per_second"
    note = "p99, µs; less is better" if is_latency else "records/s; more is better"
    bars = [
        Bar(f"{row.peer}, {row.variant.name} ({row.client})", found[name], row.peer == OURS)
        for row, found in rows.items()
    ]
    return bar_chart(work.name, note, _sorted(bars, is_latency))


def _sorted(bars: Iterable[Bar], is_latency: bool) -> list[Bar]:
    return sorted(bars, key=lambda bar: bar.value, reverse=not is_latency)
