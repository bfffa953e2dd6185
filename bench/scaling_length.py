"""What a record costs, and what nodes hold in memory, as a log gets longer.

Batches of 1,000 records of 100 B are appended until the log has so many.  Then pages are read,
memory is looked at, and all nodes are killed and started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shutil import disk_usage
from statistics import median
from time import perf_counter
from typing import Final

from bench.peers.measuring import values_of
from bench.scaling_points import SMALL, Figures, Point, Scale, client_of, close, cost, pids_of, run
from tidelog.testing import LocalCluster

BATCH: Final = 1_000
WINDOW: Final = 8
"""Batches under way."""
PAGES: Final = 5
"""Each is read so often; the median counts."""
RESTART_SECONDS: Final = 120.0
DISK_SHARE: Final = 1.5
"""Of the bytes of all replicas, what they and files on their way to segments take at most."""


@dataclass(slots=True)
class _Log:
    """A log that grows until its time is over."""

    cluster: LocalCluster
    deadline: float
    records: int = 0

    @property
    def is_late(self) -> bool:
        return perf_counter() >= self.deadline

    def has_room(self, records: int) -> bool:
        """Whether the disk can take a log that is so long."""
        size = (records - self.records) * SMALL * len(self.cluster.nodes)
        return DISK_SHARE * size < disk_usage(self.cluster.directory).free

    async def grow_to(self, records: int) -> Figures:
        """Append until the log is so long, or until it is too late."""
        client = client_of(self.cluster)
        link = await client.new_link()
        frame = client.frame(values_of(SMALL, BATCH))
        try:
            pids = pids_of(self.cluster)
            before, begin = pids.cpu_seconds(), perf_counter()
            batches = -(-(records - self.records) // BATCH)
            sent = await link.pump_until(frame, self.deadline, WINDOW, batches)
            spent, passed = pids.cpu_seconds() - before, perf_counter() - begin
        finally:
            close([link])
        self.records += sent * BATCH
        return cost(max(sent * BATCH, 1), passed, spent)

    def memory(self) -> Figures:
        """Of the node that has most: of its own, and with the files that it maps."""
        pids = pids_of(self.cluster)
        return {
            "own_megabytes": max(pids.own_bytes()) / 1e6,
            "resident_megabytes": max(pids.resident_bytes()) / 1e6,
        }

    def pages(self) -> Figures:
        """What a page of 1,000 records takes, the newest and one in the middle."""
        with self.cluster.connect() as log:
            end = log.high_watermark + 1

            def page_ms(begin: int) -> float:
                taken = []
                for _ in range(PAGES):
                    started = perf_counter()
                    for _ in log.read_pages(begin, min(begin + BATCH, end)):
                        pass
                    taken.append(perf_counter() - started)
                return 1e3 * median(taken)

            return {
                "newest_page_ms": page_ms(max(end - BATCH, 1)),
                "middle_page_ms": page_ms(max(end // 2, 1)),
            }

    def restart(self) -> Figures:
        """Kill all nodes, start them, and wait for the first append."""
        for node in self.cluster.nodes:
            node.kill()
        begin = perf_counter()
        for node in self.cluster.nodes:
            node.start()
        self.cluster.wait_until_ready(RESTART_SECONDS)
        ready = perf_counter() - begin
        with self.cluster.connect(timeout=RESTART_SECONDS) as log:
            log.append(b"")
        return {"ready_seconds": ready, "restart_seconds": perf_counter() - begin}


def length_points(cluster: LocalCluster, scale: Scale) -> Iterator[Point]:
    """One for each length, as far as the time allows."""
    log = _Log(cluster, perf_counter() + scale.length_seconds)
    for length in scale.lengths:
        if not log.has_room(length):
            yield Point(length, {}, "the disk has no room for it")
            return
        grown = run(log.grow_to(length))
        figures = grown | log.memory() | log.pages() | log.restart()
        if log.records < length:
            why = f"cut short after {scale.length_seconds:.0f} s on the way to {length:,}"
            yield Point(log.records, figures, why)
            return
        yield Point(length, figures)
        if log.is_late:
            return
