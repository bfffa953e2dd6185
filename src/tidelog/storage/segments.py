"""The segments and memtables of a stream as readers see them: an immutable view.

Invariants:
  S1  Sources are ordered by age; where they overlap, the newer one wins: a source is valid
      only below the first LLSN of every newer one, and below every truncation after it.
  S2  Effective ranges are disjoint and ascend.
  S3  A file is removed only when no pinned view can still open it.
  S4  What lies before a position is not opened to find it: a page at the end of a log costs the
      same however long the log is.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from tidelog.formats.manifest import TruncationLimit
from tidelog.formats.segment import RUN_BYTES, SegmentFooter, SpecialEntry
from tidelog.storage.memtable import Memtable
from tidelog.storage.vfs import FileKind, Vfs

SEGMENT_SUFFIX = ".segment"
AWAITED_SEGMENTS = 64
"""After a read; with WAL files of the usual size, 4 GB.  Who reads in turns, such as Spark, comes
back for what was written meanwhile."""
_END_LLSN: Final = attrgetter("end_llsn")
_FIRST_GLSN: Final = attrgetter("first_glsn")


def segment_name(number: int) -> str:
    return f"{number:016d}{SEGMENT_SUFFIX}"


def segment_numbers(vfs: Vfs, directory: str) -> list[int]:
    """Numbers of the segment files, ascending; links that stand for merged ones do not count."""
    numbers = []
    for name in vfs.list_dir(directory):
        stem = name.removesuffix(SEGMENT_SUFFIX)
        if stem == name or not stem.isdecimal():
            continue
        found = vfs.stat(f"{directory}/{name}")
        if found is not None and found.kind is FileKind.FILE:
            numbers.append(int(stem))
    return sorted(numbers)


@dataclass(frozen=True, slots=True)
class Segment:
    """What is known of a segment file without opening it."""

    number: int
    path: str
    first_llsn: int
    end_llsn: int
    """Effective end (S1); the file may hold more."""
    file_end_llsn: int
    first_glsn: int
    entries: int
    keyed: int
    size: int
    max_version: int
    specials: tuple[SpecialEntry, ...]
    run_bytes: int = 0
    """What its GLSNs take of it; those of dead entries stay."""

    @classmethod
    def of(cls, directory: str, footer: SegmentFooter, size: int) -> Segment:
        stats = footer.stats
        return cls(
            number=footer.number,
            path=f"{directory}/{segment_name(footer.number)}",
            first_llsn=footer.first_llsn,
            end_llsn=footer.end_llsn,
            file_end_llsn=footer.end_llsn,
            first_glsn=footer.runs.glsn_begin,
            entries=stats.entries,
            keyed=stats.keyed,
            size=size,
            max_version=stats.max_version,
            specials=footer.specials,
            run_bytes=RUN_BYTES * len(footer.runs),
        )


@dataclass(frozen=True, slots=True)
class StreamView:
    """The sources of a stream, oldest first.  Made anew on every structural change."""

    segments: tuple[Segment, ...] = ()
    memtables: tuple[Memtable, ...] = ()

    @classmethod
    def arrange(
        cls,
        segments: Iterable[Segment],
        memtables: Sequence[Memtable],
        limits: Sequence[TruncationLimit],
    ) -> tuple[StreamView, list[Segment]]:
        """Compute effective ranges; also returns the segments that hold nothing valid (S1)."""
        ordered = sorted(segments, key=lambda segment: segment.number)
        starts = [table.first_llsn for table in memtables if table.batches]
        ceiling = min(starts, default=1 << 64)
        valid: list[Segment] = []
        shadowed: list[Segment] = []
        for segment in reversed(ordered):
            bounds = [limit.llsn_end for limit in limits if segment.number <= limit.segment_number]
            end = min(segment.file_end_llsn, ceiling, *bounds)
            if end <= segment.first_llsn:
                shadowed.append(segment)
                continue
            valid.append(replace(segment, end_llsn=end))
            ceiling = min(ceiling, segment.first_llsn)
        return cls(tuple(reversed(valid)), tuple(memtables)), shadowed

    def segments_from_llsn(self, llsn: int) -> tuple[Segment, ...]:
        """The segments with entries at or behind an LLSN, oldest first (S4)."""
        return self.segments[bisect_right(self.segments, llsn, key=_END_LLSN) :]

    def segments_from_glsn(self, glsn: int) -> tuple[Segment, ...]:
        """The segments that may have entries with this GLSN or higher ones, oldest first (S4)."""
        return self.segments[max(bisect_right(self.segments, glsn, key=_FIRST_GLSN) - 1, 0) :]

    @property
    def newest_segment(self) -> int:
        return self.segments[-1].number if self.segments else 0


@dataclass(slots=True)
class Pins:
    """Counts the readers of each generation of views, so that files outlive their readers (S3)."""

    _awaited: int = 0
    """So many of the next segments will probably be read soon."""
    _generation: int = 0
    _readers: dict[int, int] = field(default_factory=dict)
    _retired: list[tuple[int, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Hold every file of the views published up to now."""
        with self._lock:
            generation = self._generation
            self._readers[generation] = self._readers.get(generation, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._readers[generation] -= 1
                if not self._readers[generation]:
                    del self._readers[generation]

    def note_reader(self) -> None:
        """Somebody has read, and will probably come back for what is written next."""
        self._awaited = AWAITED_SEGMENTS

    def awaits(self) -> bool:
        """Whether somebody waits for the next segment; to be asked once for each."""
        awaits = self._awaited > 0
        self._awaited -= awaits
        return awaits

    def retire(self, paths: Iterable[str]) -> None:
        """These files are in no view from now on."""
        with self._lock:
            self._generation += 1
            self._retired.extend((self._generation, path) for path in paths)

    def releasable(self) -> list[str]:
        """Take out the retired files that no reader can reach any more."""
        with self._lock:
            oldest = min(self._readers, default=self._generation)
            free = [path for generation, path in self._retired if generation <= oldest]
            self._retired = [item for item in self._retired if item[0] > oldest]
            return free

    @property
    def readers(self) -> int:
        """How many readers hold files."""
        return sum(list(self._readers.values()))

    @property
    def waiting(self) -> int:
        """Retired files that a reader still holds back."""
        return len(self._retired)


def needed_limits(
    limits: Sequence[TruncationLimit], segments: Sequence[Segment]
) -> tuple[TruncationLimit, ...]:
    """The limits that cut off something of a segment."""
    return tuple(
        limit
        for limit in limits
        if any(
            segment.number <= limit.segment_number and segment.file_end_llsn > limit.llsn_end
            for segment in segments
        )
    )
