"""What the measurements with Spark share: a session and a served node, each in its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from pyspark.sql import SparkSession

from bench.large import ROOT
from tidelog.testing import LocalCluster

CORES: Final = 2
STOP_SECONDS: Final = 60
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.default.parallelism": str(CORES),
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A running log."""

    url: str
    processes: tuple[int, ...]
    """Of its nodes."""

    def topic(self, name: str) -> str:
        """The URL of a topic."""
        separator = "?topic=" if self.url.startswith("tidelog+unix") else "/"
        return self.url.rstrip("/") + separator + name


@contextmanager
def spark_session(directory: Path, jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """A session on this machine, whose files are in ``directory``."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    quiet = directory / "log4j2.properties"
    quiet.write_text(LOG4J, encoding="ascii")
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("tidelog bench")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.jars", ",".join(map(str, jars)))
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    builder = builder.config("spark.local.dir", str(directory / "local"))
    builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
        jvm, context = _jvm(session), type(session.sparkContext)
        context._gateway.shutdown()  # type: ignore[union-attr]
        # The next session starts a JVM of its own.
        context._gateway = context._jvm = None
        if jvm.stdin is not None:
            jvm.stdin.close()
        jvm.wait(STOP_SECONDS)


@contextmanager
def served(directory: Path, data: Path) -> Iterator[Served]:
    """The log in ``data``, served at a Unix socket in ``directory``."""
    socket = directory / "node.sock"
    command = [
        *(sys.executable, "-m", "tidelog", "serve", "--data", str(data)),
        *("--listen", f"unix://{socket}", "--http", "none"),
    ]
    node = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        output: IO[bytes] | None = node.stdout
        if output is None or not output.readline().startswith(b"ready"):
            raise RuntimeError("the node did not start")
        yield Served(f"tidelog+unix://{socket}", (node.pid,))
    finally:
        node.terminate()
        node.wait(STOP_SECONDS)
        if node.stdout is not None:
            node.stdout.close()


@contextmanager
def served_by_cluster(directory: Path, nodes: int = 3) -> Iterator[Served]:
    """An empty log on several nodes, whose files are in ``directory``."""
    with LocalCluster(nodes, directory=directory) as cluster:
        pids = tuple(node.pid for node in cluster.nodes if node.pid is not None)
        yield Served(cluster.url_of(""), pids)


def resident_megabytes(session: SparkSession, log: Served) -> dict[str, float]:
    """What the processes have resident: nodes, the JVM, and all of Spark's Python workers."""
    jvm = _jvm(session).pid
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except (ValueError, OSError):
            continue  # No process, or one that ended meanwhile.
    workers = {jvm}
    while found := {pid for pid, parent in parents.items() if parent in workers} - workers:
        workers |= found
    return {
        "node_megabytes": sum(map(unshared_megabytes, log.processes)),
        "jvm_megabytes": unshared_megabytes(jvm),
        "workers_megabytes": sum(map(unshared_megabytes, workers - {jvm})),
    }


def unshared_megabytes(process: int) -> float:
    """Its own memory: what a forked worker shares with its parent is not counted twice."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("Pss:"))


def _jvm(session: SparkSession) -> subprocess.Popen[bytes]:
    gateway = type(session.sparkContext)._gateway
    process: subprocess.Popen[bytes] = gateway.proc  # type: ignore[union-attr]
    return process
