"""Puts a run of ``archive`` together: the log, the directory and Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import tidelog
from tidelog.pipeline.archiving.home import locked_home
from tidelog.pipeline.archiving.progress import ArchiveProgress, ArchiveSummary
from tidelog.pipeline.archiving.running import Plan, run
from tidelog.pipeline.archiving.tasks import SparkWriter
from tidelog.pipeline.log_options import log_options
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import Vfs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(
    spark: SparkSession,
    url: str,
    topic: str | None,
    directory: Path,
    plan: Plan,
    *,
    now_us: int,
    timeout: float,
    progress: Callable[[ArchiveProgress], None] | None,
) -> ArchiveSummary:
    """Archive from the log at ``url``; the directory is made if it is not there."""
    vfs = OsVfs()
    with tidelog.connect(url, topic=topic, timeout=timeout) as log:
        make_directory(vfs, directory)
        with locked_home(vfs, str(directory)) as home:
            options = log_options(url, log.name, timeout)
            write = SparkWriter(spark, options, str(directory))
            return run(log, log.log_id.hex(), home, write, plan, now_us=now_us, progress=progress)


def make_directory(vfs: Vfs, directory: Path) -> None:
    """Make a directory, and those above it, that outlive a crash."""
    if vfs.stat(str(directory)) is not None:
        return
    make_directory(vfs, directory.parent)
    vfs.make_dir(str(directory))
    vfs.sync_dir(str(directory.parent))
