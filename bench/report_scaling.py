"""Curves of what a record costs as Markdown and plots.  No state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.plots import PLOTS, Panel, line_chart
from bench.scaling_points import Curve, Point
from bench.tables import table

Curves = Mapping[Curve, Sequence[Point]]

_NOTE: Final = (
    "Three nodes on this machine, each in its process with all roles and default settings, three "
    "replicas of everything; every record is ORDERED. One thing grows, the rest stays. Lean "
    "clients send prepared bytes to leaders. *Node µs*: processor time of all three nodes for each "
    "record. *Alone*: the only append under way."
)
_NOTES: Final = {
    Curve.STREAMS: (
        "One topic. Appends of one record of 100 B go to one log stream after the other, 16 under "
        "way to each node that leads some. *Idle*: processor time of all nodes while nobody "
        "appends, as a share of one core."
    ),
    Curve.CLIENTS: (
        "Connections to the leader of one log stream, each with one append of 100 B in flight."
    ),
    Curve.SIZES: "One record in an append, 4 under way, one log stream.",
    Curve.LENGTH: (
        "One log stream, batches of 1,000 records of 100 B, 8 under way. *Memory* is that of the "
        "node that has most, without and with the pages of files that it maps. *Page*: 1,000 "
        "records, read by Tidelog's client. *Restart*: all three nodes are killed; from their "
        "start until they serve, and until an append is acknowledged."
    ),
}
_COLUMNS: Final[dict[Curve, tuple[tuple[str, str, str], ...]]] = {
    Curve.STREAMS: (
        ("node µs", "node_cpu_us", ",.1f"),
        ("records/s", "records_per_second", ",.0f"),
        ("alone: p50 µs", "p50_us", ",.0f"),
        ("alone: p99 µs", "p99_us", ",.0f"),
        ("idle", "idle_cpu_share", ".1%"),
    ),
    Curve.CLIENTS: (
        ("node µs", "node_cpu_us", ",.1f"),
        ("records/s", "records_per_second", ",.0f"),
        ("p50 µs", "p50_us", ",.0f"),
        ("p99 µs", "p99_us", ",.0f"),
    ),
    Curve.SIZES: (
        ("node µs", "node_cpu_us", ",.1f"),
        ("records/s", "records_per_second", ",.0f"),
        ("MB/s", "megabytes_per_second", ",.1f"),
        ("alone: p50 µs", "p50_us", ",.0f"),
        ("alone: p99 µs", "p99_us", ",.0f"),
    ),
    Curve.LENGTH: (
        ("node µs", "node_cpu_us", ",.2f"),
        ("records/s", "records_per_second", ",.0f"),
        ("memory MB", "own_megabytes", ",.0f"),
        ("with files", "resident_megabytes", ",.0f"),
        ("newest page ms", "newest_page_ms", ",.2f"),
        ("middle page ms", "middle_page_ms", ",.2f"),
        ("restart: serves after s", "ready_seconds", ",.1f"),
        ("appends after s", "restart_seconds", ",.1f"),
    ),
}
_PANELS: Final[dict[Curve, tuple[tuple[str, str], ...]]] = {
    Curve.STREAMS: (("node_cpu_us", "node µs per record"), ("p50_us", "one append alone: p50 µs")),
    Curve.CLIENTS: (("node_cpu_us", "node µs per record"), ("p99_us", "p99 µs")),
    Curve.SIZES: (("megabytes_per_second", "MB/s"), ("p50_us", "one append alone: p50 µs")),
    Curve.LENGTH: (
        ("node_cpu_us", "node µs per record"),
        ("own_megabytes", "memory of a node, MB"),
        ("middle_page_ms", "page in the middle, ms"),
        ("restart_seconds", "restart, s"),
    ),
}
_UNITS: Final = {Curve.SIZES: " (bytes)", Curve.LENGTH: " (records)"}


def scaling_section(curves: Curves) -> str:
    """A table and a plot for each curve."""
    parts = [_NOTE]
    for curve, points in curves.items():
        title = _title(curve)
        headers = (title + _UNITS.get(curve, ""), *(name for name, _, _ in _COLUMNS[curve]), "")
        rows = [_row(curve, point) for point in points]
        picture = f"![{title}]({PLOTS}/{plot_name(curve)})"
        parts.append(f"### {title}\n\n{_NOTES[curve]}\n\n{table(headers, rows)}\n\n{picture}")
    return "\n\n".join(parts)


def _row(curve: Curve, point: Point) -> tuple[str, ...]:
    figures = [
        format(point.figures[name], shown) if name in point.figures else ""
        for _, name, shown in _COLUMNS[curve]
    ]
    return f"{point.value:,}", *figures, point.cut_short


def _title(curve: Curve) -> str:
    return curve.value[:1].upper() + curve.value[1:]


def scaling_plots(curves: Curves) -> dict[str, str]:
    """Files by their names, one for each curve."""
    return {plot_name(curve): _plot(curve, points) for curve, points in curves.items()}


def plot_name(curve: Curve) -> str:
    return f"scaling-{curve.value.replace(' ', '-')}.svg"


def _plot(curve: Curve, points: Sequence[Point]) -> str:
    panels = [
        Panel(
            text,
            [(point.value, point.figures[name]) for point in points if name in point.figures],
        )
        for name, text in _PANELS[curve]
    ]
    return line_chart(f"{_title(curve)}{_UNITS.get(curve, '')}", panels)
