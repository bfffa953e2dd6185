"""Runs the phases of compaction on one stream: plans with the pure core, copies, swaps files.

Phase 1 (minor) deletes whole segments.  Phase 3 (major) writes the live entries of a group of
segments into one.  Phase 4 (rewrite) is an append like any other and lives with the log.  Each
group is finished before the next begins, so an error costs only its own group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.core.compaction.plan import Group, SegmentFacts, plan_major, plan_minor
from tidelog.errors import CorruptData, DiskFull
from tidelog.formats.batch import Batch
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.interface.figures import CompactionResult
from tidelog.limits import SEGMENT_BYTES_MAX
from tidelog.storage.compaction_files import (
    compacting_name,
    install_group,
    is_installed,
    remove_stale,
)
from tidelog.storage.segment_writer import kept_batches, write_segment
from tidelog.storage.segments import Segment, segment_name, segment_numbers
from tidelog.storage.snapshot_store import SnapshotState
from tidelog.storage.stream_store import StreamStore


def segment_facts(store: StreamStore) -> list[SegmentFacts]:
    """Size and liveness of every segment, oldest first."""
    view, snapshot, trim = store.view, store.snapshot, store.trim_llsn_end
    return [_facts(segment, snapshot, trim, store.dead_bytes) for segment in view.segments]


def _facts(
    segment: Segment, snapshot: SnapshotState, trim: int, dead_bytes: dict[int, int]
) -> SegmentFacts:
    begin = max(segment.first_llsn, trim)
    live = min(snapshot.live_count(begin, max(begin, segment.end_llsn)), segment.entries)
    run_bytes = segment.run_bytes  # A rewrite copies all of them.
    live_bytes = run_bytes + (segment.size - run_bytes) * live // segment.entries
    if segment.number in dead_bytes and begin == segment.first_llsn:
        live_bytes = min(segment.size, max(segment.size - dead_bytes[segment.number], 0))
    return SegmentFacts(
        number=segment.number,
        first_llsn=segment.first_llsn,
        end_llsn=segment.end_llsn,
        entries=segment.entries,
        bytes=segment.size,
        live_entries=live,
        live_bytes=live_bytes if live else 0,
    )


def settled_index(store: StreamStore) -> int:
    """Up to here it is known for good which entries are live."""
    return max(store.snapshot.index, store.trim_llsn_end - 1)


def compact_minor(store: StreamStore) -> CompactionResult:
    """Phase 1: delete the segments that hold nothing live."""
    doomed = set(plan_minor(segment_facts(store), settled_index(store)))
    if not doomed:
        return CompactionResult()
    size = sum(segment.size for segment in store.view.segments if segment.number in doomed)
    store.replace_segments(doomed, ())
    return CompactionResult(deleted=len(doomed), reclaimed_bytes=size)


def compact_major(
    store: StreamStore, *, full: bool = False, bytes_max: int = SEGMENT_BYTES_MAX
) -> CompactionResult:
    """Phase 3, after phase 1: rewrite what is mostly dead, and merge what is small."""
    result = compact_minor(store)
    store.sweep()
    facts, settled = segment_facts(store), settled_index(store)
    directory = store.place.directory
    for group in plan_major(facts, settled, full=full, bytes_max=bytes_max):
        if _encloses_others(store, group):
            result.waiting += len(group.numbers)  # Somebody still reads a deleted segment.
            continue
        try:
            result.add(_compact_group(store, group))
        except (CorruptData, DiskFull) as error:
            if is_installed(store.vfs, directory, group.numbers):
                # Readers know other files than there are now; the next start finishes the swap.
                raise store.vfs.stop(
                    f"segments {group.numbers} are half replaced: {error}"
                ) from error
            remove_stale(store.vfs, directory, group.numbers[0])
            result.failures.append(f"segments {group.numbers} stay as they are: {error}")
    return result


def _encloses_others(store: StreamStore, group: Group) -> bool:
    """Whether files of other segments lie between those of a group (``compaction_files``)."""
    between = range(group.numbers[0] + 1, group.numbers[-1])
    present = segment_numbers(store.vfs, store.place.directory)
    return any(number in between and number not in group.numbers for number in present)


def waiting_segments(store: StreamStore, groups: Sequence[Group]) -> int:
    """How many segments of these groups a run would leave to wait, as things are."""
    shown = {segment.number for segment in store.view.segments}
    present = segment_numbers(store.vfs, store.place.directory) if groups else []
    deleted = [number for number in present if number not in shown]
    return sum(
        len(group.numbers)
        for group in groups
        if any(group.numbers[0] < number < group.numbers[-1] for number in deleted)
    )


def _compact_group(store: StreamStore, group: Group) -> CompactionResult:
    directory = store.place.directory
    numbers = group.numbers
    sources = [segment for segment in store.view.segments if segment.number in numbers]
    size = sum(segment.size for segment in sources)
    _check_room(store, size)
    remove_stale(store.vfs, directory, numbers[0])
    path = f"{directory}/{compacting_name(numbers)}"
    snapshot, trim = store.snapshot, store.trim_llsn_end
    kept = _kept(store, sources, snapshot, trim)
    footer = write_segment(
        store.vfs, store.place, path, numbers[0], kept, _join_runs(store, sources)
    )
    if footer is None:
        # Everything died since the plan was made: the next minor run deletes the sources.
        return CompactionResult()
    _check_complete(store, sources, snapshot, trim, footer.stats.entries, path)
    install_group(store.vfs, directory, numbers)
    found = store.vfs.stat(f"{directory}/{segment_name(numbers[0])}")
    written = found.size if found else 0
    store.replace_segments(set(numbers), (Segment.of(directory, footer, written),))
    reclaimed = max(size - written, 0)
    return CompactionResult(rewritten=len(numbers), groups=1, reclaimed_bytes=reclaimed)


def _kept(
    store: StreamStore, sources: Sequence[Segment], snapshot: SnapshotState, trim: int
) -> Iterator[tuple[Batch, Sequence[int]]]:
    """The live entries of the sources; their checksums are verified as they are read."""
    for segment in sources:
        begin = max(segment.first_llsn, trim)
        with store.opened.lease(segment.path) as reader:
            batches = reader.read_blocks(begin, segment.end_llsn)
            yield from kept_batches(batches, snapshot, begin, segment.end_llsn)


def _join_runs(store: StreamStore, sources: Sequence[Segment]) -> GlsnRuns:
    """The GLSNs of the sources, each within its effective range."""
    joined = GlsnRuns()
    for segment in sources:
        with store.opened.lease(segment.path) as reader:
            for run in reader.footer.runs.slices(segment.first_llsn, segment.end_llsn):
                joined.append(*run)
    return joined


def _check_complete(
    store: StreamStore,
    sources: Sequence[Segment],
    snapshot: SnapshotState,
    trim: int,
    copied: int,
    path: str,
) -> None:
    """Every index that the snapshot calls live must have been in the sources."""
    ranges = ((max(segment.first_llsn, trim), segment.end_llsn) for segment in sources)
    live = sum(snapshot.live_count(begin, end) for begin, end in ranges if begin < end)
    if copied != live:
        store.vfs.unlink(path)
        raise CorruptData(f"{path}: its sources hold {copied} of the {live} live entries")


def _check_room(store: StreamStore, size: int) -> None:
    free = store.vfs.free_bytes(store.place.directory)
    if free < size:
        raise DiskFull(f"compaction may need {size} bytes, {free} are free")
