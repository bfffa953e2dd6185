"""``compact_plan``: what of a log may go, computed by Spark and handed to those who compact it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.errors import BadOption
from tidelog.pipeline.compaction_plan.progress import CompactPlanSummary, PlanProgress
from tidelog.pipeline.requirements import check_requirements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
BUCKETS_MAX: Final = 100_000


def compact_plan(
    source_url: str,
    *,
    topic: str | None = None,
    apply: bool = False,
    full: bool = False,
    buckets: int | None = None,
    directory: str | Path | None = None,
    progress: Callable[[PlanProgress], None] | None = None,
    spark: SparkSession | None = None,
    spark_master: str = DEFAULT_MASTER,
    timeout: float = 60.0,
) -> CompactPlanSummary:
    """Find out which entries of a topic are live, by the rule of the log's own compaction.

    Keys are spread over ``buckets``, of which Spark judges as many at a time as it has cores: so
    memory does not grow with the log.  ``directory``: write the live indexes of each log stream
    there.  ``apply``: offer the plan to the log, whose nodes check every claim of it, drop what is
    dead and compact; with ``full`` they rewrite every segment that has something dead.

    A plan that is not true any more is refused with ``PlanRefused``: plan again.
    """
    if buckets is not None and not 1 <= buckets <= BUCKETS_MAX:
        raise BadOption(f"buckets is {buckets}: use 1 to {BUCKETS_MAX}")
    if full and not apply:
        raise BadOption("full says how to apply a plan: give apply, too")
    place = None if directory is None else Path(directory).absolute()
    if place is not None and place.exists() and not place.is_dir():
        raise BadOption(f"directory is {str(directory)!r}, which is no directory")
    check_requirements(delta=False, master=spark_master, spark=spark)

    # What follows needs the modules that were just found to be there.
    from tidelog.pipeline.compaction_plan.running import Work, run  # noqa: PLC0415
    from tidelog.pipeline.session import session  # noqa: PLC0415

    work = Work(source_url, topic, apply, full, buckets, place, timeout)
    with session(spark, spark_master, "compact-plan") as opened:
        return run(opened, work, progress)
