"""Compares what the replicas of a log stream hold in the same places.  No state.

C1  a place that replicas hold different entries in is in a finding that names the versions
C2  the runs of a stream hold each LLSN that any replica has once, with the GLSN that most have
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.pipeline.auditing.findings import Finding, FindingKind
from tidelog.pipeline.auditing.rows import (
    GLSN_BUCKET_BITS,
    RUNS,
    Found,
    Told,
    bucket_of,
    told_rows,
)

FINDINGS_MAX: Final = 100
"""Of one bucket; more are only counted."""
I64 = NDArray[np.int64]


class Entries(NamedTuple):
    """Entries of all replicas in some places, sorted by LLSN, then by node."""

    node: I64
    llsn: I64
    glsn: I64
    term: I64
    digest_high: I64
    digest_low: I64

    @classmethod
    def of(cls, table: Any) -> Entries:
        """The rows of a table of ``rows.ENTRIES``."""
        columns = [table.column(name).to_numpy() for name in cls._fields]
        order = np.lexsort((columns[0], columns[1]))
        return cls(*(column[order] for column in columns))

    def within(self, bucket: int) -> Entries:
        """Without what is there only for its neighbours."""
        mine = bucket_of(self.llsn) == bucket
        return Entries(*(column[mine] for column in self))


class Divergence(NamedTuple):
    """Places ``[begin, end)`` in which the same nodes hold the same, and others another thing."""

    begin: int
    end: int
    versions: tuple[tuple[int, ...], ...]
    """Nodes that agree with one another; the largest group first."""
    differs: tuple[str, ...]
    """``content``, ``GLSN`` or ``term``."""


def compare(table: Any, topics: dict[int, str]) -> Any:
    """Compare one bucket: a table of ``rows.ENTRIES`` in, one of ``rows.RUNS`` out."""
    stream = table.column("stream")[0].as_py()
    is_told = table.column("told").is_valid()
    passed = table.filter(is_told).select(["stream", "told"])
    found: list[Told] = []
    batches = [_passed_on(passed)]
    entries = table.filter(pc.invert(is_told))
    if entries.num_rows:
        topic, rows = topics.get(stream, ""), Entries.of(entries)
        llsns, glsns = chosen(rows)
        found += _out_of_order(stream, topic, llsns, glsns)
        bucket = entries.column("bucket")[0].as_py()
        found += _findings(stream, topic, divergences(rows.within(bucket)))
        mine = bucket_of(llsns) == bucket
        batches.append(_run_rows(stream, runs_of(llsns[mine], glsns[mine])))
    batches.append(told_rows(found, RUNS, stream))
    return pa.Table.from_batches([batch for batch in batches if batch.num_rows], RUNS)


# -- versions of one place (C1) ------------------------------------------------------------------


def divergences(rows: Entries) -> list[Divergence]:
    """Where replicas hold different entries, as ranges."""
    found: list[Divergence] = []
    for begin, end in _places(rows, _differing(rows)):
        llsn = int(rows.llsn[begin])
        versions, differs = _versions(rows, begin, end)
        last = found[-1] if found else None
        if last and last.end == llsn and last[2:] == (versions, differs):
            found[-1] = last._replace(end=llsn + 1)
        else:
            found.append(Divergence(llsn, llsn + 1, versions, differs))
    return found


def _differing(rows: Entries) -> I64:
    """The LLSNs that two neighbouring rows hold different entries for."""
    same_place = rows.llsn[1:] == rows.llsn[:-1]
    differ = np.zeros(len(same_place), np.bool_)
    for column in (rows.glsn, rows.term, rows.digest_high, rows.digest_low):
        differ |= column[1:] != column[:-1]
    found: I64 = np.unique(rows.llsn[1:][same_place & differ])
    return found


def _places(rows: Entries, llsns: I64) -> Iterator[tuple[int, int]]:
    begins = np.searchsorted(rows.llsn, llsns, "left")
    ends = np.searchsorted(rows.llsn, llsns, "right")
    return zip(begins.tolist(), ends.tolist(), strict=True)


def _versions(
    rows: Entries, begin: int, end: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for i in range(begin, end):
        version = tuple(int(column[i]) for column in rows[2:])
        groups.setdefault(version, []).append(int(rows.node[i]))
    columns = list(zip(*groups, strict=True))
    differs = [
        name
        for name, some in (("content", columns[2:]), ("GLSN", columns[:1]), ("term", columns[1:2]))
        if any(len(set(column)) > 1 for column in some)
    ]
    nodes = sorted(groups.values(), key=lambda group: (-len(group), group))
    return tuple([tuple(group) for group in nodes]), tuple(differs)


# -- the order of the stream (C2) ----------------------------------------------------------------


def chosen(rows: Entries) -> tuple[I64, I64]:
    """Each LLSN once, with the GLSN that most replicas give it."""
    first = np.flatnonzero(np.diff(rows.llsn, prepend=-1))
    llsns, glsns = rows.llsn[first], rows.glsn[first]
    ends = np.append(first[1:], len(rows.llsn))
    low, high = (reduce.reduceat(rows.glsn, first) for reduce in (np.minimum, np.maximum))
    for i in np.flatnonzero(low != high):
        values, counts = np.unique(rows.glsn[first[i] : ends[i]], return_counts=True)
        glsns[i] = values[counts.argmax()]
    return llsns, glsns


def runs_of(llsns: I64, glsns: I64) -> tuple[I64, I64, I64]:
    """(LLSN, GLSN, length) of the runs; none of them crosses the edge of a bucket of GLSNs."""
    if not len(llsns):
        return llsns, glsns, llsns
    breaks = (np.diff(llsns) != 1) | (np.diff(glsns) != 1)
    breaks |= np.diff(glsns >> GLSN_BUCKET_BITS) != 0
    first = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    lengths = np.diff(np.append(first, len(llsns)))
    return llsns[first], glsns[first], lengths


def _out_of_order(stream: int, topic: str, llsns: I64, glsns: I64) -> list[Told]:
    places = np.flatnonzero(np.diff(glsns) <= 0)
    findings = [
        Finding(
            kind=FindingKind.ORDER,
            topic=topic,
            stream=stream,
            llsn_begin=int(llsns[i]),
            llsn_end=int(llsns[i + 1]) + 1,
            what=f"LLSN {llsns[i]} has GLSN {glsns[i]}, LLSN {llsns[i + 1]} has {glsns[i + 1]}",
        )
        for i in places[:FINDINGS_MAX]
    ]
    return bounded(findings, len(places))


# -- rows ----------------------------------------------------------------------------------------


def _findings(stream: int, topic: str, diverged: Sequence[Divergence]) -> list[Told]:
    findings = [
        Finding(
            kind=FindingKind.DIVERGED,
            topic=topic,
            stream=stream,
            nodes=tuple([group[0] for group in one.versions]),
            llsn_begin=one.begin,
            llsn_end=one.end,
            what=_told_of(one),
        )
        for one in diverged[:FINDINGS_MAX]
    ]
    return bounded(findings, len(diverged))


def _told_of(one: Divergence) -> str:
    verb = "differs" if len(one.differs) == 1 else "differ"
    versions = " against ".join(f"node {', '.join(map(str, group))}" for group in one.versions)
    return f"{', '.join(one.differs)} {verb}: {versions}"


def bounded(findings: Sequence[Finding], count: int) -> list[Told]:
    """The findings, the last of which counts those that are not among them."""
    told: list[Told] = [Found(finding) for finding in findings]
    if count > len(findings):
        told[-1] = Found(findings[-1], count - len(findings))
    return told


def _run_rows(stream: int, runs: tuple[I64, I64, I64]) -> Any:
    count = len(runs[0])
    arrays = [pa.array(column, pa.int64()) for column in (np.full(count, stream), *runs)]
    return pa.RecordBatch.from_arrays([*arrays, pa.nulls(count, pa.binary())], schema=RUNS)


def _passed_on(table: Any) -> Any:
    """Rows that carry words, in the shape of the next table."""
    count = table.num_rows
    zeros = pa.array(np.zeros(count, np.int64))
    told = table.column("told").combine_chunks()
    arrays = [table.column("stream").combine_chunks(), zeros, zeros, zeros, told]
    return pa.RecordBatch.from_arrays(arrays, schema=RUNS)
