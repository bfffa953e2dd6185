"""Holds a compaction plan against what a stream has, and takes from it what is true.

Invariants:
  P6  only what is keyed, or deletes a storage, can be claimed to be dead: anything else of a plan
      is refused, and so is a plan under a higher GC boundary than the stream's own
  P7  whatever a plan does not speak of is live, unless the last snapshot knew it to be dead
  P8  a plan goes the way of every snapshot: the notes of dropped deletes are durable with it (H4)

The rules for claims (P1 to P5) are those of ``core.compaction.claims``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyroaring import BitMap64

from tidelog.core.compaction.claims import Bools, SortedKeys, hiding
from tidelog.core.compaction.explain import StorageDelete
from tidelog.core.compaction.live import shadowing, silent_storage_deletes
from tidelog.errors import Busy, CorruptData, PlanRefused
from tidelog.formats.bitmaps import bitmap_of
from tidelog.formats.compaction_plan import StreamPlan, decode_plan
from tidelog.formats.entry import Kind
from tidelog.formats.key_rows import U64, KeyRows, concat_rows, no_rows
from tidelog.formats.manifest import StreamState
from tidelog.formats.segment import SpecialEntry
from tidelog.limits import LIVENESS_ROWS_MAX
from tidelog.storage.liveness import (
    Liveness,
    MemorySource,
    StreamSources,
    hash_ranges,
    present_entries,
    segment_rows,
)
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.stream_store import StreamStore

_SLICE = 1 << 20
"""LLSNs whose bits are set in one go."""


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """What is live by a plan, and what became of its claims."""

    liveness: Liveness
    dead: int
    """Claims that are true."""
    doubtful: int
    """Deletes that must stay here, for something older is left that the plan did not see."""


def read_plan(data: bytes | memoryview, streams: Sequence[int]) -> StreamPlan:
    """The plan for one of these log streams that somebody sent."""
    try:
        plan = decode_plan(data)
    except CorruptData as error:
        raise PlanRefused(str(error)) from error
    if plan.stream not in streams:
        raise PlanRefused(f"the plan is for log stream {plan.stream}, which the topic has not")
    return plan


def apply_plan(store: StreamStore, plan: StreamPlan, log_id: bytes) -> CheckedPlan:
    """Check a plan and snapshot the stream by it (P8); raises ``PlanRefused`` if it is no good."""
    with store.applying, store.lock:
        state, view, seen = store.state(), store.view, store.snapshot
    index = state.context.llsn_end - 1
    memory = MemorySource.of(view.memtables, index, store.place.hash_seed)
    check_fits(store, plan, log_id, state)
    if store.log_versions:
        # The end of the topic may lie behind that of the stream.
        plan = replace(plan, boundary=min(plan.boundary, state.context.glsn_end - 1))
    stream = StreamSources(view.segments, memory, index, state.trim_llsn_end)
    checked = check_plan(stream, store.opened, plan)
    checked.liveness.live.difference_update(seen.dead())  # P7
    if not store.publish(state, checked.liveness, seen):
        raise Busy(f"stream {store.stream} was filled up meanwhile: offer the plan again")
    return checked


def check_fits(store: StreamStore, plan: StreamPlan, log_id: bytes, state: StreamState) -> None:
    """Refuse a plan of another log or another stream, or one from a future that is not here."""
    index = state.context.llsn_end - 1
    if (plan.log_id, plan.stream) != (log_id, store.stream):
        raise PlanRefused(
            f"the plan is for log stream {plan.stream} of log {plan.log_id.hex()}, "
            f"not for {store.stream} of {log_id.hex()}"
        )
    if store.shared_keys:
        raise PlanRefused("streams that share their keys are judged together: no plan is for one")
    if plan.index > index:
        raise PlanRefused(
            f"the plan looked up to LLSN {plan.index}, but only {index} are ordered here: "
            "try again when this replica has caught up"
        )
    if plan.boundary > state.boundary and not store.log_versions:
        raise PlanRefused(
            f"the plan was made under GC boundary {plan.boundary}, but here it is {state.boundary}"
        )
    if not plan.dead:
        raise PlanRefused("the plan claims nothing")


def check_plan(
    stream: StreamSources,
    opened: OpenSegments,
    plan: StreamPlan,
    *,
    rows_max: int = LIVENESS_ROWS_MAX,
) -> CheckedPlan:
    """What is live of a stream if the plan's claims are true; raises if one of them is not."""
    present, specials = present_entries(stream, opened)
    check = _Check(stream, opened, plan, present, specials)
    rows = sum(segment.keyed for segment in stream.segments) + stream.memory.keyed
    for begin, end in hash_ranges(rows, rows_max):
        check.visit(begin, end)
    return check.outcome()


