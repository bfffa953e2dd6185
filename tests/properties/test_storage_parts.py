"""The parts that decide which entries a reader or a new segment sees, against plain models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import given
from pyroaring import BitMap64

from tidelog import Entry, Kind
from tidelog.formats.batch import Batch, decode_batch, encode_entries, seal_batch
from tidelog.formats.manifest import TruncationLimit
from tidelog.storage.memtable import Memtable, StoredBatch
from tidelog.storage.rebatch import rebatch
from tidelog.storage.segments import Segment, StreamView
from tidelog.storage.snapshot_store import SnapshotState

# -- effective ranges -------------------------------------------------------------------------

ranges = st.tuples(st.integers(1, 20), st.integers(1, 10)).map(lambda r: (r[0], r[0] + r[1]))


def segment(number: int, first: int, end: int) -> Segment:
    return Segment(number, f"{number}", first, end, end, first, end - first, 0, 1, 0, ())


def memtable(first: int, end: int) -> Memtable:
    table = Memtable(1)
    table.add(StoredBatch(first, end, b""))
    return table


@given(
    files=st.lists(ranges, max_size=6),
    memory=st.one_of(st.none(), ranges),
    cuts=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 30)), max_size=3),
)
def test_each_llsn_is_read_from_the_newest_source_that_may_hold_it(
    files: list[tuple[int, int]],
    memory: tuple[int, int] | None,
    cuts: list[tuple[int, int]],
) -> None:
    segments = [segment(number, *span) for number, span in enumerate(files, 1)]
    tables = [memtable(*memory)] if memory else []
    limits = [TruncationLimit(number, end) for number, end in cuts]
    view, shadowed = StreamView.arrange(segments, tables, limits)

    valid = {found.number: found for found in view.segments}
    assert [*valid] == sorted(valid)
    assert sorted([*valid, *(found.number for found in shadowed)]) == [s.number for s in segments]
    assert view.memtables == tuple(tables)
    for candidate in segments:
        newer_starts = [found.first_llsn for n, found in valid.items() if n > candidate.number]
        newer_starts += [memory[0]] if memory else []
        bounds = [limit.llsn_end for limit in limits if limit.segment_number >= candidate.number]
        may_hold = [
            llsn
            for llsn in range(candidate.first_llsn, candidate.file_end_llsn)
            if all(llsn < bound for bound in [*newer_starts, *bounds])
        ]
        found = valid.get(candidate.number)
        assert [*range(found.first_llsn, found.end_llsn)] == may_hold if found else not may_hold


# -- what a snapshot keeps --------------------------------------------------------------------


def encoded(
    llsns: Sequence[int],
    entries: Sequence[Entry] | None = None,
    *,
    term: int = 1,
    rewritten: bool = False,
) -> Batch:
    entries = entries or [Entry(Kind.APPEND, f"{llsn}".encode()) for llsn in llsns]
    dense = llsns[-1] - llsns[0] + 1 == len(llsns)
    body = encode_entries(entries, rewritten=rewritten, llsns=None if dense else llsns)
    return decode_batch(seal_batch(body, stream=1, term=term, first_llsn=llsns[0]) + body.data)


@st.composite
def snapshots(draw: st.DrawFn) -> SnapshotState:
    index = draw(st.integers(0, 40))
    live = draw(st.sets(st.integers(1, index))) if index else set[int]()
    return SnapshotState(1, index, BitMap64(live))


llsn_lists = st.one_of(
    st.lists(st.integers(1, 50), min_size=1, unique=True).map(sorted),
    ranges.map(lambda span: list(range(*span))),
)


@given(snapshot=snapshots(), llsns=llsn_lists, begin=st.integers(0, 55), length=st.integers(0, 55))
def test_a_snapshot_keeps_what_is_live_or_above_it(
    snapshot: SnapshotState, llsns: list[int], begin: int, length: int
) -> None:
    end = begin + length

    def kept(llsn: int) -> bool:
        return begin <= llsn < end and (llsn > snapshot.index or llsn in snapshot.live)

    positions = snapshot.kept_positions(encoded(llsns), begin, end)
    assert list(positions) == [i for i, llsn in enumerate(llsns) if kept(llsn)]
    assert snapshot.live_count(begin, end) == sum(map(kept, range(begin, end)))


@given(snapshot=snapshots(), present=st.sets(st.integers(1, 50)), begin=st.integers(1, 50))
def test_the_first_missing_llsn_is_the_first_that_is_kept_and_not_there(
    snapshot: SnapshotState, present: set[int], begin: int
) -> None:
    end = 51
    wanted = [n for n in range(begin, end) if n > snapshot.index or n in snapshot.live]
    missing = [llsn for llsn in wanted if llsn not in present]
    found = snapshot.missing_from(BitMap64(present), begin, end)
    assert found == (missing[0] if missing else None)
    smallest = min(snapshot.live, default=snapshot.index + 1)
    assert snapshot.smallest_live == smallest


# -- new batches from old ones ------------------------------------------------------------------


@dataclass
class Kept:
    batch: Batch
    positions: list[int]


@st.composite
def kept_batches(draw: st.DrawFn) -> list[Kept]:
    """Batches along ascending LLSNs, small and large, dense and sparse, each partly kept."""
    found: list[Kept] = []
    llsn, term = 1, 1
    for _ in range(draw(st.integers(0, 8))):
        steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=1, max_size=6))
        term += draw(st.sampled_from([0, 0, 0, 1]))
        large = draw(st.booleans())
        version = draw(st.one_of(st.none(), st.integers(1, 9)))
        llsns = [llsn := llsn + step for step in steps]
        entries = [
            Entry(
                draw(st.sampled_from([Kind.PUT, Kind.DELETE])) if version else Kind.APPEND,
                f"{n}".encode() * (4000 if large else 1),
                f"key {n}".encode() if version else b"",
                storage_id=n % 2,
                write_version=version,
                timestamp_us=n,
                blobs=(n,) if n % 3 == 0 else (),
            )
            for n in llsns
        ]
        batch = encoded(llsns, entries, term=term, rewritten=draw(st.booleans()))
        positions = draw(st.sets(st.integers(0, len(llsns) - 1)))
        found.append(Kept(batch, sorted(positions)))
    return found


@given(kept=kept_batches())
def test_new_batches_hold_the_kept_entries_and_nothing_else(kept: list[Kept]) -> None:
    made = list(rebatch((k.batch, k.positions) for k in kept))

    def told(batch: Batch, position: int) -> tuple[int, int, bool, Entry]:
        return batch.llsn_at(position), batch.term, batch.rewritten, batch.entry(position)

    expected = [told(k.batch, position) for k in kept for position in k.positions]
    assert [told(batch, position) for batch in made for position in range(batch.count)] == expected
    assert all(batch.stream == 1 for batch in made)
    assert len(made) <= sum(1 for k in kept if k.positions)
