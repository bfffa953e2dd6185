"""Tables in Markdown.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [_line(headers), _line(["---"] * len(headers))]
    return "\n".join(lines + [_line(row) for row in rows])


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
