"""Starts processes that talk in lines, and waits for their lines with a deadline."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, Self

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60.0
_READ_BYTES = 1 << 16


class Child:
    """A process whose standard output is read line by line; it is dead at the latest on exit."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        self._rest = b""
        self._ended = False

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def lines(self, seconds: float) -> list[bytes]:
        """Whole lines that came within ``seconds``; returns as soon as there is any."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            if not selector.select(seconds):
                return []
        return self._read()

    def _read(self) -> list[bytes]:
        data = os.read(self._output.fileno(), _READ_BYTES)
        self._ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def wait_for_lines(self) -> list[bytes]:
        """At least one more line; fails when the process ends or stays silent."""
        deadline = monotonic() + DEADLINE_SECONDS
        while not self._ended:
            found = self.lines(max(deadline - monotonic(), 0))
            if found:
                return found
            assert monotonic() < deadline, "the process says nothing"
        raise AssertionError(f"the process ended by itself: {self._errors()}")

    def wait_for(self, line: bytes) -> None:
        while line not in self.wait_for_lines():
            pass

    def kill(self) -> Iterator[bytes]:
        """SIGKILL; then the lines that it had sent before."""
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)
        while not self._ended:
            yield from self._read()

    def _errors(self) -> str:
        assert self._process.stderr is not None
        self._process.kill()
        return self._process.stderr.read().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
