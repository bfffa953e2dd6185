"""Group commit by itself: who leads, who waits, and what becomes of those who cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.embedded.logs import WAIT_SECONDS, Gate, in_thread, together, wait_until
from tidelog.embedded import commit_queue
from tidelog.embedded.commit_queue import CommitQueue, Request
from tidelog.errors import Busy, DeadlineExceeded, DiskFull, LogClosed, StorageFailed
from tidelog.limits import GROUP_BYTES_MAX


class Journal:
    """A commit function that writes down its groups, and may be held up or made to fail."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.groups: list[list[Request]] = []
        self.leaders: list[int] = []
        self.errors: list[BaseException] = []
        self.queue: CommitQueue[Request] = CommitQueue(self.commit)

    def commit(self, group: list[Request]) -> None:
        self.leaders.append(threading.get_ident())
        self.groups.append(group)
        self.gate.pass_through()
        if self.errors:
            raise self.errors.pop(0)
        for request in group:
            request.finish()

    def submit(self, request: Request, timeout: float = WAIT_SECONDS) -> None:
        self.queue.submit(request, timeout)
        if request.error is not None:
            raise request.error

    def wait_for_queued(self, count: int) -> None:
        wait_until(lambda: len(self.queue._queue) >= count, f"{count} queued requests")


def sizes(journal: Journal) -> list[int]:
    return [len(group) for group in journal.groups]


def test_a_lone_request_is_committed_by_its_own_thread() -> None:
    journal = Journal()
    journal.submit(Request(1))
    assert sizes(journal) == [1]
    assert journal.leaders == [threading.get_ident()]


def test_all_that_came_during_a_commit_is_the_next_group() -> None:
    journal = Journal()
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()
        with in_thread(lambda: together(5, lambda _: journal.submit(Request(1)))) as others:
            journal.wait_for_queued(5)
            journal.gate.open()
            others.result(WAIT_SECONDS)
        first.result(WAIT_SECONDS)
    assert sizes(journal) == [1, 5]
    assert journal.leaders[0] != journal.leaders[1], "the lead goes to one of those who waited"


def test_a_group_is_bounded_and_the_rest_is_led_by_one_of_its_own() -> None:
    journal = Journal()
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()
        half = GROUP_BYTES_MAX // 2

        def submit_large(_: int) -> None:
            journal.submit(Request(half))

        with in_thread(lambda: together(3, submit_large)) as others:
            journal.wait_for_queued(3)
            journal.gate.open()
            others.result(WAIT_SECONDS)
        first.result(WAIT_SECONDS)
    assert sizes(journal) == [1, 2, 1]


def test_a_deadline_in_the_queue_takes_the_request_back() -> None:
    journal = Journal()
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()
        with pytest.raises(Busy, match="nothing was written") as caught:
            journal.submit(Request(1), timeout=0.01)
        assert caught.value.definite
        journal.gate.open()
        first.result(WAIT_SECONDS)
    journal.submit(Request(1))
    assert sizes(journal) == [1, 1], "the request that gave up was never committed"


