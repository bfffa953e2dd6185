"""A standalone Spark cluster on this machine: a master, and two workers with a core each.

The workers have addresses of their own, for Spark tries a slow task again on another host only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

import pyspark

START_SECONDS = 60.0
STOP_SECONDS = 30.0
HOSTS = ("127.0.0.1", "127.0.0.2")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with (master)")
_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """The URL of a running cluster, whose files are in ``directory``."""
    with ExitStack() as daemons:
        log = daemons.enter_context(
            _daemon(directory / "master", HOSTS[0], f"{_DEPLOY}.master.Master", "--port", "0")
        )
        url = log.wait_for(_MASTER)
        for number, host in enumerate(HOSTS):
            place = directory / f"worker-{number}"
            arguments = ("--cores", "1", "--memory", "1g", "--work-dir", str(place / "work"), url)
            log = daemons.enter_context(
                _daemon(place, host, f"{_DEPLOY}.worker.Worker", *arguments)
            )
            log.wait_for(_REGISTERED)
        yield url


class _Log:
    """What a daemon writes to a file, looked at until it says what it should."""

    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        self._path = path
        self._process = process

    def wait_for(self, pattern: re.Pattern[str]) -> str:
        deadline = monotonic() + START_SECONDS
        while True:
            text = self._path.read_text(errors="replace")
            found = pattern.search(text)
            if found is not None:
                return found[1]
            assert self._process.poll() is None, f"a daemon of Spark ended:\n{text}"
            assert monotonic() < deadline, f"a daemon of Spark did not start:\n{text}"
            Event().wait(0.05)


@contextmanager
def _daemon(place: Path, host: str, main: str, *arguments: str) -> Iterator[_Log]:
    place.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home / "bin" / "spark-class"), main, "--host", host, "--webui-port", "0"]
    path = place / "log"
    with path.open("wb") as output:
        # The script becomes the JVM, so the process is the daemon itself.
        process = subprocess.Popen(
            [*command, *arguments], env=environment, cwd=place, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output,
        )  # fmt: skip
        try:
            yield _Log(path, process)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
