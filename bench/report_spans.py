"""Figures of where a record's time goes as Markdown.  No state."""

from __future__ import annotations

from typing import Final

from bench.tables import table

Figures = dict[str, dict[str, float]]

_WHOLE: Final = "whole"
_BESIDE: Final = ("beside: ", "with ")
_NOTE: Final = (
    "Three nodes on this machine with all roles and default settings, one log stream with three "
    "replicas, records of 100 B, each for itself. A lean client, which sends prepared bytes to the "
    "leader of the log stream, has its receipt when the record is ORDERED. The nodes' own metrics "
    "are read before and after; spans that nobody measures are differences of means, so that all "
    "of them add up to the whole. An indented span is a part of the one above it. Medians of nodes "
    "are read off the buckets of their histograms. Under a fixed rate appends wait for the cut "
    "that is under way; that time is in *cut arrives → ORDERED told*."
)


def spans_section(figures: Figures) -> str:
    """One table for each work, then what encoding costs."""
    works: dict[str, dict[str, dict[str, float]]] = {}
    for name, found in figures.items():
        work, _, span = name.partition(": ")
        works.setdefault(work, {})[span] = found
    tables = [_table(work, spans) for work, spans in works.items()]
    return "\n\n".join([_NOTE, *tables])


def _table(work: str, spans: dict[str, dict[str, float]]) -> str:
    whole = spans.get(_WHOLE)
    rows = [
        (
            _indented(span),
            f"{found['mean_us']:,.0f}",
            f"{found['p50_us']:,.0f}" if "p50_us" in found else "",
            _share(span, found, whole),
        )
        for span, found in spans.items()
    ]
    return table((work, "mean µs", "p50 µs", "of the whole"), rows)


def _share(span: str, found: dict[str, float], whole: dict[str, float] | None) -> str:
    if whole is None or span.startswith((_WHOLE, *_BESIDE)):
        return ""
    return f"{found['mean_us'] / whole['mean_us']:.0%}"


def _indented(span: str) -> str:
    """Markdown drops spaces at the beginning of a cell."""
    text = span.lstrip("- ")
    return "&emsp;" * span[: len(span) - len(text)].count("-") + text
