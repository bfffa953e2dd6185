"""Measures one kind of work on one engine: rate, and latency of each call.  No state."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final

from tidelog.cli.bench_engines import Engine, Item, Writer

KEY_BYTES: Final = 16
WARM_BYTES: Final = 160 << 20
_KEYS: Final = 1 << 20
"""Keys are drawn from so many, so that some are overwritten."""
_PREPARED: Final = 200
"""Calls with different content are prepared, so that making it is not measured."""


@dataclass(frozen=True, slots=True)
class Work:
    """Calls of ``batch`` records of ``size`` bytes, by ``threads`` at once."""

    size: int
    batch: int
    keyed: bool
    threads: int = 1

    @property
    def call_bytes(self) -> int:
        """Payload of one call: values, and keys if there are any."""
        return self.batch * (self.size + (KEY_BYTES if self.keyed else 0))

    @property
    def name(self) -> str:
        kind = "put" if self.keyed else "append"
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{kind} {self.size} B × {self.batch}{threads}"


@dataclass(frozen=True, slots=True)
class Measured:
    """Outcome of one run; ``seconds`` until the last call returned, ``settled`` until no work
    that was put off is left."""

    work: Work
    calls: int
    seconds: float
    settled: float
    p50_us: float
    p99_us: float

    @property
    def records_per_second(self) -> float:
        return self.calls * self.work.batch / self.settled

    @property
    def megabytes_per_second(self) -> float:
        return self.calls * self.work.call_bytes / self.settled / 1e6


class Payload:
    """Content for the calls of a work, the same for all engines."""

    def __init__(self, work: Work) -> None:
        chance = random.Random(1)  # noqa: S311
        values = [chance.randbytes(work.size) for _ in range(work.batch)]
        self._values = values
        self._items: list[list[Item]] = []
        if work.keyed:
            self._items = [
                [(chance.randrange(_KEYS).to_bytes(KEY_BYTES, "big"), value) for value in values]
                for _ in range(_PREPARED)
            ]

    def call(self, writer: Writer) -> Callable[[int], Future[Any] | None]:
        """A function that makes call number ``i``."""
        if not self._items:
            values = self._values
            return lambda i: writer.append(values)
        items = self._items
        return lambda i: writer.put(items[i % _PREPARED])


def warm_up(engine: Engine, size: int = WARM_BYTES) -> None:
    """Bring an engine to the state of a long-running one, which reuses its files."""
    values = [bytes(range(256)) * 16] * 256
    writer = engine.writer()
    try:
        for _ in range(0, size, sum(map(len, values))):
            writer.append(values)
    finally:
        writer.close()
    engine.settle()
    engine.rest()


def measure(
    engine: Engine, work: Work, payload: Payload, *, seconds: float, calls: int | None = None
) -> Measured:
    """Run for ``seconds``, or until ``calls`` are made if that is sooner."""
    share = None if calls is None else -(-calls // work.threads)
    gate = threading.Barrier(work.threads + 1)
    latencies: list[list[float]] = [[] for _ in range(work.threads)]
    failures: list[BaseException] = []

    def run(number: int) -> None:
        # Calls of different threads begin at different places of what was prepared.
        first = number * _PREPARED // work.threads
        try:
            writer = engine.writer()
            gate.wait()
            try:
                _loop(payload.call(writer), first, seconds, share, latencies[number])
            finally:
                writer.close()
        except BaseException as error:
            failures.append(error)
            gate.abort()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(work.threads)]
    for thread in threads:
        thread.start()
    try:
        gate.wait()
    except threading.BrokenBarrierError:
        pass
    begin = perf_counter()
    for thread in threads:
        thread.join()
    elapsed = perf_counter() - begin
    if failures:
        raise failures[0]
    engine.settle()
    settled = perf_counter() - begin
    engine.rest()
    return _summary(work, latencies, elapsed, settled)


def _loop(
    call: Callable[[int], Future[Any] | None],
    first: int,
    seconds: float,
    calls: int | None,
    latencies: list[float],
) -> None:
    now = perf_counter()
    end = now + seconds
    number = first
    while now < end and (calls is None or number - first < calls):
        outcome = call(number)
        before, now = now, perf_counter()
        if outcome is None:
            latencies.append(now - before)
        else:
            outcome.add_done_callback(partial(_note, latencies, before))
        number += 1


def _note(latencies: list[float], begin: float, outcome: Future[Any]) -> None:
    if outcome.exception() is None:  # Closing the writer tells of failures.
        latencies.append(perf_counter() - begin)


def _summary(
    work: Work, latencies: Sequence[list[float]], elapsed: float, settled: float
) -> Measured:
    ordered = sorted(latency for each in latencies for latency in each)
    return Measured(
        work=work,
        calls=len(ordered),
        seconds=elapsed,
        settled=settled,
        p50_us=1e6 * ordered[len(ordered) // 2],
        p99_us=1e6 * ordered[len(ordered) * 99 // 100],
    )
