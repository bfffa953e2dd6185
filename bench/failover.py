"""Three nodes, each in its process: what a dead leader costs appends, and what idling costs.

A client appends all the time, one append every few milliseconds whether or not the last one was
answered.  A round kills the leader with SIGKILL and takes the time until the first append is
acknowledged that was begun after that; then the node is started again and catches up.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Final, Self

import tidelog
from tidelog.errors import LogError
from tidelog.net.loops import run
from tidelog.testing import LocalCluster, LocalNode

NODES: Final = 3
EVERY_SECONDS: Final = 0.01
WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
QUIET_SECONDS: Final = 2.0
"""A cluster that wrote nothing for so long has settled."""
IDLE_TRIES: Final = 3
VALUE: Final = bytes(100)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    rounds: int = 50
    idle_seconds: float = 20.0
    appends: int = 1_000


QUICK = Scale(rounds=5, idle_seconds=2.0, appends=100)


def measure_failover(directory: Path, scale: Scale) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and figures of each measurement."""
    place = directory / "failover"
    with LocalCluster(NODES, directory=place, streams=1) as cluster:
        cluster.wait_until_ready()
        yield "append, one by one", append_seconds(cluster, scale.appends)
        yield "idle", idle_figures(cluster, scale.idle_seconds)
        with Writer(cluster.url) as writer:
            for name, seconds in kill_rounds(cluster, writer, scale.rounds).items():
                yield name, percentiles(seconds)


# -- the fail-over ---------------------------------------------------------------------------------


def kill_rounds(cluster: LocalCluster, writer: Writer, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round, by what the node led that died."""
    of_stream = [
        one_round(cluster, writer, cluster.leader_of(writer.stream)) for _ in range(rounds)
    ]
    of_metadata = [
        one_round(cluster, writer, cluster.metadata_leader()) for _ in range(rounds // 5)
    ]
    return {
        "leader of the log stream killed": of_stream,
        "leader of the metadata repository killed": of_metadata,
    }


def one_round(cluster: LocalCluster, writer: Writer, victim: LocalNode) -> float:
    """Kill a node, wait for the next acknowledgement, and mend the cluster."""
    writer.wait_for_append_since(monotonic())
    victim.kill()
    killed_at = monotonic()
    seconds = writer.wait_for_append_since(killed_at) - killed_at
    victim.start()
    cluster.wait_until_ready(WAIT_SECONDS)
    return seconds


class Writer:
    """Appends in an event loop of its own until it is closed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.stream = 0
        self.failures = 0
        self._acknowledged: list[tuple[float, float]] = []
        """Begin and end of each append, of the last ones."""
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: run(self._run()), name="writer")

    def wait_for_append_since(self, begin: float) -> float:
        """When the first append that was begun at or after ``begin`` was acknowledged."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: bool(self._acknowledged) and self._acknowledged[-1][0] >= begin,
                WAIT_SECONDS,
            )
            if not arrived:
                raise SystemExit(f"no append was acknowledged within {WAIT_SECONDS:.0f} s")
            return min(end for start, end in self._acknowledged if start >= begin)

    async def _run(self) -> None:
        async with await tidelog.connect_async(self._url, timeout=WAIT_SECONDS) as log:
            tasks: set[asyncio.Task[None]] = set()
            while not self._stopping.is_set():
                task = asyncio.create_task(self._append(log))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                await asyncio.sleep(EVERY_SECONDS)
            await asyncio.gather(*tasks)

    async def _append(self, log: tidelog.AsyncRemoteLog) -> None:
        begin = monotonic()
        try:
            receipt = await log.append(VALUE)
        except LogError:
            self.failures += 1
            return
        with self._changed:
            self.stream = receipt.stream
            self._acknowledged.append((begin, monotonic()))
            del self._acknowledged[:-10_000]
            self._changed.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_append_since(0.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(WAIT_SECONDS)


# -- quiet times -----------------------------------------------------------------------------------


def append_seconds(cluster: LocalCluster, count: int) -> dict[str, float]:
    """What an append takes, one at a time."""
    with cluster.connect() as log:
        log.append(VALUE)
        taken = []
        for _ in range(count):
            begin = monotonic()
            log.append(VALUE)
            taken.append(monotonic() - begin)
    return percentiles(taken)


def idle_figures(cluster: LocalCluster, seconds: float) -> dict[str, float]:
    """Processor time and bytes written by all nodes while nobody asks for anything.

    Some time after the start operators even out who leads how much.  When they did, the cluster was
    not idle, and is looked at again.
    """
    pause = threading.Event()
    for _ in range(IDLE_TRIES):
        wait_until_quiet(cluster, pause)
        terms = terms_of(cluster)
        figures = figures_of(cluster, seconds, pause)
        if terms_of(cluster) == terms:
            break
    return figures


def terms_of(cluster: LocalCluster) -> list[tuple[int, int]]:
    """The term of each log stream; a new one shows that another node was made its leader."""
    return [(stream.stream, stream.term) for stream in cluster.status().streams]


def figures_of(cluster: LocalCluster, seconds: float, pause: threading.Event) -> dict[str, float]:
    """Processor time and bytes written from now on."""
    before_cpu, before_bytes, begin = cpu_seconds(cluster), written_bytes(cluster), monotonic()
    pause.wait(seconds)
    passed = monotonic() - begin
    return {
        "cpu_share": (cpu_seconds(cluster) - before_cpu) / passed,
        "written_bytes": float(written_bytes(cluster) - before_bytes),
        "seconds": passed,
    }


def wait_until_quiet(cluster: LocalCluster, pause: threading.Event) -> None:
    """Until nothing was written for a while: what was appended has been flushed and compacted."""
    deadline = monotonic() + WAIT_SECONDS
    last, since = written_bytes(cluster), monotonic()
    while monotonic() - since < QUIET_SECONDS:
        if monotonic() > deadline:
            return  # It writes when idle, and the figure will say so.
        pause.wait(LOOK_SECONDS)
        now = written_bytes(cluster)
        if now != last:
            last, since = now, monotonic()


def cpu_seconds(cluster: LocalCluster) -> float:
    """User and system time of all processes."""
    ticks = 0
    for pid in pids(cluster):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def written_bytes(cluster: LocalCluster) -> int:
    """What all processes have caused to be written to disks."""
    total = 0
    for pid in pids(cluster):
        for line in Path(f"/proc/{pid}/io").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(": ")
            if name == "write_bytes":
                total += int(value)
    return total


def pids(cluster: LocalCluster) -> list[int]:
    return [node.pid for node in cluster.nodes if node.pid is not None]


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return 1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    return {
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "max_ms": 1e3 * ordered[-1],
        "rounds": float(len(ordered)),
    }
