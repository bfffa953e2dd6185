"""``audit``: every replica of every log stream against every other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tidelog.errors import BadOption
from tidelog.net.endpoint import parse_url
from tidelog.pipeline.auditing.findings import AuditProgress, AuditSummary
from tidelog.pipeline.requirements import check_requirements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"


def audit(
    source_url: str,
    *,
    topics: Sequence[str] | None = None,
    report: str | Path | None = None,
    progress: Callable[[AuditProgress], None] | None = None,
    spark: SparkSession | None = None,
    spark_master: str = DEFAULT_MASTER,
    timeout: float = 60.0,
) -> AuditSummary:
    """Compare all replicas of a log with one another, and check its order and its files.

    ``source_url`` is that of a cluster or of a node by itself; the topic in it means nothing, and
    without ``topics`` all are looked at, those of the log itself included.  ``report`` is a file to
    write an HTML page to.  ``progress`` is called now and then, in any thread.  ``timeout`` is how
    many seconds a node may take to answer.

    What is wrong is told in ``findings``, and what could not be looked at in ``left_out``; neither
    is an error.  Nothing is changed or repaired, and appends go on meanwhile.
    """
    parse_url(source_url)
    if topics is not None and not topics:
        raise BadOption("topics is empty: name at least one, or leave it out for all of them")
    if timeout <= 0:
        raise BadOption(f"timeout is {timeout}: give a number of seconds")
    page = None if report is None else _writable(report)
    check_requirements(delta=False, master=spark_master, spark=spark)

    # What follows needs the modules that were just found to be there.
    from tidelog.pipeline.auditing.closer import AskedNodes  # noqa: PLC0415
    from tidelog.pipeline.auditing.report import write_report  # noqa: PLC0415
    from tidelog.pipeline.auditing.running import run  # noqa: PLC0415
    from tidelog.pipeline.auditing.spark_steps import SparkSteps  # noqa: PLC0415
    from tidelog.pipeline.auditing.targets import find_targets  # noqa: PLC0415
    from tidelog.pipeline.session import session  # noqa: PLC0415

    tell = progress or _tell_nobody
    targets = find_targets(source_url, topics, timeout)
    topic_of, log_id = targets.topic_of(), targets.log_id
    with (
        session(spark, spark_master, "audit") as opened,
        SparkSteps(opened, topic_of, log_id=log_id, timeout=timeout, progress=tell) as steps,
    ):
        summary = run(targets, steps, AskedNodes(targets, timeout), tell)
    if page is None:
        return summary
    summary = replace(summary, report=str(page))
    write_report(page, summary)
    return summary


def _writable(report: str | Path) -> Path:
    found = Path(report).absolute()
    if "://" in str(report) or found.is_dir() or not found.parent.is_dir():
        raise BadOption(f"report is {str(report)!r}: give a file in a directory of this machine")
    return found


def _tell_nobody(progress: AuditProgress) -> None:
    del progress
