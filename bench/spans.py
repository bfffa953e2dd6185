"""Where the time of a record goes in a cluster, from the client's send to its receipt.

A lean client appends to the leader of a log stream; what its nodes show on their pages for
Prometheus is read before and after.  Means of what was measured at the ends of a span are taken
from one another, so that the spans add up to what the client has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, time_ns
from typing import Final

from bench.peers.interface import NODES, Client
from bench.peers.tidelog import LeanTidelog, TidelogClient
from bench.peers.works import RATE, SMALL
from bench.scrape import Observed, Samples, histogram, pair, scrape
from tidelog.formats.batch import encode_values, seal_batch
from tidelog.testing import LocalCluster

TOPIC: Final = "spans"
VALUE: Final = bytes(SMALL)
ENCODINGS: Final = 1_000
Figures = dict[str, float]
Drive = Callable[[Client], list[float]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    appends: int = 2_000
    rate_seconds: float = 4.0


QUICK = Scale(appends=100, rate_seconds=0.5)


def measure_spans(directory: Path, scale: Scale) -> Iterator[tuple[str, Figures]]:
    """Work and span, and the figures of each."""
    with LocalCluster(NODES, directory=directory / "spans", streams=1, topic=TOPIC) as cluster:
        with cluster.connect() as log:
            stream = log.append(VALUE).stream
        leader = cluster.leader_of(stream)
        lean = LeanTidelog(leader.ports.clients, TOPIC, stream, "ordered")
        usual = TidelogClient(cluster.url, "ordered")
        for work, warm_up, drive in _works(scale):
            with lean:
                warm_up(lean)
                before = [scrape(node) for node in cluster.nodes]
                taken = drive(lean)
                after = [scrape(node) for node in cluster.nodes]
            here = cluster.nodes.index(leader)
            for span, figures in _spans(taken, before, after, here):
                yield f"{work}: {span}", figures
            with usual:
                warm_up(usual)
                yield f"{work}: with Tidelog's client", _of(drive(usual))
    yield "encoding: one record by the client", _encoding()


def _works(scale: Scale) -> Sequence[tuple[str, Drive, Drive]]:
    count = int(RATE * scale.rate_seconds)
    return (
        (
            "one in flight",
            lambda client: client.append_one_by_one(VALUE, scale.appends // 10),
            lambda client: client.append_one_by_one(VALUE, scale.appends),
        ),
        (
            f"{RATE:,}/s",
            lambda client: client.append_at_rate(VALUE, RATE, RATE // 10),
            lambda client: client.append_at_rate(VALUE, RATE, count),
        ),
    )


def _spans(
    taken: list[float], before: Sequence[Samples], after: Sequence[Samples], here: int
) -> Iterator[tuple[str, Figures]]:
    """One after the other, and indented what is a part of the span above or beside the path."""
    at_leader = before[here], after[here]
    served = histogram(*at_leader, "tidelog_append_seconds")
    stored, propagated, ordered = (
        histogram(*at_leader, "tidelog_node_append_seconds", f'stage="{stage}"')
        for stage in ("stored", "propagated", "ordered")
    )
    cut = histogram(*at_leader, "tidelog_node_order_seconds")
    told = ordered.mean_us - stored.mean_us - cut.mean_us
    rounds, syncs = _raft(before, after)
    yield "whole", _of(taken)
    yield "client and wire, both ways", _mean(1e6 * fmean(taken) - served.mean_us)
    yield "gateway, both ways", _mean(served.mean_us - ordered.mean_us)
    yield "leader took it → STORED", _both(stored)
    yield "- WAL sync", _both(histogram(*at_leader, "tidelog_node_sync_seconds"))
    yield "report → cut arrives", _both(cut)
    yield "- Raft: proposal → applied", _mean(rounds.mean_us)
    yield "- - Raft sync", _mean(syncs.mean_us)
    yield "- report → proposal, result → here", _mean(cut.mean_us - rounds.mean_us)
    yield "cut arrives → ORDERED told", _mean(told)
    yield "beside: leader took it → PROPAGATED", _both(propagated)
    yield "beside: leader took it → ORDERED", _both(ordered)
    cuts = histogram(*at_leader, "tidelog_node_cut_seconds")
    yield "beside: cut → next cut", _both(cuts)


def _raft(before: Sequence[Samples], after: Sequence[Samples]) -> tuple[Observed, Observed]:
    """Rounds of the metadata node that led, and its syncs."""
    found = [
        (
            pair(old, new, "tidelog_raft_rounds_total", "tidelog_raft_round_seconds_total"),
            pair(old, new, "tidelog_raft_fsyncs_total", "tidelog_raft_fsync_seconds_total"),
        )
        for old, new in zip(before, after, strict=True)
    ]
    return max(found, key=lambda one: one[0].count)


def _encoding() -> Figures:
    """What a client does with a record before it sends it."""
    taken = []
    for _ in range(ENCODINGS):
        begin = perf_counter()
        body = encode_values([VALUE], timestamp_us=time_ns() // 1_000)
        seal_batch(body, stream=1, term=1, first_llsn=1)
        taken.append(perf_counter() - begin)
    return _of(taken)


def _of(taken: list[float]) -> Figures:
    return {"mean_us": 1e6 * fmean(taken), "p50_us": 1e6 * median(taken)}


def _both(observed: Observed) -> Figures:
    p50 = observed.p50_us
    return _mean(observed.mean_us) | ({} if p50 is None else {"p50_us": p50})


def _mean(value: float) -> Figures:
    return {"mean_us": value}
