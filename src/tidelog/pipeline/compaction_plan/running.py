"""A run of ``compact_plan``: what is asked of the log, planned in Spark, and offered to nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import randbits
from time import perf_counter
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import tidelog
from tidelog.formats.compaction_plan import StreamPlan, encode_plan, plan_parts
from tidelog.formats.live_index import LiveIndex, encode_live_index
from tidelog.interface.figures import PlanOutcome
from tidelog.pipeline.compaction_plan.planning import BUCKET_ROWS, Planning, Scope, Verdicts
from tidelog.pipeline.compaction_plan.progress import (
    CompactPlanSummary,
    PlannedStream,
    PlanProgress,
)
from tidelog.storage.atomic_file import replace_file
from tidelog.storage.os_vfs import OsVfs

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done; the fields are the arguments of ``compact_plan``."""

    url: str
    topic: str | None
    apply: bool
    full: bool
    buckets: int | None
    directory: Path | None
    timeout: float


def run(
    spark: SparkSession, work: Work, progress: Callable[[PlanProgress], None] | None
) -> CompactPlanSummary:
    """Plan, write down what was found, and offer it to the nodes if that is wanted."""
    started = perf_counter()
    with tidelog.connect(work.url, topic=work.topic, timeout=work.timeout) as log:
        scope = _scope(log, work)
        entries = scope.glsn_end - scope.glsn_begin
        buckets = work.buckets or 1 + entries // BUCKET_ROWS
        found = _plan(spark, scope, buckets, progress) if entries else {}
        if work.directory is not None:
            _write(work.directory, found)
        outcomes = tuple(_offer(log, scope, found, work, progress)) if work.apply else ()
        return CompactPlanSummary(
            topic=log.name,
            glsn_begin=scope.glsn_begin,
            glsn_end=scope.glsn_end,
            gc_boundary=scope.boundary,
            buckets=buckets,
            streams=tuple(
                PlannedStream(stream, each.index, len(each.live), len(each.dead))
                for stream, each in found.items()
            ),
            seconds=perf_counter() - started,
            directory=None if work.directory is None else str(work.directory),
            outcomes=outcomes,
        )


def _scope(log: RemoteLog, work: Work) -> Scope:
    """Ask for the GC boundary first: it may rise meanwhile, and a lower one does no harm."""
    stats = log.stats()
    position = log.position()
    high = position.high_watermark
    boundary = min((stream.gc_boundary for stream in stats.streams), default=0)
    return Scope(
        url=work.url,
        topic=log.name,
        timeout=work.timeout,
        glsn_begin=min(position.first_available, high + 1),
        glsn_end=high + 1,
        boundary=high if log.versions == "log" else boundary,
    )


def _plan(
    spark: SparkSession,
    scope: Scope,
    buckets: int,
    progress: Callable[[PlanProgress], None] | None,
) -> dict[int, Verdicts]:
    started = perf_counter()
    planning = Planning(spark, scope, seed=randbits(64))
    try:
        keyed = planning.read()
        if progress is not None:
            progress(PlanProgress("read", keyed, perf_counter() - started))
        found = planning.judge(buckets)
    finally:
        planning.close()
    if progress is not None:
        dead = sum(len(each.dead) for each in found.values())
        progress(PlanProgress("judged", dead, perf_counter() - started))
    return found


def _write(directory: Path, found: dict[int, Verdicts]) -> None:
    """The live indexes of each log stream, in the format of a snapshot's."""
    directory.mkdir(parents=True, exist_ok=True)
    for stream, each in found.items():
        live = encode_live_index(LiveIndex(term=0, index=each.index, live=each.live))
        replace_file(OsVfs(), str(directory), f"{stream}.live", live)


def _offer(
    log: RemoteLog,
    scope: Scope,
    found: dict[int, Verdicts],
    work: Work,
    progress: Callable[[PlanProgress], None] | None,
) -> Iterator[PlanOutcome]:
    for stream, each in found.items():
        plan = StreamPlan(log.log_id, stream, each.index, scope.boundary, each.dead)
        for part in plan_parts(plan):
            started = perf_counter()
            outcomes = log.offer_plan(encode_plan(part), full=work.full)
            if progress is not None:
                dead = sum(outcome.dead for outcome in outcomes)
                progress(PlanProgress("offered", dead, perf_counter() - started, stream))
            yield from outcomes
