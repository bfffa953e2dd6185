"""Each promise that the fault matrix checks, broken on purpose: the check must see it."""

from __future__ import annotations

import pytest

from tests.cluster.checks import (
    check_acknowledged,
    check_all,
    check_dense,
    check_nothing_else,
    check_once,
    check_real_time,
    check_same,
    check_subscriber,
    check_whole,
    check_writers,
)
from tests.cluster.history import Append, Outcome, Seen, seen
from tests.cluster.payload import ident_of, parts_of, payload_of, read_payload


def acknowledged(
    writer: int, number: int, glsn: int, *, at: tuple[float, float], count: int = 1, stream: int = 1
) -> Append:
    return Append(
        writer, number, count, at[0], Outcome.ACKNOWLEDGED, at[1], glsn=glsn, stream=stream
    )


def failed(writer: int, number: int, outcome: Outcome, *, at: float, count: int = 1) -> Append:
    return Append(writer, number, count, at, outcome)


def log_of(*idents: int, name: str = "reader", first: int = 1) -> Seen:
    return seen(name, enumerate(idents, first))


A, B, C = ident_of(1, 1), ident_of(1, 2), ident_of(2, 1)


def test_a_history_as_it_should_be_has_no_problem() -> None:
    appends = [
        acknowledged(1, 1, 1, at=(0, 1)),
        acknowledged(2, 1, 2, at=(0.5, 3), count=2),
        failed(3, 1, Outcome.REFUSED, at=1),
        failed(3, 2, Outcome.UNKNOWN, at=2),
        failed(3, 3, Outcome.UNKNOWN, at=2),
        acknowledged(1, 2, 5, at=(4, 5)),
    ]
    pairs = [(1, A), (2, C), (3, C + 1), (4, ident_of(3, 3)), (5, B)]
    readers = [seen("one", pairs), seen("two", pairs)]
    assert check_all(appends, readers, [seen("follower", pairs)], end=7, hidden=1) == []


def test_an_acknowledged_record_that_is_lost_is_found() -> None:
    appends = [acknowledged(1, 1, 1, at=(0, 1)), acknowledged(1, 2, 2, at=(2, 3))]
    [problem] = check_acknowledged(appends, log_of(A))
    assert "append 1/2" in problem
    assert "nothing is at 2" in problem


def test_an_acknowledged_record_at_another_place_than_its_receipt_says_is_found() -> None:
    appends = [acknowledged(1, 1, 1, at=(0, 1)), acknowledged(1, 2, 2, at=(2, 3))]
    assert len(check_acknowledged(appends, log_of(B, A))) == 2


def test_the_second_record_of_a_batch_is_not_forgotten() -> None:
    appends = [acknowledged(2, 1, 1, at=(0, 1), count=2)]
    assert check_acknowledged(appends, log_of(C))
    assert not check_acknowledged(appends, log_of(C, C + 1))


def test_a_record_that_is_there_twice_is_found() -> None:
    [problem] = check_once(log_of(A, B, A))
    assert "at 1 and 3" in problem


def test_a_record_that_was_refused_for_good_is_found() -> None:
    [problem] = check_nothing_else([failed(1, 1, Outcome.REFUSED, at=0)], log_of(A))
    assert "was refused" in problem


def test_a_record_that_nobody_appended_is_found() -> None:
    [problem] = check_nothing_else([failed(1, 1, Outcome.UNKNOWN, at=0)], log_of(A, B))
    assert "nobody appended it" in problem


def test_a_missing_glsn_that_no_control_entry_explains_is_found() -> None:
    hole = seen("reader", [(1, A), (3, B)])
    assert not check_dense(hole, end=4, hidden=1)
    [problem] = check_dense(hole, end=4, hidden=0)
    assert "first [2]" in problem


def test_glsns_that_are_shown_twice_or_in_the_wrong_order_are_found() -> None:
    assert check_dense(seen("reader", [(1, A), (1, B)]), end=2, hidden=0)
    assert check_dense(seen("reader", [(2, A), (1, B)]), end=3, hidden=0)


def test_a_glsn_beyond_the_end_is_found() -> None:
    assert check_dense(seen("reader", [(1, A), (2, B)]), end=2, hidden=0)


