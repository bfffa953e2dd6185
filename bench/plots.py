"""Charts as SVG files that stand alone.  No state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import Final

PLOTS: Final = "plots"
"""The directory of plots, beside the page that shows them."""
WIDTH: Final = 860
LABEL_WIDTH: Final = 330
VALUE_WIDTH: Final = 110
ROW_HEIGHT: Final = 26
TOP: Final = 48
BOTTOM: Final = 16
PANEL_HEIGHT: Final = 170
PANEL_LINES: Final = 100
"""What a panel's lines take of its height; the rest is for its title and for numbers."""
SIDE: Final = 70
_STYLE: Final = """
  .page { fill: #ffffff } text { fill: #1f2328; font: 13px system-ui, sans-serif }
  .title { font-weight: 600; font-size: 15px } .note { fill: #59636e; font-size: 12px }
  .line { fill: none; stroke: #0f766e; stroke-width: 2 } .axis { stroke: #d1d9e0 }
  .ours { fill: #0f766e } .other { fill: #a3b3c2 } .value { font-variant-numeric: tabular-nums }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #9198a1 }
    .ours { fill: #2dd4bf } .other { fill: #57606a }
    .line { stroke: #2dd4bf } .axis { stroke: #3d444d }
  }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    is_ours: bool = False


def bar_chart(title: str, note: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars on a scale from zero, in the order that they are given."""
    largest = max((bar.value for bar in bars), default=0.0) or 1.0
    rows = [_row(bar, TOP + number * ROW_HEIGHT, largest) for number, bar in enumerate(bars)]
    return _picture(title, note, TOP + ROW_HEIGHT * len(bars) + BOTTOM, rows)


def _picture(title: str, note: str, height: int, content: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="16" y="22">{escape(title)}</text>',
        f'<text class="note" x="16" y="39">{escape(note)}</text>',
        *content,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _row(bar: Bar, top: int, largest: float) -> str:
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    width = max(room * bar.value / largest, 1.0)
    kind = "ours" if bar.is_ours else "other"
    middle = top + ROW_HEIGHT / 2 + 4.5
    return (
        f'<text x="{LABEL_WIDTH - 10}" y="{middle}" text-anchor="end">{escape(bar.label)}</text>'
        f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top + 4}" width="{width:.1f}" '
        f'height="{ROW_HEIGHT - 8}" rx="2"/>'
        f'<text class="value" x="{LABEL_WIDTH + width + 8:.1f}" y="{middle}">'
        f"{_number(bar.value)}</text>"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


# -- lines -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure over what grows."""

    label: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, panels: Sequence[Panel]) -> str:
    """Panels one below the other; what grows by its logarithm, figures on a scale from zero."""
    places = [x for panel in panels for x, _ in panel.points]
    bounds = (min(places, default=1.0), max(places, default=1.0))
    content = [
        part
        for number, panel in enumerate(panels)
        for part in _panel(panel, TOP + number * PANEL_HEIGHT, bounds)
    ]
    note = "each step to the right is as many times more"
    return _picture(title, note, TOP + PANEL_HEIGHT * len(panels) + BOTTOM, content)


def _panel(panel: Panel, top: int, bounds: tuple[float, float]) -> list[str]:
    largest = max((y for _, y in panel.points), default=0.0) or 1.0
    floor = top + PANEL_HEIGHT - 34
    places = [
        (_across(x, bounds), floor - PANEL_LINES * y / largest, x, y) for x, y in panel.points
    ]
    line = " ".join(f"{left:.1f},{down:.1f}" for left, down, _, _ in places)
    parts = [
        f'<text class="note" x="16" y="{top + 14}">{escape(panel.label)}</text>',
        f'<line class="axis" x1="{SIDE}" y1="{floor}" x2="{WIDTH - SIDE}" y2="{floor}"/>',
        f'<polyline class="line" points="{line}"/>',
    ]
    for left, down, x, y in places:
        parts.append(
            f'<circle class="ours" cx="{left:.1f}" cy="{down:.1f}" r="4"/>'
            f'<text class="value" x="{left:.1f}" y="{down - 9:.1f}" text-anchor="middle">'
            f"{_number(y)}</text>"
            f'<text class="note" x="{left:.1f}" y="{floor + 17}" text-anchor="middle">'
            f"{x:,.0f}</text>"
        )
    return parts


def _across(x: float, bounds: tuple[float, float]) -> float:
    least, most = bounds
    share = log10(x / least) / log10(most / least) if most > least else 0.5
    return SIDE + (WIDTH - 2 * SIDE) * share
