"""Lanes against a model of the log: losses, duplicates, refusals and reconnects in any order.

The model answers producers with the log's own ``ProducerTable``.  What a lane promises is then
checked by looking at what the model's log holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.client.lanes import SHIPMENT_BYTES, Lane, Shipment, Single, Ticket, Whole, fail
from tidelog.core.replica.producers import ProducerTable
from tidelog.errors import Busy, DeadlineExceeded, LogError, ProducerConflict
from tidelog.formats.batch import decode_batch, encode_values, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Part
from tidelog.interface.records import Receipt

STREAM = 3
WINDOW = 3
T = TypeVar("T")


class Outcome(Generic[T]):
    """A waiter that notices when it is told twice (N4)."""

    def __init__(self) -> None:
        self.result: T | None = None
        self.error: BaseException | None = None

    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def set_result(self, result: T, /) -> None:
        assert not self.done()
        self.result = result

    def set_exception(self, exception: BaseException, /) -> None:
        assert not self.done()
        self.error = exception


def single(value: bytes, *, deadline: float = 1.0, entry: Entry | None = None) -> Single:
    return Single(Outcome[Receipt](), len(value), deadline, value, entry)


def whole(values: Sequence[bytes]) -> Whole:
    part = Part(STREAM, encode_values(values, timestamp_us=1))
    return Whole(Outcome[tuple[Receipt, ...]](), 10, 1.0, (part,))


def values_in(shipment: Shipment) -> list[bytes]:
    [part] = shipment.parts
    header = seal_batch(part.body, stream=part.stream, term=1, first_llsn=1)
    return decode_batch(header + part.body.data).values()


def versioned(value: bytes, version: int) -> Single:
    return single(value, entry=Entry(Kind.PUT, value, b"key", write_version=version))


def outcome_of(ticket: Ticket) -> Outcome[Receipt] | Outcome[tuple[Receipt, ...]]:
    assert isinstance(ticket.waiter, Outcome)
    return ticket.waiter


# -- one by one -----------------------------------------------------------------------------------


def test_what_queues_up_while_the_window_is_full_goes_in_one_batch() -> None:
    lane = Lane("t", STREAM, 7, window=1)
    first = single(b"a")
    lane.offer(first)
    sent = lane.next_shipment(1)
    assert sent is not None
    assert values_in(sent) == [b"a"]
    others = [single(b"b"), single(b"c"), single(b"d")]
    for ticket in others:
        lane.offer(ticket)
    assert lane.next_shipment(1) is None
    lane.answered(1, [Receipt("t", STREAM, 10, 5)])
    following = lane.next_shipment(1)
    assert following is not None
    assert (following.sequence, values_in(following)) == (2, [b"b", b"c", b"d"])
    assert lane.answered(2, [Receipt("t", STREAM, 20, 6, 3)]) == 3
    receipts = [outcome_of(ticket).result for ticket in others]
    assert receipts == [Receipt("t", STREAM, 20 + i, 6 + i) for i in range(3)]
    assert lane.idle


def test_a_batch_of_singles_is_bounded_in_bytes() -> None:
    lane = Lane("t", STREAM, 7)
    for _ in range(5):
        lane.offer(single(bytes(SHIPMENT_BYTES // 2)))
    sizes = []
    while (shipment := lane.next_shipment(1)) is not None:
        sizes.append(len(values_in(shipment)))
    assert sizes == [2, 2, 1]


def test_explicit_versions_share_a_batch_with_nobody() -> None:
    """One that is too old is refused; the others must not be refused with it."""
    lane = Lane("t", STREAM, 7)
    for ticket in (single(b"a"), versioned(b"b", 1), versioned(b"c", 2), single(b"d")):
        lane.offer(ticket)
    found = []
    while (shipment := lane.next_shipment(1)) is not None:
        found.append(values_in(shipment))
    assert found == [[b"a"], [b"b"], [b"c"], [b"d"]]


def test_keys_and_plain_values_share_a_batch_and_get_the_time_of_sending() -> None:
    lane = Lane("t", STREAM, 7)
    lane.offer(single(b"a"))
    lane.offer(single(b"b", entry=Entry(Kind.PUT, b"b", b"k")))
    lane.offer(single(b"c", entry=Entry(Kind.PUT, b"c", b"l", timestamp_us=5)))
    shipment = lane.next_shipment(77)
    assert shipment is not None
    [part] = shipment.parts
    header = seal_batch(part.body, stream=STREAM, term=1, first_llsn=1)
    entries = decode_batch(header + part.body.data).entries()
    assert entries == [
        Entry(Kind.APPEND, b"a", timestamp_us=77),
        Entry(Kind.PUT, b"b", b"k", timestamp_us=77),
        Entry(Kind.PUT, b"c", b"l", timestamp_us=5),
    ]


def test_after_a_loss_everything_is_sent_again_in_order_under_the_same_numbers() -> None:
    lane = Lane("t", STREAM, 7)
    for value in (b"a", b"b", b"c"):
        lane.offer(single(value))
        assert lane.next_shipment(1) is not None
    lane.answered(2, [Receipt("t", STREAM, 2, 2)])
    lane.lost()
    again = [lane.next_shipment(1), lane.next_shipment(1)]
    assert [(s.sequence, values_in(s), s.tries) for s in again if s] == [
        (1, [b"a"], 2),
        (3, [b"c"], 2),
    ]
    assert lane.next_shipment(1) is None


def test_what_nobody_waits_for_is_not_sent_again() -> None:
    lane = Lane("t", STREAM, 7)
    ticket = single(b"a")
    lane.offer(ticket)
    assert lane.next_shipment(1) is not None
    fail(ticket, DeadlineExceeded("too late"))
    lane.lost()
    assert lane.next_shipment(1) is None
    assert lane.idle


def test_a_conflict_on_a_second_try_means_that_the_first_was_refused() -> None:
    lane = Lane("t", STREAM, 7)
    ticket = single(b"a")
    lane.offer(ticket)
    lane.next_shipment(1)
    lane.lost()
    lane.next_shipment(1)
    lane.refused(1, lambda: ProducerConflict("not among the last"))
    error = outcome_of(ticket).error
    assert isinstance(error, Busy)
    assert error.definite


def test_a_duplicate_whose_place_was_compacted_away_has_no_glsn() -> None:
    lane = Lane("t", STREAM, 7, window=1)
    tickets = [single(b"a"), single(b"b")]
    for ticket in tickets:
        lane.offer(ticket)
    lane.next_shipment(1)
    lane.answered(1, [Receipt("t", STREAM, 0, 4, 2)])
    assert [outcome_of(ticket).result for ticket in tickets] == [
        Receipt("t", STREAM, 0, 4),
        Receipt("t", STREAM, 0, 5),
    ]


@pytest.mark.parametrize("sent", [False, True])
def test_a_lane_knows_what_was_sent(sent: bool) -> None:
    lane = Lane("t", STREAM, 7)
    ticket = single(b"a")
    lane.offer(ticket)
    if sent:
        lane.next_shipment(1)
    assert list(lane.tickets()) == [(ticket, sent)]


# -- against a model ------------------------------------------------------------------------------


@dataclass
class Answer:
    sequence: int
    receipts: list[Receipt] | None
    """None: refused."""


class ModelLog:
    """One log stream that has nobody else's entries, so that GLSN and LLSN are its places."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._producers = ProducerTable(window=WINDOW)

    def take(self, producer: int, shipment: Shipment) -> Answer:
        try:
            known = self._producers.lookup(producer, shipment.sequence)
        except ProducerConflict:
            return Answer(shipment.sequence, None)
        values = values_in(shipment)
        if known is None:
            begin = len(self.values) + 1
            self.values += values
            self._producers.record(producer, shipment.sequence, begin, len(values))
        else:
            begin = known.llsn_begin
            assert known.count == len(values)
        return Answer(shipment.sequence, [Receipt("t", STREAM, begin, begin, len(values))])


class LaneMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane("t", STREAM, 9, window=WINDOW)
        self.log = ModelLog()
        self.wire: list[Shipment] = []
        self.answers: list[Answer] = []
        self.tickets: dict[bytes, Ticket] = {}
        self.given_up: set[bytes] = set()
        self.never_sent: set[bytes] = set()
        self.refusals = 0
        self._numbers = count()

    def _value(self) -> bytes:
        return b"%d" % next(self._numbers)

    def _offer(self, ticket: Ticket, values: Sequence[bytes]) -> None:
        self.lane.offer(ticket)
        for value in values:
            self.tickets[value] = ticket

    @rule()
    def offer_single(self) -> None:
        value = self._value()
        self._offer(single(value), [value])

    @rule(size=st.integers(1, 3))
    def offer_whole(self, size: int) -> None:
        values = [self._value() for _ in range(size)]
        self._offer(whole(values), values)

    @rule()
    def offer_version(self) -> None:
        value = self._value()
        self._offer(versioned(value, 5), [value])

    @rule()
    def send(self) -> None:
        shipment = self.lane.next_shipment(1)
        if shipment is not None:
            self.wire.append(shipment)

    @precondition(lambda self: self.wire)
    @rule()
    def take(self) -> None:
        self.answers.append(self.log.take(self.lane.producer, self.wire.pop(0)))

    @precondition(lambda self: self.wire)
    @rule()
    def refuse(self) -> None:
        self.refusals += 1
        self.answers.append(Answer(self.wire.pop(0).sequence, None))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.answers) - 1))
        self._tell(self.answers.pop(index))

    def _tell(self, answer: Answer) -> None:
        if answer.receipts is None:
            self.lane.refused(answer.sequence, lambda: ProducerConflict("refused"))
        else:
            self.lane.answered(answer.sequence, answer.receipts)

    @rule(arrives=st.integers(0, WINDOW))
    def lose(self, arrives: int) -> None:
        """Some of what was sent still arrives; no answer comes back."""
        for shipment in self.wire[:arrives]:
            self.log.take(self.lane.producer, shipment)
        self.wire.clear()
        self.answers.clear()
        self.lane.lost()

    @precondition(lambda self: any(True for _ in self.lane.tickets()))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        tickets = list(self.lane.tickets())
        ticket, sent = tickets[data.draw(st.integers(0, len(tickets) - 1))]
        values = {value for value, known in self.tickets.items() if known is ticket}
        self.given_up |= values
        if not sent:
            self.never_sent |= values
        fail(ticket, DeadlineExceeded("given up"))

    @invariant()
    def nothing_is_there_twice(self) -> None:
        assert len(set(self.log.values)) == len(self.log.values)

    @invariant()
    def what_was_never_sent_never_arrives(self) -> None:
        assert self.never_sent.isdisjoint(self.log.values)

    @invariant()
    def receipts_are_true(self) -> None:
        for value, ticket in self.tickets.items():
            outcome = outcome_of(ticket)
            if isinstance(outcome.result, Receipt):
                assert self.log.values[outcome.result.glsn - 1] == value
            elif outcome.result is not None:
                [receipt] = outcome.result
                assert value in self.log.values[receipt.glsn - 1 : receipt.glsn_end - 1]
            elif value not in self.given_up and outcome.error is not None:
                assert isinstance(outcome.error, LogError)
                assert outcome.error.definite
                assert value not in self.log.values

    @invariant()
    def without_refusals_the_order_is_kept(self) -> None:
        if not self.refusals:
            numbers = [int(value) for value in self.log.values]
            assert numbers == sorted(numbers)

    def teardown(self) -> None:
        """A connection that holds settles all."""
        self.lose(0)
        while not self.lane.idle:
            self.send()
            while self.wire:
                self.take()
                self._tell(self.answers.pop())
        assert all(ticket.settled for ticket in self.tickets.values())
        self.nothing_is_there_twice()
        self.what_was_never_sent_never_arrives()
        self.receipts_are_true()
        self.without_refusals_the_order_is_kept()


TestLaneMachine = LaneMachine.TestCase