class ImpatientRequest(Request):
    """Its deadline passes when the second commit is under way."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(1)
        self.journal = journal

    def wait(self, seconds: float) -> bool:
        wait_until(lambda: len(self.journal.groups) == 2, "the second commit")
        return False


def test_a_deadline_during_the_commit_leaves_the_outcome_open() -> None:
    journal = Journal()
    impatient = ImpatientRequest(journal)
    with journal.gate.shut() as gate, in_thread(lambda: journal.submit(Request(1))) as first:
        gate.wait_until_held()
        with in_thread(lambda: journal.submit(Request(1))) as leader:
            journal.wait_for_queued(1)
            with in_thread(lambda: journal.submit(impatient)) as waiting:
                journal.wait_for_queued(2)
                gate.let_pass(1)
                first.result(WAIT_SECONDS)
                error = waiting.exception(WAIT_SECONDS)
            gate.open()
            leader.result(WAIT_SECONDS)
    assert isinstance(error, DeadlineExceeded)
    assert not error.definite
    assert "may take effect" in str(error)
    assert sizes(journal) == [1, 2]
    assert impatient.done
    assert impatient.error is None


def test_a_failed_commit_is_told_to_everyone_in_its_group_and_nobody_else() -> None:
    journal = Journal()
    journal.errors = [DiskFull("no room")]
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()

        def submit(_: int) -> BaseException | None:
            request = Request(1)
            journal.queue.submit(request, WAIT_SECONDS)
            return request.error

        with in_thread(lambda: together(3, submit)) as others:
            journal.wait_for_queued(3)
            journal.gate.open()
            assert others.result(WAIT_SECONDS) == [None] * 3
        assert isinstance(first.exception(WAIT_SECONDS), DiskFull)
    journal.errors = [DiskFull("again")]
    with pytest.raises(DiskFull, match="again"):
        journal.submit(Request(1))
    journal.submit(Request(1))


class TornAway(BaseException):
    """Stands for a KeyboardInterrupt, which a test cannot aim at one thread."""


def test_a_leader_that_is_torn_away_leaves_nobody_waiting() -> None:
    journal = Journal()
    journal.errors = [DiskFull("first"), TornAway()]
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()
        outcomes: list[BaseException] = []

        def submit(_: int) -> None:
            try:
                journal.submit(Request(1))
            except (StorageFailed, TornAway) as error:
                outcomes.append(error)

        with in_thread(lambda: together(3, submit)) as others:
            journal.wait_for_queued(3)
            journal.gate.open()
            others.result(WAIT_SECONDS)
        first.exception(WAIT_SECONDS)
    assert sorted(type(error).__name__ for error in outcomes) == [
        "StorageFailed",
        "StorageFailed",
        "TornAway",
    ]
    journal.submit(Request(1))  # The lead was not lost with the thread.


class InterruptedRequest(Request):
    """Its waiting thread is torn away at a chosen moment."""

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__(1)
        self.before = before

    def wait(self, seconds: float) -> bool:
        self.before()
        raise KeyboardInterrupt


def test_an_interrupt_while_waiting_takes_the_request_back() -> None:
    journal = Journal()
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()
        with pytest.raises(KeyboardInterrupt):
            journal.submit(InterruptedRequest(lambda: None))
        journal.gate.open()
        first.result(WAIT_SECONDS)
    journal.submit(Request(1))
    assert sizes(journal) == [1, 1]


def test_an_interrupt_of_the_one_who_was_given_the_lead_passes_it_on() -> None:
    journal = Journal()
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()

        def until_it_leads() -> None:
            journal.wait_for_queued(2)
            journal.gate.open()
            first.result(WAIT_SECONDS)
            assert request.leads

        request = InterruptedRequest(until_it_leads)
        with in_thread(lambda: journal.queue.submit(request, WAIT_SECONDS)) as interrupted:
            journal.wait_for_queued(1)
            journal.submit(Request(1))
            assert isinstance(interrupted.exception(WAIT_SECONDS), KeyboardInterrupt)
    assert sizes(journal) == [1, 1]
    assert not request.done


class LateRequest(Request):
    """Its wait ends without an answer, although it was given the lead in the same moment."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(1)
        self.journal = journal

    def wait(self, seconds: float) -> bool:
        self.journal.wait_for_queued(2)
        self.journal.gate.open()
        wait_until(lambda: self.leads, "the lead")
        wait_until(lambda: not self._wake.locked(), "the word of it")
        return False


def test_a_lead_that_comes_with_the_deadline_is_taken() -> None:
    journal = Journal()
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()
        with in_thread(lambda: journal.submit(LateRequest(journal))) as late:
            journal.wait_for_queued(1)
            journal.submit(Request(1))  # Commits with the late one, and must not suffer from it.
            late.result(WAIT_SECONDS)
        first.result(WAIT_SECONDS)
    assert sizes(journal) == [1, 2]


def test_the_queue_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_queue, "APPEND_QUEUE_BYTES_MAX", 10)
    journal = Journal()
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()
        with in_thread(lambda: journal.submit(Request(8))) as queued:
            journal.wait_for_queued(1)
            with pytest.raises(Busy, match="8 bytes wait") as caught:
                journal.submit(Request(3), timeout=0.01)
            assert caught.value.definite
            with pytest.raises(Busy, match="await earlier appends"):
                journal.queue.post(Request(3))
            with in_thread(lambda: journal.submit(Request(3))) as patient:
                journal.gate.open()
                patient.result(WAIT_SECONDS)
            queued.result(WAIT_SECONDS)
        first.result(WAIT_SECONDS)
    assert sum(sizes(journal)) == 3


def test_a_request_larger_than_the_bound_is_taken_when_nothing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_queue, "APPEND_QUEUE_BYTES_MAX", 10)
    journal = Journal()
    journal.submit(Request(100))
    assert sizes(journal) == [1]


def test_closing_waits_for_what_is_queued_and_refuses_the_rest() -> None:
    journal = Journal()
    with journal.gate.shut(), in_thread(lambda: journal.submit(Request(1))) as first:
        journal.gate.wait_until_held()
        with in_thread(lambda: journal.submit(Request(1))) as queued:
            journal.wait_for_queued(1)
            with in_thread(journal.queue.close) as closing:
                wait_until(lambda: journal.queue._closed, "the closing")
                with pytest.raises(LogClosed):
                    journal.submit(Request(1))
                assert not closing.done()
                journal.gate.open()
                closing.result(WAIT_SECONDS)
            assert sizes(journal) == [1, 1]
            queued.result(WAIT_SECONDS)
        first.result(WAIT_SECONDS)


def test_a_posted_request_is_led_by_whoever_its_wake_tells() -> None:
    journal = Journal()

    class Posted(Request):
        def wake(self) -> None:
            woken.append(self.done)

    woken: list[bool] = []
    assert journal.queue.post(Posted(1)), "nobody leads yet"
    assert not journal.queue.post(Posted(1))
    journal.queue.lead()
    assert sizes(journal) == [2]
    assert woken == [True, True]
