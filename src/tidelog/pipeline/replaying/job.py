"""``replay``: the rows of a table become entries of a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.errors import BadOption
from tidelog.limits import STORAGE_ID_END
from tidelog.pipeline.replaying.progress import ReplayProgress, ReplaySummary
from tidelog.pipeline.requirements import check_requirements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
CHUNK_ROWS: Final = 1_000_000
CHUNK_ROWS_MAX: Final = 1_000_000_000


def replay(
    table: str | Path,
    target_url: str,
    *,
    topic: str | None = None,
    key: str | None = None,
    value: str | None = None,
    version: str | None = None,
    storage_id: int = 0,
    order_by: Sequence[str] = (),
    chunk_rows: int = CHUNK_ROWS,
    progress: Callable[[ReplayProgress], None] | None = None,
    spark: SparkSession | None = None,
    spark_master: str = DEFAULT_MASTER,
    timeout: float = 60.0,
) -> ReplaySummary:
    """Append the rows of ``table`` to a topic, each version of the table once.

    A table that ``materialize`` made becomes PUTs with its keys, values, storage ids and times, and
    its versions if those of the topic are explicit.  For any other Delta or Parquet table ``key``
    names the column of the keys; without one its rows are entries that stay until they are trimmed.
    ``value`` names the column of the values; without one they are JSON of all other columns.

    Files of the table go to the log in chunks of about ``chunk_rows`` rows.  A run that is repeated
    goes on where the last one ended, and appends nothing if that was the end.  With ``order_by``
    all rows are one chunk, in this order.
    """
    if not 0 <= storage_id < STORAGE_ID_END:
        raise BadOption(f"storage_id is {storage_id}, but has 64 bits")
    if not 1 <= chunk_rows <= CHUNK_ROWS_MAX:
        raise BadOption(f"chunk_rows is {chunk_rows}: use 1 to {CHUNK_ROWS_MAX}")
    if storage_id and key is None:
        raise BadOption("storage_id is for keys: give key, too")
    place = Path(table).absolute()
    if "://" in str(table) or not place.exists():
        raise BadOption(f"there is no table at {str(table)!r} on this machine")
    check_requirements(delta=(place / "_delta_log").is_dir(), master=spark_master, spark=spark)

    # What follows needs the modules that were just found to be there.
    from tidelog.pipeline.replaying.mapping import Mapping  # noqa: PLC0415
    from tidelog.pipeline.replaying.running import Work, run  # noqa: PLC0415
    from tidelog.pipeline.session import session  # noqa: PLC0415

    mapping = Mapping(key, value, version, storage_id, tuple(order_by))
    work = Work(place, target_url, topic, mapping, chunk_rows, timeout)
    with session(spark, spark_master, "replay") as opened:
        return run(opened, work, progress)
