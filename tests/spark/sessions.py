"""One Spark session for all tests of a run: starting it costs more than most of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

LOG4J = Path(__file__).with_name("log4j2.properties")
MASTER = "local[2,4]"
"""Two threads; a task may fail three times, as on a cluster."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={LOG4J} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    ),
}


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """A session whose files are in ``directory``."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(MASTER).appName("tidelog tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    builder = builder.config("spark.local.dir", str(directory / "local"))
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
        # The gateway outlives its session; a JVM that is left behind would hold our pipes.
        gateway = type(session.sparkContext)._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(30)


@contextmanager
def connect_service(session: SparkSession) -> Iterator[str]:
    """The URL under which the JVM of a session serves clients of Spark Connect."""
    jvm = session.sparkContext._jvm
    service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    service = getattr(service, "MODULE$")
    service.start(session.sparkContext._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(getattr(service, "stop$default$1")(), getattr(service, "stop$default$2")())
