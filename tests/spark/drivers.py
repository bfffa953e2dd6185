"""Drivers of Spark in processes of their own, and all that works for them: to be killed for real.

Every process of a job has the directory of its holds in its environment; that is how it is found.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum, auto
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.process.children import ROOT
from tests.spark.holds import HOLDS, Holds, Point, wait_until

PYTHON_PATH = os.pathsep.join([str(ROOT / "tests" / "spark" / "held"), str(ROOT)])
"""Where processes of Spark find the source with hold points, and the modules of the tests."""
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_ENDED = "Z"
_NUMBERS = count(1)


class Victim(Enum):
    """Who is to die while a process is held."""

    WORKER = auto()
    """That process, if it is one of Python's that works for an executor."""
    EXECUTOR = auto()
    """The executor that it works for: a JVM."""
    DRIVER = auto()
    """The driver with its JVM."""


class Driver:
    """``python -m tests.spark.cluster_job STORY MASTER DIRECTORY URL...``, started at once.

    It leads a process group, in which its JVM is too.  On exit all its processes are gone.
    """

    def __init__(self, story: str, master: str, directory: Path, *urls: str) -> None:
        self.holds = Holds(directory / "holds")
        self._log = directory / f"driver-{next(_NUMBERS)}.log"
        command = [sys.executable, "-m", "tests.spark.cluster_job", story, master]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, str(directory), *urls],
                cwd=ROOT,
                env=_environment(master, directory),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    # -- watching -------------------------------------------------------------------------------

    def wait_until_held(self, point: Point) -> int:
        """The process that came to a point which was ordered."""

        def reached() -> bool:
            assert self._process.poll() is None, f"the driver ended:\n{self._told()}"
            return self.holds.held(point) is not None

        wait_until(reached, lambda: f"nobody comes to {point!r}:\n{self._told()}")
        process = self.holds.held(point)
        assert process is not None
        return process

    def finish(self, seconds: float) -> None:
        """Wait until it has done its work."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        assert self._process.poll() == 0, f"the driver did not do its work:\n{self._told()}"

    def _told(self) -> str:
        return self._log.read_text(errors="replace")[-20_000:]

    # -- killing --------------------------------------------------------------------------------

    def kill(self, victim: Victim, point: Point, *, then: Point | None = None) -> None:
        """SIGKILL for a victim while a process is held at the point; ``then`` is ordered before."""
        held = self.wait_until_held(point)
        if then is not None:
            self.holds.order(then)
        if victim is Victim.WORKER:
            os.kill(held, signal.SIGKILL)
        elif victim is Victim.EXECUTOR:
            _kill_executor_of(held)
        else:
            self._kill()
        self.holds.release(point, held)

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        wait_until(lambda: not list(self._processes()), self._end_the_rest)

    def _end_the_rest(self) -> str:
        for process in self._processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return "executors outlived their driver"

    def _processes(self) -> Iterator[int]:
        """What runs for this driver or for one before it with the same directory."""
        mark = f"{HOLDS}={self.holds.directory}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and mark in _bytes(entry / "environ").split(b"\0"):
                yield int(entry.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.holds.clear()
        self._kill()


def _environment(master: str, directory: Path) -> dict[str, str]:
    found = {**os.environ, "PYTHONPATH": PYTHON_PATH, HOLDS: str(directory / "holds")}
    if master.startswith("sc://"):
        found["JAVA_HOME"] = "/nowhere"  # A client of Spark Connect needs no Java.
    if master.startswith("local-cluster"):
        found["SPARK_HOME"] = str(_home_of_links(directory / "spark"))
    return found


def _home_of_links(place: Path) -> Path:
    """A home of Spark, since executors of a local cluster put their files below it."""
    if not place.exists():
        place.mkdir()
        for name in ("bin", "jars", "python"):
            (place / name).symlink_to(Path(pyspark.__file__).parent / name)
    return place


def _kill_executor_of(worker: int) -> None:
    executor = next((pid for pid in _ancestors(worker) if _EXECUTOR in _command(pid)), None)
    assert executor is not None, f"no executor runs process {worker}"
    os.kill(executor, signal.SIGKILL)
    wait_until(lambda: not _runs(executor), lambda: "the executor lives on")


def _ancestors(process: int) -> Iterator[int]:
    while process > 1:
        process = int(_status(process)[1])
        yield process


def _runs(process: int) -> bool:
    with suppress(FileNotFoundError):
        return _status(process)[0] != _ENDED
    return False


def _status(process: int) -> list[str]:
    """The state of a process, its parent, and more; see proc(5)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _command(process: int) -> bytes:
    return _bytes(Path(f"/proc/{process}/cmdline"))


def _bytes(path: Path) -> bytes:
    """What a file of a process holds; nothing if the process has ended meanwhile."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return path.read_bytes()
    return b""
