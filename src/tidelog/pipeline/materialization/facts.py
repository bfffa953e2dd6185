"""The reduced facts of a micro-batch, in the driver: what the entries of a batch come down to.

They are few next to the entries, at most one for each key, and a batch is bounded; so they are
brought to the driver once, as Arrow, and everything else starts from there.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from tidelog.pipeline.materialization.changes import (
    COUNTED,
    FACT_COLUMNS,
    FACT_SCHEMA,
    facts_of_entries,
)
from tidelog.pipeline.materialization.progress import Counts

_REMOVING: Final = pa.array(["DELETE", "DELETE_STORAGE"])


class Facts:
    """The newest fact of each key that a batch is about."""

    def __init__(self, entries: DataFrame) -> None:
        """Reduce the entries of a batch; this is where Spark reads them."""
        reduced = facts_of_entries(entries).toArrow()
        self.counts: Final = Counts(
            **{name: pc.sum(reduced[name]).as_py() or 0 for name in COUNTED}
        )
        about_keys = reduced.filter(pc.field("key").is_valid())
        self.table: Final = about_keys.select(FACT_COLUMNS)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def puts(self) -> Any:
        return self._of("PUT")

    @cached_property
    def deletes(self) -> Any:
        return self._of("DELETE")

    @cached_property
    def storage_deletes(self) -> Any:
        return self._of("DELETE_STORAGE")

    @property
    def removals(self) -> Any:
        return self.table.filter(pc.is_in(self.table["kind"], value_set=_REMOVING))

    def _of(self, kind: str) -> Any:
        return self.table.filter(pc.equal(self.table["kind"], kind))


def may_be_late(puts: Any) -> bool:
    """Whether a write may be older than one that came before it, where versions are GLSNs.

    Only the copies that compaction makes have a version that is not their own GLSN.
    """
    versions = b"".join(puts["write_version"].to_pylist())
    halves = np.frombuffer(versions, ">u8").reshape(-1, 2)
    return bool(halves[:, 0].any() or (halves[:, 1] != puts["glsn"].to_numpy()).any())


def frame_of(spark: SparkSession, facts: Any) -> DataFrame:
    """Facts of the driver as a data frame."""
    if facts.num_rows == 0:
        return spark.createDataFrame([], FACT_SCHEMA)
    return spark.createDataFrame(facts)
