"""Many seeds over several processes, and what they add up to."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from typing import Final

from tidelog.testing.simulation import Outcome, simulate
from tidelog.testing.sometimes import RARELY, Kind, Rare, never

SEEDS_PER_TASK: Final = 4
TASKS_PER_PROCESS: Final = 3
"""Tasks that wait for a process, so that none is ever idle and an interrupt loses little."""
SEEDS_FOR_SOMETIMES: Final = 300
"""A batch of this many seeds must have met every rare thing of its kind ..."""
SEEDS_FOR_RARELY: Final = 3_000
"""... and one of this many also what is rarest."""


class Summary:
    """What a batch of one kind came to."""

    __slots__ = ("counts", "failures", "happened", "kind", "seeds")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.seeds = 0
        self.happened = 0
        self.counts: Counter[Rare] = Counter()
        self.failures: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """Take the outcome of a seed."""
        self.seeds += 1
        self.happened += outcome.happened
        self.counts.update(outcome.counts)
        if outcome.failure is not None:
            self.failures.append(outcome)

    def never_happened(self) -> list[Rare]:
        """What a batch of this size should have met, but did not."""
        if self.seeds < SEEDS_FOR_SOMETIMES:
            return []
        missed = never(self.counts, self.kind)
        is_large = self.seeds >= SEEDS_FOR_RARELY
        return [rare for rare in missed if is_large or rare not in RARELY]


def run_seeds(kind: Kind, seeds: Sequence[int], processes: int) -> Generator[Outcome, None, None]:
    """Run seeds and yield their outcomes as they come; closing the iterator stops the rest."""
    if processes == 1:
        yield from (simulate(kind, seed) for seed in seeds)
        return
    chunks = _chunks(seeds)
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_leave_interrupts)
    try:
        pending: dict[Future[list[Outcome]], None] = {}
        for chunk in islice(chunks, processes * TASKS_PER_PROCESS):
            pending[pool.submit(_run_chunk, kind, chunk)] = None
        while pending:
            done = wait(pending, return_when=FIRST_COMPLETED).done
            for future in [future for future in pending if future in done]:
                del pending[future]
                for chunk in islice(chunks, 1):
                    pending[pool.submit(_run_chunk, kind, chunk)] = None
                yield from future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _chunks(seeds: Sequence[int]) -> Iterator[Sequence[int]]:
    for begin in range(0, len(seeds), SEEDS_PER_TASK):
        yield seeds[begin : begin + SEEDS_PER_TASK]


def _run_chunk(kind: Kind, seeds: Iterable[int]) -> list[Outcome]:
    return [simulate(kind, seed) for seed in seeds]


def _leave_interrupts() -> None:
    """Let the parent alone react to an interrupt from the keyboard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
