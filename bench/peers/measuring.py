"""One cluster does all works; what comes out are figures by name.

A measurement of throughput does more and more of a work, until that takes long enough; the last run
counts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Final

from bench.peers.interface import NODES, Client, Cluster, NotOffered
from bench.peers.lean import PeerError
from bench.peers.processes import Unavailable
from bench.peers.works import (
    APPENDS,
    BATCHES,
    DISKS,
    RATE,
    READS,
    SMALL,
    SPARK,
    STREAMS,
    TOTAL_ORDER,
    Kind,
    Scale,
    Work,
)

Figures = dict[str, float]
Step = Callable[[int], object]
"""Does so many units of a work."""

_ENOUGH_SHARE: Final = 0.5
"""A run counts if it takes this share of the time that it should."""
_GROWTH_MAX: Final = 10.0
_LEAST_SMALL: Final = 1_000
"""With fewer small appends, none would have company."""
_TRIAL: Final = 20
"""A trial of reading takes one record of so many."""
_DISTINCT: Final = 1_000
_SPARK_READS: Final = 2
"""As many do not count: they warm up."""
_SEVERAL: Final = "streams"
"""A topic of several streams"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one client, or the cluster itself, made of a work."""

    client: str
    work: Work
    figures: Figures
    failure: str = ""
    """Why there are no figures."""
    is_offered: bool = True
    """Otherwise nothing failed: the client has no such thing."""


def measure(cluster: Cluster, scale: Scale) -> Iterator[Measured]:
    """All works, one after the other, on a fresh cluster; the rest goes on if one fails."""
    for work in DISKS:
        yield from _disk(cluster, work, scale)
    for work in READS:
        for client in cluster.clients(_filled(work.size)):
            yield from _tried(client, work, partial(_consume, client, work, scale))
    for size in BATCHES:
        topic = f"size{size}"
        cluster.make_topic(topic, 1)
        for client in cluster.clients(topic):
            for work in APPENDS:
                if work.size == size:
                    step = partial(_append, cluster, client, work, scale)
                    yield from _tried(client, work, step)
    cluster.make_topic(_SEVERAL, STREAMS)
    for client in cluster.readers(_SEVERAL):
        yield from _tried(client, TOTAL_ORDER, partial(_consume_streams, client, scale))
    for client in cluster.spark_readers(_SEVERAL):
        yield from _tried(client, SPARK, partial(_read_by_spark, client, scale))


def _tried(client: Client, work: Work, step: Callable[[], Figures]) -> Iterator[Measured]:
    """Figures, or why there are none."""
    os.sync()  # What earlier works left to be written is not this one's.
    try:
        with client:
            figures = step()
    except NotOffered as missing:
        yield Measured(client.name, work, {}, str(missing), is_offered=False)
    except Unavailable as error:
        yield Measured(client.name, work, {}, str(error))
    except Exception as error:  # Clients of others raise whatever they like.
        yield Measured(client.name, work, {}, repr(error))
    else:
        yield Measured(client.name, work, figures)


def _filled(size: int) -> str:
    return f"filled{size}"


# -- appends ---------------------------------------------------------------------------------------


def _append(cluster: Cluster, client: Client, work: Work, scale: Scale) -> Figures:
    values = values_of(work.size, work.batch)
    match work.kind:
        case Kind.BATCHED:
            return _throughput(
                cluster, work, scale, lambda count: client.append_batches(values, count)
            )
        case Kind.SMALL:
            return _throughput(
                cluster, work, scale, lambda count: client.append_small(values[0], count)
            )
        case Kind.ONE:
            client.append_one_by_one(values[0], scale.appends // 10)
            return percentiles(client.append_one_by_one(values[0], scale.appends))
        case Kind.RATE:
            client.append_at_rate(values[0], RATE, RATE // 10)
            count = int(RATE * scale.rate_seconds)
            return percentiles(client.append_at_rate(values[0], RATE, count))
        case _:
            raise NotOffered(work.name)


def _throughput(cluster: Cluster, work: Work, scale: Scale, step: Step) -> Figures:
    """Do more and more, until it takes long enough: by then everything is warm."""
    most = max(scale.bytes_max // (work.size * work.batch), 1)
    count = _LEAST_SMALL if work.kind is Kind.SMALL else 1
    pids = cluster.processes.pids
    step(count)  # Makes connections, and what else is made only once.
    while True:
        nodes, here, begin = pids.cpu_seconds(), process_time(), perf_counter()
        step(count)
        seconds, spent = perf_counter() - begin, process_time() - here
        if seconds >= _ENOUGH_SHARE * scale.seconds or count >= most:
            break
        growth = min(scale.seconds / seconds, _GROWTH_MAX)
        count = min(max(int(count * growth), count + 1), most)
    records = count * work.batch
    return {
        "records_per_second": records / seconds,
        "megabytes_per_second": records * work.size / seconds / 1e6,
        "node_cpu_us": 1e6 * (pids.cpu_seconds() - nodes) / records,
        "client_cpu_us": 1e6 * spent / records,
    }


# -- reads and space -------------------------------------------------------------------------------


def _disk(cluster: Cluster, work: Work, scale: Scale) -> Iterator[Measured]:
    """Fill a topic, for later reads too, and see what all nodes keep of it."""
    topic = _filled(work.size)
    cluster.make_topic(topic, 1)
    cluster.processes.pids.settle()
    before = cluster.kept_bytes()
    batch = BATCHES[work.size]
    count = scale.disk_bytes // (work.size * batch)
    with cluster.clients(topic)[0] as client:
        client.append_batches(values_of(work.size, batch), count)
    records = cluster.flushed(topic, count * batch)
    cluster.processes.pids.settle()
    kept = cluster.kept_bytes() - before
    if records:
        payload = records * work.size * NODES
        yield Measured("", work, {"disk_bytes_per_byte": kept / payload})


def _consume(client: Client, work: Work, scale: Scale) -> Figures:
    batch = BATCHES[work.size]
    there = scale.disk_bytes // (work.size * batch) * batch
    trial = client.consume(max(there // _TRIAL, 1))
    count = min(max(int(trial.records_per_second * scale.seconds), there // _TRIAL), there)
    return {"records_per_second": client.consume(count).records_per_second}


def _consume_streams(client: Client, scale: Scale) -> Figures:
    """Fill several streams, then read them as one."""
    batch = BATCHES[SMALL]
    count = scale.disk_bytes // (SMALL * batch)
    client.append_batches(values_of(SMALL, batch), count)
    client.consume(count * batch // _TRIAL)
    return {"records_per_second": client.consume(count * batch).records_per_second}


def _read_by_spark(client: Client, scale: Scale) -> Figures:
    """The streams that were filled for readers."""
    least = scale.disk_bytes // SMALL
    found = [client.consume(least) for _ in range(2 * _SPARK_READS)]
    if any(reading.records < least for reading in found):
        raise PeerError(f"Spark has seen {min(reading.records for reading in found)} records")
    rates = [reading.records_per_second for reading in found[_SPARK_READS:]]
    return {"records_per_second": median(rates)}


def values_of(size: int, count: int) -> list[bytes]:
    """Random values, which nobody can compress."""
    chance = random.Random(size)
    return [chance.randbytes(size) for _ in range(min(count, _DISTINCT))]


def percentiles(seconds: list[float]) -> Figures:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return 1e6 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    return {"p50_us": at(0.5), "p99_us": at(0.99)}
