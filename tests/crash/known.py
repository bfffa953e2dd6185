"""What must, may and must not be in a log, told from journals alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from tests.crash.scribe import (
    Attempt,
    BoundaryAttempt,
    FrameAttempt,
    TopicAttempt,
    TrimAttempt,
    Wish,
    Written,
    placed,
)
from tidelog import Kind
from tidelog.limits import WRITE_VERSION_END
from tidelog.testing.crash import Journal

KEYED = (Kind.PUT, Kind.DELETE)


@dataclass(frozen=True, slots=True)
class Known:
    """The state of the first topic after some calls."""

    entries: dict[int, Written] = field(default_factory=dict)
    """By GLSN; trimmed and dead ones too."""
    trim_glsn_end: int = 1
    boundary: int = WRITE_VERSION_END
    """Only topics with explicit versions have one; elsewhere every version is below it."""
    topics: dict[str, int] = field(default_factory=dict)

    @property
    def high_watermark(self) -> int:
        return len(self.entries)

    def llsn_end(self, stream: int) -> int:
        return 1 + sum(entry.stream == stream for entry in self.entries.values())

    def after(self, attempt: Attempt) -> Known:
        """The state once ``attempt`` took effect."""
        match attempt:
            case FrameAttempt():
                return replace(self, entries={**self.entries, **self._places(attempt.wishes)})
            case TrimAttempt():
                return replace(self, trim_glsn_end=max(self.trim_glsn_end, attempt.glsn_end))
            case BoundaryAttempt():
                return replace(self, boundary=attempt.version)
            case TopicAttempt():
                return replace(self, topics={**self.topics, attempt.name: attempt.streams})

    def _places(self, wishes: Iterable[Wish]) -> dict[int, Written]:
        """A cut takes the streams in ascending order, each with all that came to it."""
        ends: dict[int, int] = {}
        found: dict[int, Written] = {}
        for glsn, wish in enumerate(
            sorted(wishes, key=lambda wish: wish.stream), start=self.high_watermark + 1
        ):
            llsn = ends.setdefault(wish.stream, self.llsn_end(wish.stream))
            ends[wish.stream] += 1
            found[glsn] = placed(wish, glsn, llsn)
        return found

    # -- liveness -------------------------------------------------------------------------

    def writes_of(self, storage_id: int, key: bytes) -> list[Written]:
        return [
            entry
            for entry in self.entries.values()
            if entry.kind in KEYED and (entry.storage_id, entry.key) == (storage_id, key)
        ]

    def storage_deletes(self, storage_id: int) -> list[Written]:
        return [
            entry
            for entry in self.entries.values()
            if entry.kind is Kind.DELETE_STORAGE and entry.storage_id == storage_id
        ]

    def newest(self, storage_id: int, key: bytes) -> Written | None:
        """What ``get`` must answer."""
        best = max(self.writes_of(storage_id, key), key=lambda w: w.order, default=None)
        if best is None or best.kind is Kind.DELETE or best.glsn < self.trim_glsn_end:
            return None
        deletes = self.storage_deletes(storage_id)
        killed = any(best.order < d.order for d in deletes if d.stream == best.stream)
        return None if killed else best

    def is_trimmed(self, storage_id: int, key: bytes) -> bool:
        """Whether the newest write of a key was trimmed: who has read it keeps what it says."""
        best = max(self.writes_of(storage_id, key), key=lambda w: w.order)
        return best.glsn < self.trim_glsn_end

    def may_be_missing(self, entry: Written, present: Collection[Written]) -> bool:
        """Whether compaction may have removed an entry, given what it left."""
        if entry.glsn < self.trim_glsn_end:
            return True
        if entry.kind not in (*KEYED, Kind.DELETE_STORAGE) or entry.version > self.boundary:
            return False
        killers = [
            other
            for other in self.entries.values()
            if other.stream == entry.stream
            and other.version <= self.boundary
            and other.order > entry.order
            and other.storage_id == entry.storage_id
        ]
        if entry.kind is Kind.DELETE_STORAGE:
            if any(other.kind is Kind.DELETE_STORAGE for other in killers):
                return True
            older = (o for o in present if o.kind in KEYED and o.stream == entry.stream)
            return not any(
                o.storage_id == entry.storage_id and o.order < entry.order for o in older
            )
        for other in killers:
            if other.kind is Kind.DELETE_STORAGE or other.key == entry.key:
                return True
        if entry.kind is Kind.PUT:
            return False
        return not any(
            o.kind in KEYED
            and (o.storage_id, o.key) == (entry.storage_id, entry.key)
            and o.order < entry.order
            for o in present
        )


def known_of(*journals: Journal, versions: str = "log") -> tuple[Known, Attempt | None]:
    """What was acknowledged, and the one attempt, if any, of which nobody knows the outcome."""
    known = Known() if versions == "log" else Known(boundary=0)
    for journal in journals:
        for item in journal.acknowledged:
            if isinstance(item, Written):
                assert item.glsn not in known.entries, "a GLSN was given twice"
                known.entries[item.glsn] = item
            else:
                known = known.after(item)
    assert sorted(known.entries) == list(range(1, len(known.entries) + 1)), "GLSNs are not dense"
    return known, _pending(journals[-1])


def _pending(journal: Journal) -> Attempt | None:
    """Calls come one after the other, so only the last one can be open."""
    if not journal.attempted:
        return None
    frames = [item for item in journal.attempted if isinstance(item, FrameAttempt)]
    wished = sum(len(frame.wishes) for frame in frames)
    written = sum(isinstance(item, Written) for item in journal.acknowledged)
    others = len(journal.attempted) - len(frames)
    open_frame = wished > written
    open_other = others > len(journal.acknowledged) - written
    assert not (open_frame and open_other)
    last: Attempt = journal.attempted[-1]
    assert isinstance(last, FrameAttempt) == open_frame or not (open_frame or open_other)
    return last if open_frame or open_other else None
