"""``tidelog replica`` in a process of its own, and what it tells of itself over HTTP."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.client.proxy import wait_until
from tests.process.children import DEADLINE_SECONDS, ROOT

REPLICA = ("tidelog", "replica")
BROKEN_DISK = ("tests.replica_service.broken_disk_replica",)


class ReplicaProcess:
    """Listens at a port that the system picks, unless it is told where."""

    def __init__(
        self,
        path: Path,
        *options: str,
        endpoint: str = "tcp://127.0.0.1:0",
        program: tuple[str, ...] = REPLICA,
    ) -> None:
        self.path = path
        self._errors = path.with_name(f"{path.name}.errors")
        command = [sys.executable, "-m", *program, "--data", str(path), "--listen", endpoint]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, "--http", "127.0.0.1:0", *options],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.address: str = self._ready()
        self.http = self._ready()

    def _ready(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready "), f"{line!r}: {self.errors()}"
        return line.removeprefix("ready ").strip()

    def errors(self) -> str:
        """What it wrote to its standard error so far."""
        return self._errors.read_text()

    # -- what it tells ------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """``name{label}`` → value."""
        with urlopen(f"{self.http}/metrics", timeout=DEADLINE_SECONDS) as page:
            text = page.read().decode()
        return {
            sample.name.removeprefix("tidelog_replica_")
            + "".join(f"{{{label}}}" for label in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @property
    def state(self) -> str:
        """Of its session."""
        metrics = self.metrics()
        [state] = [s for s in ("listening", "open", "broken") if metrics[f"session{{{s}}}"]]
        return state

    @property
    def epoch(self) -> int:
        return int(self.metrics()["epoch"])

    @property
    def boundary(self) -> int:
        return int(self.metrics()["boundary"])

    def wait_for(self, state: str) -> None:
        wait_until(lambda: self.state == state, f"the session is {state}")

    @property
    def peak_bytes(self) -> int:
        """The most memory that it ever had in use."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    # -- its end ------------------------------------------------------------------------------

    def ask_to_stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
        return self.process.wait(DEADLINE_SECONDS)

    def stop(self) -> int:
        self.ask_to_stop()
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


def run_tidelog(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command from start to end."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
