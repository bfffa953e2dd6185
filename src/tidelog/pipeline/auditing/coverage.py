"""Whether every GLSN of a topic was given to one entry, and to one only.  No state.

U1  a GLSN that two entries have is in a finding that names both of them
U2  a GLSN that no entry has is in a finding, if it lies where none may be missing
U3  an entry with a GLSN that was never given is in a finding
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.pipeline.auditing.comparing import bounded
from tidelog.pipeline.auditing.findings import Cell, Finding, FindingKind
from tidelog.pipeline.auditing.rows import GLSN_BUCKET_BITS, TOLD, Covered, Told, told_rows

FINDINGS_MAX: Final = 100
"""Of one bucket and kind; more are only counted."""
CELLS: Final = 240
"""Into how many parts a topic's GLSNs are cut for plots."""
I64 = NDArray[np.int64]


class TopicOrder(msgspec.Struct, frozen=True):
    """What is to be found of a topic."""

    topic: str
    glsn_end: int
    dense_from: int

    @property
    def cell_width(self) -> int:
        return max(1, -(-(self.glsn_end - 1) // CELLS))


class Runs(NamedTuple):
    """Runs of all log streams of a topic, sorted by GLSN."""

    glsn: I64
    length: I64
    stream: I64
    llsn: I64

    @classmethod
    def of(cls, table: Any) -> Runs:
        columns = [table.column(name).to_numpy() for name in cls._fields]
        order = np.lexsort((columns[2], columns[0]))
        return cls(*(column[order] for column in columns))

    @property
    def end(self) -> I64:
        """Where each run ends."""
        return self.glsn + self.length

    def up_to(self, glsn_end: int) -> Runs:
        """What of the runs lies below a GLSN."""
        kept = self.glsn < glsn_end
        length = np.minimum(self.length, glsn_end - self.glsn)
        return Runs(self.glsn[kept], length[kept], self.stream[kept], self.llsn[kept])


class Spans(NamedTuple):
    """Ranges of GLSNs, ascending."""

    begin: I64
    end: I64


def cover(table: Any, orders: dict[str, TopicOrder]) -> Any:
    """Look at one bucket: runs with their topic and bucket in, a table of ``rows.TOLD`` out."""
    order = orders[table.column("topic")[0].as_py()]
    number = table.column("bucket")[0].as_py()
    begin, end = bucket_range(number, order.glsn_end)
    told = look_at(Runs.of(table), order, begin, end)
    return pa.Table.from_batches([told_rows(told, TOLD)], TOLD)


def bucket_range(number: int, glsn_end: int) -> tuple[int, int]:
    """The GLSNs of a bucket, as far as they were given."""
    begin, end = number << GLSN_BUCKET_BITS, (number + 1) << GLSN_BUCKET_BITS
    return max(begin, 1), max(min(end, glsn_end), 1)


def look_at(runs: Runs, order: TopicOrder, begin: int, end: int) -> list[Told]:
    """All that is to be said of the GLSNs ``[begin, end)``, and of runs that reach beyond."""
    beyond = np.flatnonzero(runs.end > order.glsn_end)
    told = bounded([_never_given(order, runs, int(i)) for i in beyond[:FINDINGS_MAX]], len(beyond))
    if begin >= end:
        return told
    runs = runs.up_to(end)
    spans = _merged(runs)
    second = _second_ones(runs)
    told += bounded(
        [_doubled(order.topic, runs, int(i)) for i in second[:FINDINGS_MAX]], len(second)
    )
    lost = _gaps(spans, max(begin, min(order.dense_from, end)), end)
    told += bounded([missing(order.topic, *one) for one in lost[:FINDINGS_MAX]], len(lost))
    present = int((spans.end - spans.begin).sum())
    doubled = Spans(runs.glsn[second], _doubled_end(runs, second))
    cells = tuple(_cells(spans, doubled, order.cell_width, begin, end))
    return [*told, Covered(order.topic, present, begin, end, cells)]


def _second_ones(runs: Runs) -> NDArray[np.intp]:
    """The runs that begin within one before them."""
    reach = np.maximum.accumulate(runs.end)
    return np.flatnonzero(runs.glsn[1:] < reach[:-1]) + 1


def _doubled_end(runs: Runs, second: NDArray[np.intp]) -> I64:
    reach = np.maximum.accumulate(runs.end)
    return np.minimum(runs.end[second], reach[second - 1])


def _merged(runs: Runs) -> Spans:
    """The GLSNs that are there."""
    if not len(runs.glsn):
        return Spans(runs.glsn, runs.glsn)
    reach = np.maximum.accumulate(runs.end)
    first = np.concatenate(([0], np.flatnonzero(runs.glsn[1:] > reach[:-1]) + 1))
    last = np.append(first[1:], len(runs.glsn)) - 1
    return Spans(runs.glsn[first], reach[last])


def _gaps(spans: Spans, begin: int, end: int) -> list[tuple[int, int]]:
    """What lies between the spans in ``[begin, end)``."""
    firsts = np.concatenate(([begin], np.clip(spans.end, begin, end)))
    lasts = np.concatenate((np.clip(spans.begin, begin, end), [end]))
    empty = firsts < lasts
    return list(zip(firsts[empty].tolist(), lasts[empty].tolist(), strict=True))


def _doubled(topic: str, runs: Runs, i: int) -> Finding:
    """Run ``i`` begins within one before it."""
    other = int(runs.end[:i].argmax())  # The one that reaches farthest.
    begin, end = int(runs.glsn[i]), int(min(runs.end[i], runs.end[other]))
    llsn = int(runs.llsn[other]) + begin - int(runs.glsn[other])
    one, two = int(runs.stream[other]), int(runs.stream[i])
    return Finding(
        kind=FindingKind.DOUBLED,
        topic=topic,
        stream=one,
        llsn_begin=llsn,
        llsn_end=llsn + end - begin,
        glsn_begin=begin,
        glsn_end=end,
        what=f"log stream {one} has it at LLSN {llsn}, log stream {two} at {runs.llsn[i]}",
    )


def _never_given(order: TopicOrder, runs: Runs, i: int) -> Finding:
    begin, end = max(int(runs.glsn[i]), order.glsn_end), int(runs.end[i])
    llsn = int(runs.llsn[i]) + begin - int(runs.glsn[i])
    return Finding(
        kind=FindingKind.ORDER,
        topic=order.topic,
        stream=int(runs.stream[i]),
        llsn_begin=llsn,
        llsn_end=llsn + end - begin,
        glsn_begin=begin,
        glsn_end=end,
        what=f"the topic has given no GLSN above {order.glsn_end - 1}",
    )


def missing(topic: str, begin: int, end: int) -> Finding:
    """GLSNs that were given and that no entry has."""
    return Finding(
        kind=FindingKind.MISSING_GLSNS,
        topic=topic,
        glsn_begin=begin,
        glsn_end=end,
        what="no log stream of the topic has an entry there",
    )


# -- plots ---------------------------------------------------------------------------------------


def _cells(spans: Spans, doubled: Spans, width: int, begin: int, end: int) -> Iterator[Cell]:
    """The parts of a plot that lie in ``[begin, end)``; an edge of it may cut one in two."""
    if begin >= end:
        return
    inner = np.arange((begin - 1) // width + 1, (end - 2) // width + 1) * width + 1
    edges = np.concatenate(([begin], inner, [end]))
    present, twice = (np.diff(_below(one, edges)).tolist() for one in (spans, doubled))
    for low, high, here, again in zip(edges[:-1], edges[1:], present, twice, strict=True):
        yield Cell(int(low), int(high), here, again)


def _below(spans: Spans, edges: I64) -> I64:
    """How many numbers of the spans lie below each edge."""
    sums = np.concatenate(([0], np.cumsum(spans.end - spans.begin)))
    places = np.searchsorted(spans.begin, edges)
    ends = np.concatenate(([0], spans.end))
    below: I64 = sums[places] - np.clip(ends[places] - edges, 0, None)
    return below
