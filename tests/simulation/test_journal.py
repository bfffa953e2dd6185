"""The journal's digest covers all that happened; its memory does not (J1, J2)."""

from __future__ import annotations

from tidelog.testing.journal import EVENTS_KEPT, Happened, Journal


def test_histories_that_differ_in_a_forgotten_event_have_other_digests() -> None:
    def digest(first: int) -> str:
        journal = Journal()
        journal.note(Happened.DELIVER, 1, first)
        for number in range(3 * EVENTS_KEPT):
            journal.note(Happened.DELIVER, 2, number)
        return journal.digest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_only_the_last_events_are_kept() -> None:
    journal = Journal()
    for number in range(3 * EVENTS_KEPT):
        journal.now = number * 1000
        journal.note(Happened.SYNC, 3, number)
    lines = journal.last(10 * EVENTS_KEPT)
    assert len(lines) == EVENTS_KEPT
    assert "node 3" in lines[-1]
    assert "sync" in lines[-1]


def test_bytes_count_at_their_place_in_the_history() -> None:
    first, second = Journal(), Journal()
    first.absorb(b"a")
    first.note(Happened.SYNC, 1)
    second.note(Happened.SYNC, 1)
    second.absorb(b"a")
    assert first.digest() != second.digest()
