"""A run of ``archive``: ranges of GLSNs, in steps that each end with a durable manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final, TypeAlias

import pyarrow as pa

from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.errors import CorruptData, OutOfRange, Trimmed, WrongLog
from tidelog.formats.archive_manifest import ArchivedFile, ArchiveManifest
from tidelog.pipeline.archiving.home import ArchiveHome
from tidelog.pipeline.archiving.progress import ArchiveProgress, ArchiveSummary
from tidelog.pipeline.archiving.topic import ArchivableTopic
from tidelog.pipeline.archiving.trimming import Trimming, trim_behind

STEP_RANGES: Final = 16
"""How many ranges are written before the manifest moves: what a crash may cost."""

IDENTITY: Final = ("glsn", "stream", "llsn", "timestamp")
"""What tells an entry from another one that was given the same GLSN."""

GlsnSpan: TypeAlias = tuple[int, int]
WriteRanges: TypeAlias = Callable[[Sequence[GlsnSpan]], Sequence[ArchivedFile]]
"""Writes the entries of ranges into files; returns the files, durable, in the order of ranges."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be archived; the fields are the arguments of ``archive``."""

    up_to: int | None
    older_than: float | None
    range_entries: int
    trim: bool
    keep: int


def run(
    topic: ArchivableTopic,
    log_id: str,
    home: ArchiveHome,
    write: WriteRanges,
    plan: Plan,
    *,
    now_us: int,
    progress: Callable[[ArchiveProgress], None] | None = None,
) -> ArchiveSummary:
    """Bring the archive up to where the plan wants it; then trim the log, if that is planned."""
    started = perf_counter()
    stats = topic.stats()
    new = ArchiveManifest(log_id, topic.name, stats.first_available, stats.delete_mark)
    found, leftovers = home.open(new)
    check_history(topic, home, found)
    end = _find_end(topic, plan, now_us)
    manifest = found
    while manifest.glsn_end < end:
        begun = perf_counter()
        before = manifest
        manifest = _step(topic, home, write, manifest, end, plan.range_entries)
        if progress is not None:
            progress(_told(before, manifest, end, perf_counter() - begun))
    trimming = _trim(topic, home, plan)
    return _summary(
        topic.name, home.directory, found, manifest, leftovers, trimming, perf_counter() - started
    )


def check_history(topic: ArchivableTopic, home: ArchiveHome, manifest: ArchiveManifest) -> None:
    """Raise if the log has another entry in the place of the last one that is archived, or none.

    So it is with a log that was put back from a backup, and went on from there.
    """
    end = topic.position().glsn
    if end < manifest.glsn_end:
        raise WrongLog(
            f"topic {topic.name!r} ends at GLSN {end - 1}, but the archive in {home.directory} "
            f"goes to {manifest.glsn_end - 1}: was the log put back from a backup? Begin another "
            "archive, in another directory"
        )
    archived = home.last_row(manifest, IDENTITY)
    if archived is None or archived["glsn"][0].as_py() < topic.first_available:
        return
    glsn = archived["glsn"][0].as_py()
    for batch in topic.read_arrow(glsn, glsn + 1, columns=IDENTITY):
        # Not as Python's values, which have no times before the year 1 or after 9999.
        if not pa.Table.from_batches([batch]).equals(archived):
            raise WrongLog(
                f"at GLSN {glsn} topic {topic.name!r} has another entry than the archive in "
                f"{home.directory}: was the log put back from a backup? Begin another archive, in "
                "another directory"
            )


def _find_end(topic: ArchivableTopic, plan: Plan, now_us: int) -> int:
    """The first GLSN that is not to be archived."""
    end = topic.position().glsn
    if plan.up_to is not None:
        if plan.up_to > end:
            raise OutOfRange(
                f"topic {topic.name!r} has not reached GLSN {plan.up_to}: it ends at {end - 1}"
            )
        end = plan.up_to
    if plan.older_than is not None:
        end = min(end, topic.find_time(now_us - int(plan.older_than * 1_000_000)).glsn)
    return end


def _step(
    topic: ArchivableTopic,
    home: ArchiveHome,
    write: WriteRanges,
    manifest: ArchiveManifest,
    end: int,
    range_entries: int,
) -> ArchiveManifest:
    """Archive the next ranges."""
    begin = manifest.glsn_end
    first = topic.first_available
    if first > begin:
        raise Trimmed(
            f"GLSN {begin} of topic {topic.name!r} comes next in the archive, but was trimmed; the "
            f"first available is {first}: begin another archive, in another directory",
            first_available=first,
        )
    ranges = spans(begin, end, range_entries)
    files = write(ranges)
    if not covers(files, ranges):
        raise CorruptData(f"tasks have not written [{begin}, {ranges[-1][1]}) once and as a whole")
    # Only now, for what compaction drops while the entries are read may be missing among them (H5).
    stats = topic.stats()
    return home.add(manifest, files, DeleteHorizon(stats.delete_horizon, stats.delete_mark))


def spans(begin: int, end: int, range_entries: int) -> list[GlsnSpan]:
    """The ranges of the next step: ``[begin, end)`` in parts, or its first ``STEP_RANGES``."""
    stop = min(end, begin + STEP_RANGES * range_entries)
    return [
        (first, min(first + range_entries, stop)) for first in range(begin, stop, range_entries)
    ]


def covers(files: Sequence[ArchivedFile], ranges: Sequence[GlsnSpan]) -> bool:
    """Whether the files lie one behind the other, and are all of the ranges."""
    position = ranges[0][0]
    for file in files:
        if file.glsn_begin != position:
            return False
        position = file.glsn_end
    return position == ranges[-1][1]


def _trim(topic: ArchivableTopic, home: ArchiveHome, plan: Plan) -> Trimming:
    durable = home.manifest()
    if not plan.trim or durable is None:
        return Trimming(topic.first_available)
    return trim_behind(topic, durable, plan.keep, home.check)


def _told(
    before: ArchiveManifest, after: ArchiveManifest, last: int, seconds: float
) -> ArchiveProgress:
    added = after.files[len(before.files) :]
    return ArchiveProgress(
        glsn_begin=before.glsn_end,
        glsn_end=after.glsn_end,
        glsn_last=last,
        files=len(added),
        rows=sum(file.rows for file in added),
        size=sum(file.size for file in added),
        seconds=seconds,
    )


def _summary(
    topic: str,
    directory: str,
    before: ArchiveManifest,
    after: ArchiveManifest,
    leftovers: int,
    trimming: Trimming,
    seconds: float,
) -> ArchiveSummary:
    added = after.files[len(before.files) :]
    rows = sum(file.rows for file in added)
    return ArchiveSummary(
        topic=topic,
        directory=directory,
        archive_begin=after.glsn_begin,
        glsn_begin=before.glsn_end,
        glsn_end=after.glsn_end,
        files=len(added),
        rows=rows,
        size=sum(file.size for file in added),
        missing=after.glsn_end - before.glsn_end - rows,
        missed_before=after.missed_before,
        leftovers=leftovers,
        archive_files=len(after.files),
        archive_rows=after.rows,
        archive_size=after.size,
        first_available=trimming.first_available,
        kept_for_keys=trimming.kept_for_keys,
        seconds=seconds,
    )
