"""The processes of a peer's nodes: started, waited for, weighed, and ended by their ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from typing import Final, Self

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 15.0
QUIET_SECONDS: Final = 1.0
QUIET_BYTES: Final = 256 * 1024
SETTLE_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.1
_TAIL_BYTES: Final = 2_000
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_BLOCK_BYTES: Final = 512


class Unavailable(Exception):
    """A peer cannot be had, or does not start, on this machine; the text says why."""


class Processes:
    """Used by ``with``: none of them outlives the block."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: list[subprocess.Popen[bytes]] = []
        self._adopted: list[int] = []
        self._stack = ExitStack()

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a process whose output goes to a file of that name."""
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._stack.enter_context((self._logs / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self._running.append(process)

    def adopt(self, pids: Sequence[int]) -> None:
        """Count processes in that somebody else has started, and will end."""
        self._adopted += pids

    @property
    def pids(self) -> Pids:
        """All of them."""
        return Pids([*self._adopted, *(process.pid for process in self._running)])

    def wait_for(
        self, is_so: Callable[[], bool], what: str, seconds: float = START_SECONDS
    ) -> None:
        """Wait until something holds; connections that are refused meanwhile are no errors."""
        deadline = monotonic() + seconds
        while True:
            with suppress(OSError):
                if is_so():
                    return
            ended = [process for process in self._running if process.poll() is not None]
            if ended or monotonic() > deadline:
                why = f"a process ended ({ended[0].returncode})" if ended else "it takes too long"
                raise Unavailable(f"{what}: {why}\n{self.log_tails()}")
            pause(_LOOK_SECONDS)

    def wait_for_ports(self, ports: Sequence[int]) -> None:
        """Wait until something listens on each."""
        for port in ports:
            self.wait_for(partial(is_listening, port), f"nobody listens on {port}")

    def log_tails(self) -> str:
        """The end of what each process wrote."""
        texts = []
        for path in sorted(self._logs.glob("*.log")):
            text = path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
            texts.append(f"{path.name}: {text}")
        return "\n".join(texts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._running):
            _signal_group(process, signal.SIGTERM)
        deadline = monotonic() + STOP_SECONDS
        for process in reversed(self._running):
            try:
                process.wait(max(deadline - monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                pass
            _signal_group(process, signal.SIGKILL)  # What it started and left behind, too.
            process.wait()
        self._running.clear()
        self._stack.close()


class Pids:
    """Figures of processes and all that they have started."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = tuple(roots)

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        ticks = 0
        for pid in self._tree():
            with suppress(OSError):
                ticks += sum(map(int, _stat_fields(pid)[11:13]))
        return ticks / _TICKS_PER_SECOND

    def written_bytes(self) -> int:
        """What they have caused to be written to disks."""
        total = 0
        for pid in self._tree():
            with suppress(OSError):
                for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
                    name, _, value = line.partition(": ")
                    total += int(value) if name == "write_bytes" else 0
        return total

    def own_bytes(self) -> list[int]:
        """Memory of each that is no file's: heaps and stacks."""
        return [_status_bytes(pid, "RssAnon") for pid in self._roots]

    def resident_bytes(self) -> list[int]:
        """Memory of each, with the pages of files that it maps."""
        return [_status_bytes(pid, "VmRSS") for pid in self._roots]

    def settle(self) -> None:
        """Wait until they have written next to nothing for a while, or for long enough."""
        deadline = monotonic() + SETTLE_SECONDS
        last, since = self.written_bytes(), monotonic()
        while monotonic() - since < QUIET_SECONDS and monotonic() < deadline:
            pause(_LOOK_SECONDS)
            now = self.written_bytes()
            if now - last > QUIET_BYTES:
                last, since = now, monotonic()

    def _tree(self) -> list[int]:
        parents: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    parents.setdefault(int(_stat_fields(int(entry.name))[1]), []).append(
                        int(entry.name)
                    )
        found = list(self._roots)
        for pid in found:  # Grows while it is walked.
            found += parents.get(pid, [])
        return found


def _stat_fields(pid: int) -> list[str]:
    """What follows the name in ``/proc/PID/stat``: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _status_bytes(pid: int, name: str) -> int:
    """A size of ``/proc/PID/status``; 0 if it is not told."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    return 0


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def disk_bytes(directory: Path) -> int:
    """What the files of a directory take on the disk; holes and what is not there take nothing."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                total += os.stat(Path(root, name), follow_symlinks=False).st_blocks * _BLOCK_BYTES
    return total


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has now, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind((HOST, 0))
        return [found.getsockname()[1] for found in sockets]


def is_listening(port: int) -> bool:
    with socket.create_connection((HOST, port), 1.0):
        return True


def pause(seconds: float) -> None:
    Event().wait(seconds)
