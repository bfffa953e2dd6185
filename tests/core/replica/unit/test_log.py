"""The log's numbers against a plain list of entry ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.replica.unit.alone import batch, entry
from tidelog.core.replica.entries import NO_ENTRY, EntryId
from tidelog.core.replica.log import ReplicaLog, weight
from tidelog.invariants import InvariantViolation
from tidelog.types import Llsn

lengths_of_terms = st.dictionaries(st.integers(1, 6), st.integers(1, 4), max_size=4)
ids = st.builds(entry, st.integers(1, 7), st.integers(1, 20)) | st.just(NO_ENTRY)


def entries_of(lengths: dict[int, int]) -> list[EntryId]:
    terms = [term for term in sorted(lengths) for _ in range(lengths[term])]
    return [entry(term, place + 1) for place, term in enumerate(terms)]


def log_of(lengths: dict[int, int]) -> ReplicaLog:
    log = ReplicaLog()
    for term in sorted(lengths):
        log.append(batch(term, log.end, lengths[term]))
    assert log.flaw() is None
    return log


@given(lengths_of_terms, ids)
def test_a_log_knows_its_entries(lengths: dict[int, int], asked: EntryId) -> None:
    log, entries = log_of(lengths), entries_of(lengths)
    assert log.head == (entries[-1] if entries else NO_ENTRY)
    assert log.contains(asked) == (asked in [NO_ENTRY, *entries])
    below = max([each for each in entries if each <= asked], default=NO_ENTRY)
    assert log.highest_at_or_below(asked) == below


@given(lengths_of_terms, st.integers(1, 20))
def test_a_truncated_log_is_as_if_it_had_never_been_longer(
    lengths: dict[int, int], end: int
) -> None:
    log, entries = log_of(lengths), entries_of(lengths)
    end = min(end, len(entries) + 1)
    log.truncate(Llsn(end))
    assert log.flaw() is None
    assert [log.id_at(Llsn(llsn)) for llsn in range(1, 20)] == [
        entries[llsn - 1] if llsn < end else None for llsn in range(1, 20)
    ]


@given(lengths_of_terms, lengths_of_terms)
def test_two_logs_end_in_common_where_they_last_have_the_same_entry(
    lengths: dict[int, int], others: dict[int, int]
) -> None:
    common = set(entries_of(lengths)) & set(entries_of(others))
    end = max([each.llsn for each in common], default=0) + 1
    log, other = log_of(lengths), log_of(others)
    assert log.common_end(other) == other.common_end(log) == end


def test_a_trimmed_log_still_knows_the_entry_before_its_first() -> None:
    log = log_of({1: 2, 2: 2, 3: 2})
    log.trim(Llsn(5))
    assert log.flaw() is None
    assert log.id_at(Llsn(4)) == entry(2, 4)
    assert log.id_at(Llsn(2)) is None
    assert log.highest_at_or_below(entry(2, 9)) == entry(2, 4)
    assert log.highest_at_or_below(entry(1, 1)) is None, "nobody knows what was there"
    log.trim(Llsn(7))
    assert log.head == entry(3, 6)


def test_a_log_serves_what_is_in_memory_or_above_its_snapshot() -> None:
    log = log_of({1: 2, 2: 2, 3: 2})
    log.compact(Llsn(4))
    assert log.can_serve(Llsn(1)), "it is all in memory"
    log.forget(Llsn(7), 0)
    assert [llsn for llsn in range(1, 9) if log.can_serve(Llsn(llsn))] == [5, 6, 7, 8]
    log.trim(Llsn(7))
    assert log.can_serve(Llsn(7)), "there is nothing to serve"


def test_batches_come_from_memory_up_to_a_size_but_at_least_one() -> None:
    log = ReplicaLog()
    batches = [batch(1, llsn, data=b"x" * 100) for llsn in range(1, 5)]
    for each in batches:
        log.append(each)
    assert log.recent(Llsn(2), 1) == (batches[1],)
    assert log.recent(Llsn(2), 2 * weight(batches[0])) == tuple(batches[1:3])
    assert log.recent(Llsn(5), 1) == ()
    log.forget(Llsn(4), 2 * weight(batches[0]))
    assert log.recent(Llsn(2), 1) == ()
    assert log.recent(Llsn(3), 1) == (batches[2],)
    assert log.recent_bytes == 2 * weight(batches[0])


def test_only_what_the_store_has_is_forgotten() -> None:
    log = log_of({1: 2, 2: 2})
    log.forget(Llsn(3), 0)
    assert log.recent(Llsn(3), 1) == (batch(2, 3, 2),)


def test_entries_that_are_left_out_are_no_longer_served_from_memory() -> None:
    log = log_of({1: 2})
    log.append(batch(2, 5))
    log.skip_to(Llsn(9))
    assert log.flaw() is None
    assert (log.end, log.head) == (9, entry(2, 8))
    assert log.recent(Llsn(5), 1) == ()


def test_a_filled_log_knows_what_the_leader_has_trimmed() -> None:
    log = log_of({1: 2, 2: 2})
    log.append(batch(4, 5, 2))
    log.set_terms(log_of({1: 2, 2: 2, 3: 1, 4: 1}).terms[2:])
    assert log.terms == ((1, 1), (2, 3), (3, 5), (4, 6))


@pytest.mark.parametrize(("begin", "term"), [(2, 2), (3, 1)], ids=["it overlaps", "its term falls"])
def test_a_batch_that_cannot_follow_is_a_broken_invariant(begin: int, term: int) -> None:
    log = log_of({2: 2})
    with pytest.raises(InvariantViolation, match="L1"):
        log.append(batch(term, begin))
