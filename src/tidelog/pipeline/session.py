"""The Spark session of a job: the caller's, the one that is active, or one of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

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
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
}
"""For a session inside this process: loopback only, and no checksum files beside checkpoints."""


@contextmanager
def session(given: SparkSession | None, master: str, job: str) -> Iterator[SparkSession]:
    """A session to work with; only one that was started here, under the job's name, is stopped."""
    found = given or SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    # Spark looks for data sources with the Python that this names, and no setting does the same.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = _SETTINGS | (_LOCAL_SETTINGS if master.startswith("local") else {})
    builder = SparkSession.builder.master(master).appName(f"tidelog {job}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    try:
        yield started
    finally:
        started.stop()
