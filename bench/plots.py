"""Bar charts as SVG files that stand alone.  No state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 860
LABEL_WIDTH: Final = 330
VALUE_WIDTH: Final = 110
ROW_HEIGHT: Final = 26
TOP: Final = 48
BOTTOM: Final = 16
_STYLE: Final = """
  .page { fill: #ffffff } text { fill: #1f2328; font: 13px system-ui, sans-serif }
  .title { font-weight: 600; font-size: 15px } .note { fill: #59636e; font-size: 12px }
  .ours { fill: #0f766e } .other { fill: #a3b3c2 } .value { font-variant-numeric: tabular-nums }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #9198a1 }
    .ours { fill: #2dd4bf } .other { fill: #57606a }
  }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    is_ours: bool = False


def bar_chart(title: str, note: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars on a scale from zero, in the order that they are given."""
    height = TOP + ROW_HEIGHT * len(bars) + BOTTOM
    largest = max((bar.value for bar in bars), default=0.0) or 1.0
    rows = [_row(bar, TOP + number * ROW_HEIGHT, largest) for number, bar in enumerate(bars)]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="16" y="22">{escape(title)}</text>',
        f'<text class="note" x="16" y="39">{escape(note)}</text>',
        *rows,
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
