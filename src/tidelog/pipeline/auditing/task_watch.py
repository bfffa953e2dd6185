"""Tells how far a Spark job is, while its caller waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias, cast
from uuid import uuid4

from pyspark import SparkContext, StatusTracker
from pyspark.sql import SparkSession

from tidelog.pipeline.session import is_remote

LOOK_SECONDS: Final = 1.0
_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
"""What a job group is made of; those of the caller are given back."""

Tell: TypeAlias = Callable[[int, int], None]
"""Told how many tasks are done, and how many there are as far as Spark knows."""


@contextmanager
def watched(spark: SparkSession, what: str, tell: Tell) -> Iterator[None]:
    """Call ``tell`` in another thread while jobs run inside, whenever there is news.

    A client of Spark Connect cannot see tasks: there it is never called.
    """
    if is_remote(spark):
        yield
        return
    context = spark.sparkContext
    with _grouped(context, what) as group:
        done = threading.Event()
        arguments = (context.statusTracker(), group, tell, done)
        thread = threading.Thread(target=_watch, args=arguments, name="tidelog-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def _grouped(context: SparkContext, what: str) -> Iterator[str]:
    """Jobs that this thread starts are of a group of their own."""
    before = [context.getLocalProperty(name) for name in _GROUP]
    group = f"tidelog-{uuid4()}"
    context.setJobGroup(group, f"tidelog {what}")
    try:
        yield group
    finally:
        for name, value in zip(_GROUP, before, strict=True):
            context.setLocalProperty(name, cast("str", value))  # None takes it away.


def _watch(tracker: StatusTracker, group: str, tell: Tell, done: threading.Event) -> None:
    last = (0, 0)
    while not done.wait(LOOK_SECONDS):
        now = _count(tracker, group)
        if now != last:
            last = now
            tell(*now)


def _count(tracker: StatusTracker, group: str) -> tuple[int, int]:
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    numbers = [stage for job in jobs if job is not None for stage in job.stageIds]
    stages = [tracker.getStageInfo(number) for number in numbers]
    known = [stage for stage in stages if stage is not None]
    return (
        sum(stage.numCompletedTasks for stage in known),
        sum(stage.numTasks for stage in known),
    )
