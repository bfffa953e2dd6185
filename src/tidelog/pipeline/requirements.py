"""What a job needs from the machine, checked before anything starts."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tidelog.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN: Final = 17
_JAVA_SECONDS_MAX: Final = 30.0
_REMEDY: Final = "install openjdk-17-jre-headless, or set JAVA_HOME to a newer Java"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def check_requirements(
    *, delta: bool, master: str = "local[*]", spark: SparkSession | None = None
) -> None:
    """Raise ``Unavailable``, with the remedy, unless Spark can run here.

    Who has a session, and who is a client of Spark Connect, needs no Java on this machine.
    """
    _check_module("pyspark")
    _check_module("pyarrow")
    _check_module("pandas")  # Spark's functions over Arrow ask for it.
    if delta:
        _check_module("deltalake")
    if spark is not None:
        return
    if is_connect_url(master):
        _check_module("grpc")
    else:
        _check_java()


def is_connect_url(master: str) -> bool:
    """Whether this is the address of a Spark Connect server, and not of a cluster."""
    return master.startswith("sc://")


def _check_module(name: str) -> None:
    if find_spec(name) is None:
        package = "pyspark[connect]" if name == "grpc" else "tidelog[spark]"
        raise Unavailable(f"{name} is not installed: pip install '{package}'")


def _check_java() -> None:
    """Ask the Java that Spark's own start script would take for its version."""
    try:
        asked = subprocess.run(
            ["/bin/sh", "-c", 'exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version'],
            capture_output=True,
            check=False,
            timeout=_JAVA_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"`java -version` does not answer: {_REMEDY}") from error
    told = (asked.stderr + asked.stdout).decode("utf-8", "replace")
    if asked.returncode != 0:
        raise Unavailable(f"Spark needs Java {JAVA_VERSION_MIN} or newer, found none: {_REMEDY}")
    found = _VERSION.search(told)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        version = found[1] if found else "of an unknown version"
        raise Unavailable(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, but Java {version} is installed: "
            f"{_REMEDY}"
        )
