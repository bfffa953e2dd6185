"""``materialize``: the change log of a topic becomes a table with its current state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from tidelog.errors import BadOption
from tidelog.pipeline.materialization.progress import BatchProgress, MaterializeSummary
from tidelog.pipeline.requirements import check_requirements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.materialization.missed_deletes import OnMissedDeletes

TableFormat = Literal["delta", "parquet"]
DEFAULT_MASTER: Final = "local[*]"


def materialize(
    source_url: str,
    table_path: str | Path,
    *,
    format: TableFormat = "delta",
    topic: str | None = None,
    checkpoint: str | Path | None = None,
    once: bool = True,
    max_records_per_trigger: int | None = None,
    on_missed_deletes: OnMissedDeletes = "rebuild",
    progress: Callable[[BatchProgress], None] | None = None,
    spark: SparkSession | None = None,
    spark_master: str = DEFAULT_MASTER,
    timeout: float = 60.0,
) -> MaterializeSummary:
    """Bring the table at ``table_path`` up to the log: the newest PUT of each key is a row of it.

    ``once`` ends at the position that the log has now; otherwise the table follows the log until
    the query is stopped or interrupted.  The table knows how far it is: a run goes on there,
    whatever became of ``checkpoint`` (default: below the table), and takes no entry twice.
    APPEND entries are not part of the table.

    A table that lags may find that the log's compaction dropped deletes which it had not read.
    Then it is rebuilt from the beginning of the log, or the run fails with ``MissedDeletes``.
    """
    if format not in get_args(TableFormat):
        raise BadOption(f"format is {format!r}: use one of {', '.join(get_args(TableFormat))}")
    if on_missed_deletes not in ("rebuild", "fail"):
        raise BadOption(f"on_missed_deletes is {on_missed_deletes!r}: use rebuild or fail")
    if max_records_per_trigger is not None and max_records_per_trigger < 1:
        raise BadOption(f"max_records_per_trigger is {max_records_per_trigger}: use at least 1")
    place = _local(table_path, "table_path")
    below = place / "_checkpoint" if checkpoint is None else _local(checkpoint, "checkpoint")
    check_requirements(delta=format == "delta", master=spark_master, spark=spark)

    # What follows needs the modules that were just found to be there.
    from tidelog.pipeline.materialization.running import Work, run  # noqa: PLC0415
    from tidelog.pipeline.session import session  # noqa: PLC0415

    work = Work(
        url=source_url,
        topic=topic,
        table=place,
        format=format,
        checkpoint=below,
        once=once,
        max_records_per_trigger=max_records_per_trigger,
        on_missed_deletes=on_missed_deletes,
        timeout=timeout,
    )
    with session(spark, spark_master, "materialize") as opened:
        return run(opened, work, progress)


def _local(path: str | Path, name: str) -> Path:
    text = str(path)
    if "://" in text:
        raise BadOption(f"{name} is {text!r}: tables are made in directories of this machine")
    found = Path(text).absolute()
    if found.exists() and not found.is_dir():
        raise BadOption(f"{name} is {text!r}, which is no directory")
    return found
