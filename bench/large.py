"""A large log: how it starts, reads and looks up, and what a major compaction of it takes.

Each step runs in a process of its own, so that its peak memory is its own too.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import msgspec

import tidelog
from tidelog.core.compaction.plan import Strategy

ROOT: Final = Path(__file__).parents[1]
BATCH: Final = 1000
GETS: Final = 5_000
READ_RECORDS: Final = 2_000_000
TIMEOUT_SECONDS: Final = 3_600
MANUAL: Final = tidelog.Options(
    compaction=Strategy(dead_ratio=None, minors=None, idle_ticks=None), snapshot_bytes=1 << 40
)
"""Nothing is snapshotted or compacted unless it is asked for."""


@dataclass(frozen=True, slots=True)
class Scale:
    entries: int = 10_000_000
    compaction_bytes: int = 1_000_000_000


QUICK = Scale(entries=20_000, compaction_bytes=4_000_000)


def rss_megabytes() -> float:
    """Memory that this process has resident now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def peak_megabytes() -> float:
    """The most that this process had resident; a new process begins with what its parent had in
    ``ru_maxrss``, so that figure does not serve."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("the system does not tell the peak of the resident memory")


# ---- steps, each in its own process


def build_plain(path: str, entries: int) -> dict[str, float]:
    values = [random.Random(1).randbytes(100) for _ in range(BATCH)]
    begin = perf_counter()
    with tidelog.open(path) as log:
        for _ in range(entries // BATCH):
            log.append_batch(values)
    return {"seconds": perf_counter() - begin, "entries": entries}


def start_plain(path: str, entries: int) -> dict[str, float]:
    imported = tidelog.open
    before = rss_megabytes()
    begin = perf_counter()
    with imported(path) as log:
        opened = perf_counter() - begin
        resident = rss_megabytes()
        begin = perf_counter()
        middle = next(iter(log.read(entries // 2)))
        first_read = perf_counter() - begin
        begin = perf_counter()
        count = sum(1 for _ in islice(log.read(), READ_RECORDS))
        read = perf_counter() - begin
        segments = len(log.engine.node.streams[log.streams[0]].view.segments)
    return {
        "open_seconds": opened,
        "import_megabytes": before,
        "resident_megabytes": resident,
        "first_read_ms": 1e3 * first_read,
        "first_read_glsn": middle.glsn,
        "records_per_second": count / read,
        "segments": segments,
        "peak_megabytes": peak_megabytes(),
    }


def build_keyed(path: str, value_bytes: int, total: int) -> dict[str, float]:
    """Each key is written twice, both at random places: half of the bytes are dead."""
    chance = random.Random(2)
    keys = list(range(total // (value_bytes + 16) // 2)) * 2
    chance.shuffle(keys)
    value = chance.randbytes(value_bytes)
    begin = perf_counter()
    with tidelog.open(path, options=MANUAL) as log:
        for place in range(0, len(keys), BATCH):
            log.put_batch([(_key(key), value) for key in keys[place : place + BATCH]])
    return {"seconds": perf_counter() - begin, "entries": len(keys)}


def compact(path: str) -> dict[str, float]:
    with tidelog.open(path, options=MANUAL) as log:
        idle = peak_megabytes()
        log.engine.roll()
        log.engine.maintenance.flush_rolled()
        before = log.stats()
        begin = perf_counter()
        log.snapshot()
        snapshot = perf_counter() - begin
        snapshot_peak = peak_megabytes()
        begin = perf_counter()
        result = log.compact(full=True)
        seconds = perf_counter() - begin
        after = log.stats()
    return {
        "bytes_before": before.segment_bytes,
        "bytes_after": after.segment_bytes,
        "entries": before.streams[0].entries,
        "live_entries": after.streams[0].live_entries,
        "snapshot_seconds": snapshot,
        "compaction_seconds": seconds,
        "rewritten": result.rewritten,
        "failures": len(result.failures),
        "idle_peak_megabytes": idle,
        "snapshot_peak_megabytes": snapshot_peak,
        "peak_megabytes": peak_megabytes(),
    }


def look_up(path: str, keys: int) -> dict[str, float]:
    chance = random.Random(3)
    latencies = []
    with tidelog.open(path, options=MANUAL) as log:
        for _ in range(GETS):
            key = _key(chance.randrange(keys))
            begin = perf_counter()
            found = log.get(key)
            latencies.append(perf_counter() - begin)
            if found is None:
                raise SystemExit(f"{key!r} is gone")
    latencies.sort()
    return {
        "p50_us": 1e6 * latencies[GETS // 2],
        "p99_us": 1e6 * latencies[GETS * 99 // 100],
    }


def _key(number: int) -> bytes:
    return number.to_bytes(16, "big")


STEPS: Final[dict[str, Callable[..., dict[str, float]]]] = {
    step.__name__: step for step in (build_plain, start_plain, build_keyed, compact, look_up)
}


# ---- the parent


def run_step(step: str, *arguments: str | int) -> dict[str, float]:
    """Run a step in a new process and return its figures."""
    command = [sys.executable, "-m", "bench.large", step, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=TIMEOUT_SECONDS
    )
    return msgspec.json.decode(done.stdout, type=dict[str, float])


def measure_large(directory: Path, scale: Scale) -> Iterator[tuple[str, dict[str, float]]]:
    """(name, figures) of each step."""
    plain = str(directory / "plain")
    yield "build", run_step("build_plain", plain, scale.entries)
    yield "start", run_step("start_plain", plain, scale.entries)
    for size in (1024, 100):
        keyed = str(directory / f"keyed-{size}")
        built = run_step("build_keyed", keyed, size, scale.compaction_bytes)
        yield f"build keyed {size}", built
        keys = int(built["entries"]) // 2
        yield f"get before compaction {size}", run_step("look_up", keyed, keys)
        yield f"compact {size}", run_step("compact", keyed)
        yield f"get after compaction {size}", run_step("look_up", keyed, keys)


def _main(step: str, path: str, *numbers: str) -> None:
    figures: Any = STEPS[step](path, *map(int, numbers))
    sys.stdout.write(msgspec.json.encode(figures).decode())


if __name__ == "__main__":
    _main(*sys.argv[1:])
