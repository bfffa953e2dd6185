"""A plan for all log streams of a topic, computed by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.core.compaction.explain import StorageDelete
from tidelog.core.compaction.live import live_storage_deletes
from tidelog.formats.entry import Kind
from tidelog.pipeline.arrow_tables import grouped
from tidelog.pipeline.compaction_plan.judging import (
    SHADOWING,
    VERDICT_COLUMNS,
    Basis,
    join_verdicts,
    judge,
    judge_others,
)
from tidelog.pipeline.compaction_plan.key_rows import (
    ENTRY_COLUMNS,
    ROW_COLUMNS,
    rows_of_entries,
    words,
)
from tidelog.pipeline.log_options import log_options

BUCKET_ROWS: Final = 1 << 19
"""How many entries a bucket gets, about, unless their number is given."""
ROWS_MAX: Final = 1 << 20
"""Rows that a bucket gathers before it folds them."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is planned: positions ``[glsn_begin, glsn_end)`` of a topic under a GC boundary."""

    url: str
    topic: str
    timeout: float
    """For how many seconds tasks go on trying to reach the log."""
    glsn_begin: int
    glsn_end: int
    boundary: int


@dataclass(slots=True)
class Verdicts:
    """What is live and what is dead of one log stream."""

    live: BitMap64 = field(default_factory=BitMap64)
    dead: BitMap64 = field(default_factory=BitMap64)

    @property
    def index(self) -> int:
        """The last LLSN that was looked at."""
        return max(bits.max() for bits in (self.live, self.dead, BitMap64([0])) if bits)


class Planning:
    """Two steps, each of which Spark does: read the log once, then judge what was read."""

    def __init__(self, spark: SparkSession, scope: Scope, *, seed: int) -> None:
        """``seed`` is that of the hashes of this run."""
        self._scope = scope
        reader = spark.read.format("tidelog").schema(ENTRY_COLUMNS)
        reader = reader.options(**log_options(scope.url, scope.topic, scope.timeout))
        reader = reader.option("startingOffsets", str(scope.glsn_begin))
        reader = reader.option("endingOffsets", str(scope.glsn_end))
        # What is trimmed meanwhile needs no plan.
        entries = reader.option("failOnDataLoss", "false").load()

        def rows(batches: Iterator[Any]) -> Iterator[Any]:
            return rows_of_entries(batches, seed)

        mapped: DataFrame = entries.mapInArrow(rows, ROW_COLUMNS)
        # On disk: the rows of a large log are larger than memory, and reading it twice is slower.
        self._rows = mapped.persist(StorageLevel.DISK_ONLY)
        self._deletes: dict[int, tuple[StorageDelete, ...]] = {}

    def read(self) -> int:
        """Read the log, and remember its storage deletes; returns the number of keyed entries."""
        found = self._of_kind(Kind.DELETE_STORAGE).toArrow()
        columns = ("storage", "version_hi", "version_lo", "llsn")
        rows = zip(*(words(found, name).tolist() for name in columns), strict=True)
        deletes: dict[int, list[StorageDelete]] = {}
        for stream, (storage, high, low, llsn) in zip(
            found["stream"].to_pylist(), rows, strict=True
        ):
            delete = StorageDelete(storage, version=high << 64 | low, llsn=llsn)
            deletes.setdefault(stream, []).append(delete)
        self._deletes = {stream: tuple(each) for stream, each in deletes.items()}
        return self._of_kind(Kind.PUT, Kind.DELETE).count()

    def judge(self, buckets: int) -> dict[int, Verdicts]:
        """What is live and dead, by log stream."""
        basis = Basis(self._scope.boundary, self._deletes, ROWS_MAX)

        def judged(batches: Iterator[Any]) -> Iterator[Any]:
            return judge(batches, basis)

        keyed = self._of_kind(Kind.PUT, Kind.DELETE).repartition(buckets, "stream", "hash_hi")
        verdicts = keyed.mapInArrow(judged, VERDICT_COLUMNS)
        others = self._of_kind(Kind.APPEND).mapInArrow(judge_others, VERDICT_COLUMNS)
        joined = (
            verdicts.unionByName(others)
            .groupBy("stream", "window")
            .applyInArrow(grouped(join_verdicts), VERDICT_COLUMNS)
            .toArrow()
        )
        return self._sum_up(joined)

    def close(self) -> None:
        """Let go of what was read."""
        self._rows.unpersist()

    def _of_kind(self, *kinds: Kind) -> DataFrame:
        return self._rows.where(F.col("kind").isin([int(kind) for kind in kinds]))

    def _sum_up(self, joined: Any) -> dict[int, Verdicts]:
        found: dict[int, Verdicts] = {}
        hiding: dict[int, BitMap64] = {}
        for row in joined.to_pylist():
            if row["window"] == SHADOWING:
                hiding[row["stream"]] = BitMap64.deserialize(row["live"])
                continue
            verdicts = found.setdefault(row["stream"], Verdicts())
            verdicts.live |= BitMap64.deserialize(row["live"])
            verdicts.dead |= BitMap64.deserialize(row["dead"])
        for stream, deletes in self._deletes.items():
            verdicts = found.setdefault(stream, Verdicts())
            live = self._live_deletes(deletes, hiding.get(stream, BitMap64()))
            verdicts.live |= live
            verdicts.dead |= BitMap64([delete.llsn for delete in deletes]) - live
        return dict(sorted(found.items()))

    def _live_deletes(self, deletes: Sequence[StorageDelete], hiding: BitMap64) -> BitMap64:
        shadowed = np.array([number in hiding for number in range(len(deletes))], dtype=np.bool_)
        live = live_storage_deletes(deletes, self._scope.boundary, shadowed, trim_llsn_end=1)
        return BitMap64([deletes[number].llsn for number in np.flatnonzero(live).tolist()])
