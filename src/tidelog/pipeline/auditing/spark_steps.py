"""The two steps of an audit that are Spark's: all entries are compared, then all GLSNs.

What the first one finds is kept by Spark for the second one, in memory or on its disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.pipeline.arrow_tables import grouped
from tidelog.pipeline.auditing.comparing import compare
from tidelog.pipeline.auditing.coverage import TopicOrder, cover
from tidelog.pipeline.auditing.findings import AuditProgress
from tidelog.pipeline.auditing.reading import run_tasks
from tidelog.pipeline.auditing.rows import (
    BUCKET_BITS,
    ENTRIES_DDL,
    GLSN_BUCKET_BITS,
    RUNS_DDL,
    TOLD_DDL,
    Lost,
    Told,
    decode_told,
)
from tidelog.pipeline.auditing.task_watch import watched
from tidelog.pipeline.auditing.tasks import WAL, ReadTask, Task

TOLD_MAX: Final = 100_000
"""Words of tasks that the driver takes in: tallies of all tasks, and findings."""
BUCKETS_PER_PARTITION: Final = 4
PARTITIONS_MAX: Final = 10_000


class SparkSteps:
    """``running.Steps`` on Spark.  A context manager: at its end Spark may forget what it kept."""

    def __init__(
        self,
        spark: SparkSession,
        topic_of: Mapping[int, str],
        *,
        log_id: bytes,
        timeout: float,
        progress: Callable[[AuditProgress], None],
    ) -> None:
        """``topic_of``: the topic of each log stream.  ``progress`` is called in any thread."""
        self._spark = spark
        self._progress = progress
        self._topic_of = dict(topic_of)
        self._log_id = log_id
        self._timeout = timeout
        self._runs: DataFrame | None = None

    def compare(self, tasks: Sequence[Task]) -> list[Told]:
        """Read all replicas, each from its own node, and hold them against one another."""
        entries = self._entries(list(tasks))
        topic_of = self._topic_of

        def compare_bucket(table: Any) -> Any:
            return compare(table, topic_of)

        buckets = entries.repartition(_partitions(_buckets(tasks)), "stream", "bucket")
        compared = buckets.groupBy("stream", "bucket").applyInArrow(
            grouped(compare_bucket), RUNS_DDL
        )
        self._runs = compared.persist()
        with watched(self._spark, "audit: compare replicas", self._tell):
            return _told(self._runs)

    def _tell(self, done: int, tasks: int) -> None:
        self._progress(AuditProgress("read", f"{done:,} of {tasks:,} tasks of Spark are done"))

    def _entries(self, tasks: list[Task]) -> DataFrame:
        log_id, timeout = self._log_id, self._timeout

        def read(batches: Iterable[Any]) -> Iterator[Any]:
            numbers = (number for batch in batches for number in batch.column(0).to_pylist())
            return run_tasks(numbers, tasks, log_id, timeout)

        return self._spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(read, ENTRIES_DDL)

    def cover(self, orders: Mapping[str, TopicOrder]) -> list[Told]:
        """Look at the GLSNs of what was compared."""
        if self._runs is None or not self._topic_of:
            return []
        known = dict(orders)

        def cover_bucket(table: Any) -> Any:
            return cover(table, known)

        pairs = list(self._topic_of.items())
        topics = self._spark.createDataFrame(pairs, "stream BIGINT, topic STRING")
        runs = self._runs.where("told IS NULL").join(F.broadcast(topics), "stream")
        runs = runs.withColumn("bucket", F.shiftright("glsn", GLSN_BUCKET_BITS))
        count = sum((one.glsn_end >> GLSN_BUCKET_BITS) + 1 for one in known.values())
        runs = runs.repartition(_partitions(count), "topic", "bucket")
        covered = runs.groupBy("topic", "bucket").applyInArrow(grouped(cover_bucket), TOLD_DDL)
        return _told(covered)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._runs is not None:
            self._runs.unpersist()


def _buckets(tasks: Iterable[Task]) -> int:
    """In how many buckets entries are compared."""
    ends: dict[int, int] = {}
    for task in tasks:
        if isinstance(task, ReadTask):
            ends[task.stream] = max(ends.get(task.stream, 0), task.end)
    return sum((end >> BUCKET_BITS) + 1 for end in ends.values())


def _partitions(buckets: int) -> int:
    """As many as there is work for: those of a session may be far too many for a small log."""
    return min(max(-(-buckets // BUCKETS_PER_PARTITION), 1), PARTITIONS_MAX)


def _told(rows: DataFrame) -> list[Told]:
    words = rows.where("told IS NOT NULL").select("told")
    found: list[Told] = [
        decode_told(bytes(row.told)) for row in words.limit(TOLD_MAX + 1).collect()
    ]
    if len(found) > TOLD_MAX:
        found.append(Lost(WAL, 0, f"tasks had more than {TOLD_MAX:,} things to tell"))
    return found
