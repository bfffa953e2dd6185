"""``archive``: closed ranges of a topic become Parquet files, and the log may forget them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final

from tidelog.errors import BadOption
from tidelog.pipeline.archiving.progress import ArchiveProgress, ArchiveSummary
from tidelog.pipeline.requirements import check_requirements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
RANGE_ENTRIES: Final = 1_000_000


def archive(
    source_url: str,
    directory: str | Path,
    *,
    topic: str | None = None,
    up_to: int | None = None,
    older_than: float | None = None,
    range_entries: int = RANGE_ENTRIES,
    trim: bool = False,
    keep: int = 0,
    progress: Callable[[ArchiveProgress], None] | None = None,
    spark: SparkSession | None = None,
    spark_master: str = DEFAULT_MASTER,
    timeout: float = 60.0,
) -> ArchiveSummary:
    """Bring the archive in ``directory`` up to the log: all entries of a topic, as Parquet files.

    It begins where the log does when it is made, and each run goes on where the last one ended:
    up to the end of the topic, or only below the GLSN ``up_to``, or only what is older than so
    many seconds (``older_than``).  ``range_entries`` bounds how many GLSNs a file is about.

    ``trim`` then trims the log below the archive's end, except for the last ``keep`` positions;
    it stops before the first entry with a key.  The source reads archive and log as one with
    ``.option("archive", directory)``.
    """
    for name, value, least in (
        ("up_to", up_to, 1),
        ("older_than", older_than, 0),
        ("range_entries", range_entries, 1),
        ("keep", keep, 0),
    ):
        if value is not None and not least <= value < inf:
            raise BadOption(f"{name} is {value}: use a number from {least} on")
    place = _local(directory)
    check_requirements(delta=False, master=spark_master, spark=spark)

    # What follows needs the modules that were just found to be there.
    from tidelog.pipeline.archiving.running import Plan  # noqa: PLC0415
    from tidelog.pipeline.archiving.starting import start  # noqa: PLC0415
    from tidelog.pipeline.session import session  # noqa: PLC0415

    plan = Plan(up_to, older_than, range_entries, trim, keep)
    with session(spark, spark_master, "archive") as opened:
        return start(
            opened,
            source_url,
            topic,
            place,
            plan,
            now_us=int(time() * 1e6),
            timeout=timeout,
            progress=progress,
        )


def _local(path: str | Path) -> Path:
    text = str(path)
    if "://" in text:
        raise BadOption(f"directory is {text!r}: archives are made in directories of this machine")
    found = Path(text).absolute()
    if found.exists() and not found.is_dir():
        raise BadOption(f"directory is {text!r}, which is no directory")
    return found
