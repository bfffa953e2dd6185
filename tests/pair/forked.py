"""Processes that a nursery forks: their lines, their end, and the descriptors that they leave."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from time import monotonic
from types import TracebackType
from typing import Self

import msgspec

from tests.pair.nursery import Order
from tests.process.children import DEADLINE_SECONDS, ROOT

_READ_BYTES = 1 << 16


class Nursery:
    """Starts processes; all of them are dead when it is closed."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._orders.settimeout(DEADLINE_SECONDS)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pair.nursery", str(theirs.fileno())],
            cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
        )  # fmt: skip
        theirs.close()
        self._running: list[Forked] = []

    def start(self, module: str, *arguments: str) -> Forked:
        """Run a module as a program."""
        started = Forked(self, module, arguments)
        self._running.append(started)
        return started

    def order(self, order: Order, descriptors: tuple[int, ...] = ()) -> int:
        socket.send_fds(self._orders, [msgspec.json.encode(order)], descriptors)
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._orders.recv(100)
            assert part, "the nursery is gone"
            answer += part
        return int(answer)

    def close(self) -> None:
        for process in self._running:
            process.close()
        self._orders.close()
        self._process.wait(DEADLINE_SECONDS)


class Forked:
    """A process whose standard output is read line by line."""

    def __init__(self, nursery: Nursery, module: str, arguments: tuple[str, ...]) -> None:
        self._nursery = nursery
        self._module = module
        self._rest = b""
        self._ended = False
        self._code: int | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._output, theirs = os.pipe()
        try:
            order = Order(module, list(arguments))
            self._pid = nursery.order(order, (theirs, self._errors.fileno()))
        finally:
            os.close(theirs)

    # -- what it says ---------------------------------------------------------------------------

    def wait_for_lines(self) -> list[bytes]:
        """At least one more line; fails when the process ends or stays silent."""
        deadline = monotonic() + DEADLINE_SECONDS
        while not self._ended:
            if found := self._lines(deadline):
                return found
        raise AssertionError(f"{self._module} ended by itself: {self.errors()}")

    def lines_within(self, seconds: float) -> Iterator[bytes]:
        """What it says in this time."""
        deadline = monotonic() + seconds
        while not self._ended and self._is_readable(deadline):
            yield from self._read()

    def wait_for_end(self) -> Iterator[bytes]:
        """All lines until the process has ended by itself."""
        deadline = monotonic() + DEADLINE_SECONDS
        while not self._ended:
            yield from self._lines(deadline)

    def _lines(self, deadline: float) -> list[bytes]:
        assert self._is_readable(deadline), f"{self._module} says nothing"
        return self._read()

    def _is_readable(self, deadline: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            return bool(selector.select(max(deadline - monotonic(), 0)))

    def _read(self) -> list[bytes]:
        data = os.read(self._output, _READ_BYTES)
        self._ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def errors(self) -> str:
        """What it wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode()

    # -- its end --------------------------------------------------------------------------------

    def send_signal(self, number: int) -> None:
        if self._code is None:
            os.kill(self._pid, number)

    def kill(self) -> Iterator[bytes]:
        """SIGKILL; then the lines that it had sent before."""
        self.send_signal(signal.SIGKILL)
        self.wait()
        yield from self.wait_for_end()

    def wait(self) -> int:
        """Its exit code; minus the number of the signal that ended it."""
        if self._code is None:
            self._code = self._nursery.order(Order(wait_for=self._pid))
        return self._code

    def close(self) -> None:
        """Dead, and forgotten.  Harmless twice."""
        if not self._errors.closed:
            self.send_signal(signal.SIGKILL)
            self.wait()
            os.close(self._output)
            self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
