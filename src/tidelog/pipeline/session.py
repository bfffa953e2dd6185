"""The Spark session of a job: the caller's, the one that is active, or one of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from tidelog.errors import BadOption
from tidelog.pipeline.requirements import is_connect_url
from tidelog.pipeline.task_failures import failures_typed

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.ui.enabled": "false",
}
"""For a session inside this process: loopback only, and no checksum files beside checkpoints."""
_SHUFFLE_TASKS: Final = "spark.sql.shuffle.partitions"
SHUFFLE_TASKS_MIN: Final = 8


@contextmanager
def session(given: SparkSession | None, master: str, job: str) -> Iterator[SparkSession]:
    """A session to work with; only one that was started here, under the job's name, is stopped.

    What Spark fails with, in here or when it starts, becomes an error of ours.
    """
    found = given or SparkSession.getActiveSession()
    with failures_typed():
        if found is not None:
            yield found
            return
        started = _connect(master, job) if is_connect_url(master) else _start(master, job)
        try:
            yield started
        finally:
            started.stop()


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is that of a Spark Connect client: no driver runs in this process.

    Told by where its class is, for the modules of Spark Connect may not be installed.
    """
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _start(master: str, job: str) -> SparkSession:
    """A driver in this process."""
    remote = os.environ.get("SPARK_REMOTE")
    if remote:
        raise BadOption(
            f"Spark's master is to be {master!r}, but SPARK_REMOTE says {remote!r}: "
            "give that as the master, or unset it"
        )
    # Spark looks for data sources with the Python that this names, and no setting does the same.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = _SETTINGS | (_LOCAL_SETTINGS if master.startswith("local") else {})
    builder = SparkSession.builder.master(master).appName(f"tidelog {job}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    if not is_remote(started):  # It is one with spark.api.mode=connect.
        started.sparkContext.setLogLevel("ERROR")
        _fit_shuffles(started)
    return started


def _fit_shuffles(spark: SparkSession) -> None:
    """Two tasks for each core, unless somebody chose: Spark's 200 take longer than a batch does."""
    context = spark.sparkContext
    if context.getConf().get(_SHUFFLE_TASKS) is None:
        tasks = max(2 * context.defaultParallelism, SHUFFLE_TASKS_MIN)
        spark.conf.set(_SHUFFLE_TASKS, str(tasks))


def _connect(url: str, job: str) -> SparkSession:
    """A session of a server, which has all other settings already."""
    builder = SparkSession.builder.remote(url).appName(f"tidelog {job}")
    return builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