@pytest.mark.parametrize("other", [log_of(B, A), log_of(A), log_of(A, B, C), log_of(A, C)])
def test_readers_that_are_shown_different_logs_are_found(other: Seen) -> None:
    assert check_same([log_of(A, B), log_of(A, B), other])
    assert check_subscriber(log_of(A, B), other)


def test_a_subscriber_that_is_shown_a_record_twice_is_found() -> None:
    read, subscriber = log_of(A, B), seen("follower", [(1, A), (1, A), (2, B)])
    assert check_subscriber(read, subscriber)


def test_an_append_before_one_that_had_returned_when_it_began_is_found() -> None:
    appends = [acknowledged(1, 1, 2, at=(0, 1)), acknowledged(2, 1, 1, at=(2, 3))]
    [problem] = check_real_time(appends, log_of(C, A))
    assert "append 2/1" in problem
    assert not check_real_time(
        [acknowledged(1, 1, 2, at=(0, 2)), acknowledged(2, 1, 1, at=(1, 3))], log_of(C, A)
    )


def test_real_time_counts_across_log_streams() -> None:
    appends = [
        acknowledged(1, 1, 2, at=(0, 1), stream=1),
        acknowledged(2, 1, 1, at=(2, 3), stream=2),
    ]
    assert check_real_time(appends, log_of(C, A))


def test_an_append_of_unknown_outcome_may_come_late_but_not_before_it_began() -> None:
    late = [failed(1, 1, Outcome.UNKNOWN, at=0), acknowledged(2, 1, 1, at=(1, 2))]
    assert not check_real_time(late, log_of(C, A))
    early = [failed(1, 1, Outcome.UNKNOWN, at=3), acknowledged(2, 1, 2, at=(1, 2))]
    assert check_real_time(early, log_of(A, C))


def test_appends_of_a_writer_that_changed_places_are_found() -> None:
    appends = [acknowledged(1, 1, 2, at=(0, 9)), acknowledged(1, 2, 1, at=(0, 9))]
    assert check_writers(appends)
    appends[0].stream = 2
    assert not check_writers(appends), "writers have an order within a log stream"


def test_a_batch_that_is_there_in_part_or_apart_is_found() -> None:
    batch = [failed(2, 1, Outcome.UNKNOWN, at=0, count=2)]
    assert not check_whole(batch, log_of(A, C, C + 1))
    assert not check_whole(batch, log_of(A))
    assert check_whole(batch, log_of(A, C))
    assert check_whole(batch, log_of(C, A, C + 1))
    assert check_whole(batch, log_of(C + 1, C))


def test_everything_checks_every_promise() -> None:
    """A history that breaks one promise after the other is not called good by the whole."""
    good = [acknowledged(1, 1, 1, at=(0, 1)), acknowledged(1, 2, 2, at=(2, 3))]
    reader = log_of(A, B)
    assert check_all(good, [reader], end=3, hidden=0) == []
    assert check_all(good, [log_of(A)], end=3, hidden=1)
    assert check_all(good, [log_of(A, B, A)], end=4, hidden=0)
    assert check_all(good, [log_of(A, B, C)], end=4, hidden=0)
    assert check_all(good, [reader], end=4, hidden=0)
    assert check_all(good, [reader, log_of(A)], end=3, hidden=0)
    assert check_all(good, [reader], [log_of(A)], end=3, hidden=0)
    swapped = [acknowledged(1, 1, 2, at=(0, 9)), acknowledged(1, 2, 1, at=(0, 9))]
    assert check_all(swapped, [log_of(B, A)], end=3, hidden=0)
    late = [acknowledged(1, 1, 2, at=(0, 1)), acknowledged(2, 1, 1, at=(2, 3))]
    assert check_all(late, [log_of(C, A)], end=3, hidden=0)
    part = [*good, failed(2, 1, Outcome.UNKNOWN, at=0, count=2)]
    assert check_all(part, [log_of(A, B, C)], end=4, hidden=0)


def test_payloads_tell_whose_they_are_and_whether_they_are_whole() -> None:
    for ident in (A, B, C, ident_of(9, 1 << 31, 65535)):
        payload = payload_of(ident)
        assert read_payload(payload) == ident
        with pytest.raises(AssertionError):
            read_payload(payload[:-1] + bytes([payload[-1] ^ 1]))
    assert parts_of(ident_of(9, 1 << 31, 65535)) == (9, 1 << 31, 65535)
