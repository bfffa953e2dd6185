"""Batches put together or passed through on their way into a segment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.streams import put, value, values
from tidelog.formats.batch import Batch, decode_batch, encode_entries, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.invariants import InvariantViolation
from tidelog.limits import (
    BATCH_ENTRIES_MAX,
    ENTRY_BLOBS_MAX,
    KIB,
    SEGMENT_BATCH_BYTES,
    VALUE_BYTES_MAX,
)
from tidelog.storage.rebatch import rebatch


def batch_of(
    entries: Sequence[Entry],
    first: int,
    *,
    term: int = 1,
    rewritten: bool = False,
    llsns: Sequence[int] | None = None,
    producer: int = 0,
) -> Batch:
    body = encode_entries(entries, rewritten=rewritten, llsns=llsns)
    header = seal_batch(
        body, stream=3, term=term, first_llsn=first, producer=producer, sequence=producer
    )
    return decode_batch(header + body.data)


def joined(*kept: tuple[Batch, Sequence[int]]) -> list[Batch]:
    return list(rebatch(kept))


def whole(batch: Batch) -> tuple[Batch, Sequence[int]]:
    return batch, range(batch.count)


def content(batches: Sequence[Batch]) -> list[tuple[int, int, Entry]]:
    return [
        (llsn, batch.term, entry)
        for batch in batches
        for llsn, entry in zip(batch.llsns(), batch.entries(), strict=True)
    ]


def test_small_neighbours_become_one_dense_batch() -> None:
    parts = [batch_of([value(f"{llsn}")], llsn) for llsn in range(5, 25)]
    (one,) = joined(*map(whole, parts))
    assert (one.first_llsn, one.end_llsn, one.count, one.dense) == (5, 25, 20, True)
    assert content([one]) == content(parts)


def test_holes_make_a_sparse_batch() -> None:
    parts = [batch_of(values(4), 1), batch_of(values(4), 11)]
    (one,) = joined((parts[0], [0, 3]), (parts[1], [2]))
    assert (list(one.llsns()), one.dense) == ([1, 4, 13], False)
    assert one.entries() == [parts[0].entry(0), parts[0].entry(3), parts[1].entry(2)]


def test_a_large_batch_that_is_kept_whole_passes_through_as_it_is() -> None:
    small = batch_of(values(3), 1)
    large = batch_of(values(40, KIB), 4, producer=9)
    after = batch_of(values(3), 44)
    found = joined(whole(small), whole(large), whole(after))
    assert [batch.count for batch in found] == [3, 40, 3]
    assert bytes(found[1].data) == bytes(large.data)
    assert found[1].producer == 9


def test_a_large_batch_of_which_little_is_kept_is_joined() -> None:
    large = batch_of(values(40, KIB), 4)
    after = batch_of(values(3), 44)
    (one,) = joined((large, [1, 39]), whole(after))
    assert list(one.llsns()) == [5, 43, 44, 45, 46]


def test_terms_stay_apart_and_never_fall() -> None:
    old, new = batch_of(values(2), 1, term=1), batch_of(values(2), 3, term=2)
    assert [(batch.term, batch.count) for batch in joined(whole(old), whole(new))] == [
        (1, 2),
        (2, 2),
    ]
    with pytest.raises(InvariantViolation, match="terms never fall"):
        joined(whole(batch_of(values(2), 1, term=2)), whole(batch_of(values(2), 3, term=1)))


def test_copies_and_explicit_versions_stay_apart_from_others() -> None:
    kinds = [
        batch_of([put("a")], 1),
        batch_of([put("b", version=5)], 2),
        batch_of([put("c", version=6)], 3, rewritten=True),
        batch_of([put("d")], 4),
    ]
    found = joined(*map(whole, kinds))
    assert [batch.count for batch in found] == [1, 1, 1, 1]
    assert [batch.rewritten for batch in found] == [False, False, True, False]
    assert content(found) == content(kinds)


def test_joined_batches_are_of_bounded_size() -> None:
    parts = [batch_of(values(10, KIB), 1 + 10 * part) for part in range(60)]
    found = joined(*map(whole, parts))
    assert len(found) == 3
    assert all(batch.length < SEGMENT_BATCH_BYTES + 32 * KIB for batch in found)
    assert content(found) == content(parts)


def test_nothing_kept_gives_nothing() -> None:
    batch = batch_of(values(3), 1)
    assert joined() == []
    assert joined((batch, []), (batch, [])) == []


entries = st.builds(
    lambda kind, text, key: Entry(kind, text, key if kind is Kind.PUT else b""),
    st.sampled_from((Kind.APPEND, Kind.PUT, Kind.CONTROL)),
    st.binary(max_size=40),
    st.binary(min_size=1, max_size=4),
)


@given(
    parts=st.lists(
        st.tuples(
            st.lists(st.tuples(entries, st.booleans()), min_size=1, max_size=6),
            st.integers(min_value=0, max_value=3),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_every_kept_entry_comes_out_once_and_in_order(
    parts: list[tuple[list[tuple[Entry, bool]], int, bool]],
) -> None:
    """Any batches, with holes between them and terms that rise, of which any entries are kept."""
    kept: list[tuple[Batch, Sequence[int]]] = []
    expected: list[tuple[int, int, Entry]] = []
    first, term = 1, 1
    for marked, hole, rises in parts:
        first, term = first + hole, term + rises
        batch = batch_of([entry for entry, _ in marked], first, term=term)
        positions = [position for position, (_, keep) in enumerate(marked) if keep]
        kept.append((batch, positions))
        expected += [(first + at, term, marked[at][0]) for at in positions]
        first = batch.end_llsn
    assert content(joined(*kept)) == expected


def test_entries_without_bytes_are_not_joined_beyond_what_a_batch_takes() -> None:
    small, most = batch_of(values(1), 1), batch_of([value("")] * BATCH_ENTRIES_MAX, 2)
    found = joined(whole(small), whole(most))
    assert [batch.count for batch in found] == [1, BATCH_ENTRIES_MAX]


def test_the_large_ones_among_small_entries_are_not_joined_beyond_what_a_batch_takes() -> None:
    """On average the entries of these batches are small, but those that are kept are not."""
    entries = [value("x" * VALUE_BYTES_MAX), *[value("")] * 2000]
    blobs = [Entry(Kind.APPEND, b"", blobs=tuple(range(ENTRY_BLOBS_MAX))), *entries[1:]]
    kept = [(batch_of(each, 1 + 2001 * n), [0]) for n, each in enumerate([entries, blobs] * 3)]
    found = joined(*kept)
    assert [batch.count for batch in found] == [1] * 6
