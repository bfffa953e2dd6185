"""Plots as SVG inside an HTML page; colours come from its style.  No state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.pipeline.auditing.findings import Cell, ReplicaAudit, TopicAudit
from tidelog.pipeline.auditing.markup import Markup, element, text

STRIP_HEIGHT: Final = 26
_BAR_HEIGHT: Final = 14
_BAR_STEP: Final = 18
_STREAM_SPACE: Final = 8
_LABEL_WIDTH: Final = 150
_BARS_WIDTH: Final = 600
_DOUBLED_HEIGHT: Final = 8


# -- the total order -----------------------------------------------------------------------------


def coverage_strip(topic: TopicAudit) -> Markup:
    """The GLSNs of a topic from left to right: there, compacted, missing, given twice."""
    width = max(topic.high_watermark, 1)
    label = f"GLSNs 1 to {topic.high_watermark:,} of topic {topic.topic}"
    return element(
        "svg",
        text("title", label),
        *(one for cell in topic.cells for one in _cell(cell, topic.dense_from)),
        viewBox=f"1 0 {width} {STRIP_HEIGHT}",
        preserveAspectRatio="none",
        height=STRIP_HEIGHT,
        class_="strip",
        role="img",
        aria_label=label,
    )


def _cell(cell: Cell, dense_from: int) -> Iterator[Markup]:
    length = cell.glsn_end - cell.glsn_begin
    absent = length - cell.present
    is_lost = absent > 0 and cell.glsn_end > dense_from and _lost(cell, dense_from) > 0
    told = f"GLSN {cell.glsn_begin:,} to {cell.glsn_end - 1:,}: {cell.present:,} there"
    if absent:
        told += f", {absent:,} {'missing' if is_lost else 'compacted or trimmed'}"
    if cell.doubled:
        told += f", {cell.doubled:,} given twice"
    if is_lost:
        yield _box(cell, 0, STRIP_HEIGHT, "lost", told)
    else:
        yield _box(cell, 0, STRIP_HEIGHT, "gone", told)
        height = STRIP_HEIGHT * cell.present / length
        yield _box(cell, STRIP_HEIGHT - height, height, "there", told)
    if cell.doubled:
        yield _box(cell, 0, _DOUBLED_HEIGHT, "doubled", told)


def _lost(cell: Cell, dense_from: int) -> int:
    """How many GLSNs of a cell must be missing where none may be, at least."""
    must = cell.glsn_end - max(cell.glsn_begin, dense_from)
    return must - min(cell.present, must)


def _box(cell: Cell, top: float, height: float, kind: str, told: str) -> Markup:
    return element(
        "rect",
        text("title", told),
        x=cell.glsn_begin,
        y=f"{top:.2f}",
        width=cell.glsn_end - cell.glsn_begin,
        height=f"{height:.2f}",
        class_=kind,
    )


# -- replicas ------------------------------------------------------------------------------------


def replica_bars(replicas: Sequence[ReplicaAudit]) -> Markup:
    """Each replica of a topic's log streams: entries that are there, compacted, still to come."""
    longest = max((one.llsn_end - 1 + one.lag for one in replicas), default=0) or 1
    bars: list[Markup] = []
    top = 0
    for i, replica in enumerate(replicas):
        if i and replica.stream != replicas[i - 1].stream:
            top += _STREAM_SPACE
        bars += _bar(replica, top, _BARS_WIDTH / longest)
        top += _BAR_STEP
    width = _LABEL_WIDTH + _BARS_WIDTH
    label = "entries of each replica"
    return element(
        "svg",
        text("title", label),
        *bars,
        viewBox=f"0 0 {width} {max(top, 1)}",
        class_="bars",
        role="img",
        aria_label=label,
    )


def _bar(replica: ReplicaAudit, top: int, scale: float) -> Iterator[Markup]:
    told = (
        f"log stream {replica.stream} on node {replica.node}: {replica.entries:,} entries, "
        f"{replica.compacted:,} compacted or trimmed, {replica.lag:,} behind"
    )
    name = f"stream {replica.stream} · node {replica.node}"
    yield text("text", name, x=_LABEL_WIDTH - 8, y=top + 11, class_="label")
    left = float(_LABEL_WIDTH)
    parts = ((replica.compacted, "gone"), (replica.entries, "there"), (replica.lag, "behind"))
    for count, kind in parts:
        yield element(
            "rect",
            text("title", told),
            x=f"{left:.2f}",
            y=top,
            width=f"{count * scale:.2f}",
            height=_BAR_HEIGHT,
            class_=kind,
        )
        left += count * scale
