"""What a record costs as one thing grows and all else stays: streams, clients, size, length.

Three nodes in their processes, all roles, default settings, three replicas; records are ORDERED.
Lean clients drive them, so that it is the nodes that are measured.  Each point has its time; what
that cut short says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from time import monotonic, perf_counter
from typing import Final

from bench.peers.interface import NODES
from bench.peers.lean import Frame, PeerError
from bench.peers.measuring import percentiles, values_of
from bench.peers.processes import Pids, pause
from bench.peers.tidelog import LeanTidelog, TidelogLink
from bench.scaling_length import length_points
from bench.scaling_points import (
    QUICK,
    SMALL,
    Curve,
    Figures,
    Point,
    Scale,
    at_once,
    client_of,
    close,
    connected,
    cost,
    cost_of,
    pids_of,
    run,
)
from tidelog.errors import DeadlineExceeded, LogError
from tidelog.testing import LocalCluster

__all__ = ["QUICK", "Curve", "Point", "Scale", "measure_scaling"]

STREAMS_AT_ONCE: Final = 100
"""So many log streams are made by one request: each of them has to find a leader."""
LOOK_SECONDS: Final = 0.25
PER_NODE: Final = 16
"""Appends under way to each node, whatever the number of log streams."""
OF_A_SIZE: Final = 4
"""Appends under way, whatever their size."""


def measure_scaling(
    directory: Path, scale: Scale, before_each: Callable[[], None] = lambda: None
) -> Iterator[tuple[Curve, Point]]:
    """All points of all curves, each curve on a fresh cluster.

    ``before_each`` curve, the machine is brought into the same state.
    """
    curves: dict[Curve, Callable[[LocalCluster, Scale], Iterator[Point]]] = {
        Curve.STREAMS: stream_points,
        Curve.CLIENTS: client_points,
        Curve.SIZES: size_points,
        Curve.LENGTH: length_points,
    }
    for curve, points in curves.items():
        before_each()
        place = directory / f"scaling-{curve.name.lower()}"
        with LocalCluster(NODES, directory=place, streams=1) as cluster:
            for point in points(cluster, scale):
                yield curve, point


# -- log streams -----------------------------------------------------------------------------------


class ManyStreams(TidelogLink):
    """Sends each append to the next of some log streams."""

    def __init__(self, topic: LeanTopic, streams: Sequence[int]) -> None:
        super().__init__()
        self._next = cycle([topic.append_to(stream) for stream in streams])

    def send(self, frame: Frame) -> None:
        if self.is_welcome:
            self.request, frame = next(self._next)
        super().send(frame)


class LeanTopic:
    """Prepared appends of one record."""

    def __init__(self, topic: str, size: int) -> None:
        self._topic = topic
        self._values = values_of(size, 1)

    def append_to(self, stream: int) -> tuple[bytes, Frame]:
        client = LeanTidelog(0, self._topic, stream, "ordered")
        return client.request, client.frame(self._values)


def stream_points(cluster: LocalCluster, scale: Scale) -> Iterator[Point]:
    """Small appends all over the streams, each of which is led by some node."""
    for count in scale.streams:
        topic = f"streams{count}"
        try:
            ports = make_streams(cluster, topic, count, scale.ready_seconds)
            yield Point(count, run(_over_streams(cluster, topic, ports, scale)))
        except (LogError, PeerError) as error:
            yield Point(count, {}, f"left out: {error}")
            return


def make_streams(
    cluster: LocalCluster, topic: str, count: int, seconds: float
) -> dict[int, list[int]]:
    """Streams that are led, by the port of who leads them."""
    deadline = monotonic() + seconds
    with cluster.connect(timeout=seconds) as log:
        log.create_topic(topic, streams=min(count, STREAMS_AT_ONCE), replicas=NODES)
        for _ in range(STREAMS_AT_ONCE, count, STREAMS_AT_ONCE):
            log.add_streams(topic, STREAMS_AT_ONCE)
    while True:
        streams = [one for one in cluster.status().streams if one.topic == topic]
        led = sum(one.leader != 0 for one in streams)
        if led == count:
            break
        if monotonic() > deadline:
            raise DeadlineExceeded(f"{led} of {count} log streams have leaders after {seconds} s")
        pause(LOOK_SECONDS)
    ports = {node.id: node.ports.clients for node in cluster.nodes}
    found: dict[int, list[int]] = {}
    for stream in streams:
        found.setdefault(ports[stream.leader], []).append(stream.stream)
    return found


async def _over_streams(
    cluster: LocalCluster, topic: str, ports: dict[int, list[int]], scale: Scale
) -> Figures:
    pids = pids_of(cluster)
    idle = await _idle_share(pids, scale.seconds)
    lean = LeanTopic(topic, SMALL)
    async with connected(
        [(ManyStreams(lean, streams), port) for port, streams in ports.items()]
    ) as links:
        spread = await cost_of(pids, links, Frame(b""), PER_NODE, scale.seconds)
        deadline = perf_counter() + scale.seconds
        alone = percentiles(await links[0].one_by_one_until(Frame(b""), deadline))
    return spread | alone | {"idle_cpu_share": idle}


async def _idle_share(pids: Pids, seconds: float) -> float:
    """Processor time of all nodes while nobody asks for anything, of one core."""
    before, begin = pids.cpu_seconds(), perf_counter()
    await asyncio.sleep(seconds)
    return (pids.cpu_seconds() - before) / (perf_counter() - begin)


# -- clients and sizes -----------------------------------------------------------------------------


def client_points(cluster: LocalCluster, scale: Scale) -> Iterator[Point]:
    """Connections to the leader of one stream, each with one append in flight."""
    client = client_of(cluster)
    for count in scale.clients:
        yield Point(count, run(_by_clients(cluster, client, count, scale.seconds)))


async def _by_clients(
    cluster: LocalCluster, client: LeanTidelog, count: int, seconds: float
) -> Figures:
    pids, frame = pids_of(cluster), client.frame(values_of(SMALL, 1))
    links = [await client.new_link() for _ in range(count)]
    try:
        await at_once(link.one_by_one(frame, 3) for link in links)
        before, begin = pids.cpu_seconds(), perf_counter()
        taken = await at_once(link.one_by_one_until(frame, begin + seconds) for link in links)
        spent, passed = pids.cpu_seconds() - before, perf_counter() - begin
    finally:
        close(links)
    times = [one for times in taken for one in times]
    return cost(len(times), passed, spent) | percentiles(times)


def size_points(cluster: LocalCluster, scale: Scale) -> Iterator[Point]:
    """Appends of one record each."""
    client = client_of(cluster)
    for size in scale.sizes:
        yield Point(size, run(_of_size(cluster, client, size, scale.seconds)))


async def _of_size(
    cluster: LocalCluster, client: LeanTidelog, size: int, seconds: float
) -> Figures:
    frame = client.frame(values_of(size, 1))
    links = [await client.new_link()]
    try:
        together = await cost_of(pids_of(cluster), links, frame, OF_A_SIZE, seconds)
        alone = percentiles(await links[0].one_by_one_until(frame, perf_counter() + seconds))
    finally:
        close(links)
    megabytes = together["records_per_second"] * size / 1e6
    return together | alone | {"megabytes_per_second": megabytes}