@dataclass(slots=True)
class _Claimed:
    """The rows of one source in a hash range, and what is claimed of them."""

    rows: KeyRows
    mask: Bools
    source: int
    """The number of the segment; 0: memory."""
    open: KeyRows = field(default_factory=no_rows)
    """Deletes that are not settled yet, and, below, whether something greater is kept."""
    outlived: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @property
    def claims(self) -> KeyRows:
        return self.rows.filter(self.mask)

    @property
    def kept(self) -> KeyRows:
        return self.rows.filter(~self.mask)


@dataclass(slots=True)
class _Check:
    stream: StreamSources
    opened: OpenSegments
    plan: StreamPlan
    present: BitMap64
    specials: Sequence[SpecialEntry]
    claims: BitMap64 = field(init=False)
    deletes: list[StorageDelete] = field(init=False)
    claimed_deletes: list[StorageDelete] = field(init=False)
    hides_rows: Bools = field(init=False)
    """Which claimed storage deletes have something to hide (P3)."""
    dead: BitMap64 = field(default_factory=BitMap64)
    doubtful: BitMap64 = field(default_factory=BitMap64)
    silent: BitMap64 = field(default_factory=BitMap64)
    dead_bytes: dict[int, int] = field(init=False)
    _bits: _Bits = field(init=False)

    def __post_init__(self) -> None:
        self.claims = self.plan.dead & self.present
        self._bits = _Bits(self.claims, self.stream.index)
        self.deletes = [
            StorageDelete(special.storage_id, special.version, special.llsn)
            for special in self.specials
            if special.kind is Kind.DELETE_STORAGE
        ]
        self.claimed_deletes = [each for each in self.deletes if each.llsn in self.claims]
        self.hides_rows = np.zeros(len(self.claimed_deletes), dtype=np.bool_)
        self.dead_bytes = dict.fromkeys((segment.number for segment in self.stream.segments), 0)
        for delete in self.claimed_deletes:
            if delete.version > self.plan.boundary:
                raise _unfounded(delete.llsn)

    def visit(self, begin: int, end: int) -> None:
        """Judge the claims of one hash range."""
        found = [
            _Claimed(rows, self._bits.of(rows.llsn), source)
            for source, rows in self._rows(begin, end)
        ]
        boundary = self.plan.boundary
        kept = SortedKeys.of(concat_rows([one.kept for one in found]), boundary)
        for one in found:
            self._judge(one, kept)
            if self.claimed_deletes:
                self.hides_rows |= shadowing(one.rows, self.claimed_deletes)
        deletes = SortedKeys.of(concat_rows([one.open for one in found]), boundary)
        hides = np.zeros(len(deletes.keys), dtype=np.bool_)
        for one in found:
            hides |= hiding(deletes, one.rows)
        for one in found:
            self._settle(one, deletes, hides)

    def _judge(self, one: _Claimed, kept: SortedKeys) -> None:
        """What is open depends on all that is here, so it comes later."""
        claims = one.claims
        verdict = kept.judge(claims, self.deletes)
        if verdict.unfounded.any():
            raise _unfounded(int(claims.llsn[verdict.unfounded].min()))
        self._drop(one.source, claims.filter(verdict.founded))
        one.open = claims.filter(verdict.open)
        one.outlived = verdict.outlived[verdict.open]

    def _settle(self, one: _Claimed, deletes: SortedKeys, hides: Bools) -> None:
        """Drop the deletes that hide nothing (P2)."""
        at, _ = deletes.find(one.open)
        founded = ~hides[at]
        self._drop(one.source, one.open.filter(founded))
        self.doubtful |= bitmap_of(one.open.llsn[~founded])
        self.silent |= bitmap_of(one.open.llsn[founded & ~one.outlived])

    def _drop(self, source: int, rows: KeyRows) -> None:
        if not len(rows):
            return
        self.dead |= bitmap_of(rows.llsn)
        if source:
            self.dead_bytes[source] += int(rows.size.sum(dtype=np.uint64))

    def _rows(self, begin: int, end: int) -> Iterator[tuple[int, KeyRows]]:
        """The rows of each segment, by its number, and of memory, by 0."""
        for segment in self.stream.segments:
            if segment.keyed:
                index = self.stream.index
                yield segment.number, segment_rows(segment, self.opened, begin, end, index)
        for rows in self.stream.memory.between(begin, end):
            yield 0, rows

    def outcome(self) -> CheckedPlan:
        """All hash ranges were visited."""
        claimed = BitMap64([delete.llsn for delete in self.claimed_deletes])
        unkeyed = self.claims - self.dead - self.doubtful - claimed
        if unkeyed:
            raise PlanRefused(f"the plan drops LLSN {unkeyed.min()}, which has no key")  # P6
        hiding_rows = np.flatnonzero(self.hides_rows)
        dropped = claimed - BitMap64([self.claimed_deletes[at].llsn for at in hiding_rows])
        # Control entries are nobody's: they go with every snapshot.
        control = BitMap64([s.llsn for s in self.specials if s.kind is not Kind.DELETE_STORAGE])
        kept = np.array([each.llsn not in dropped for each in self.deletes], dtype=np.bool_)
        unheard = np.flatnonzero(silent_storage_deletes(self.deletes, kept))
        return CheckedPlan(
            liveness=Liveness(
                live=self.present - self.dead - dropped - control,
                dead_bytes=self.dead_bytes,
                silent=self.silent | BitMap64([self.deletes[at].llsn for at in unheard]),
            ),
            dead=len(self.dead) + len(dropped),
            doubtful=len(self.claims) - len(self.dead) - len(dropped),
        )


class _Bits:
    """A bitmap of LLSNs up to ``index`` that many can be looked up in at once."""

    def __init__(self, llsns: BitMap64, index: int) -> None:
        self._words = np.zeros(index // 8 + 1, dtype=np.uint8)
        for begin in range(0, index + 1, _SLICE):
            some = llsns & BitMap64(range(begin, min(begin + _SLICE, index + 1)))
            if some:
                bits = np.zeros(_SLICE, dtype=np.uint8)
                bits[np.array(some.to_array(), dtype=np.int64) - begin] = 1
                packed = np.packbits(bits, bitorder="little")
                end = min(begin // 8 + len(packed), len(self._words))
                self._words[begin // 8 : end] = packed[: end - begin // 8]

    def of(self, llsns: U64) -> Bools:
        """Which of these LLSNs, none beyond the index, are in it."""
        words = self._words[llsns >> np.uint64(3)]
        bits = np.left_shift(1, (llsns & np.uint64(7)).astype(np.uint8), dtype=np.uint8)
        found: Bools = np.not_equal(words & bits, 0)
        return found


def _unfounded(llsn: int) -> PlanRefused:
    return PlanRefused(f"the plan drops LLSN {llsn}, and nothing here shows that it is dead")
