"""Lanes of several log streams, and what goes to some of them at once.

The model is a single node: it takes such an append as a whole or not at all.  Lanes are served as
their owner serves them: only when something happened to them, or when they are woken.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.client.test_lanes import Outcome, loose, outcome_of
from tidelog.client.lanes import COMPANY_BYTES, Lane, Lanes
from tidelog.client.shipments import Shipment, Ticket, Whole, fail
from tidelog.core.replica.producers import ProducerTable
from tidelog.errors import DeadlineExceeded, LogError, ProducerConflict, StaleWrite
from tidelog.formats.batch import decode_batch, encode_values, seal_batch
from tidelog.interface.appends import Part
from tidelog.interface.records import Receipt

STREAMS = (1, 2, 3)
WINDOW = 3
PRODUCER = 9


def whole(streams: Sequence[int], value: bytes) -> Whole:
    """The same entry for each of these log streams."""
    parts = [Part(stream, encode_values([value], timestamp_us=1)) for stream in streams]
    return Whole(Outcome[tuple[Receipt, ...]](), 10, 1.0, parts)


def offer(lanes: Lanes, ticket: Whole) -> None:
    for part in ticket.parts:
        lanes.lane(part.stream).offer(ticket)


def values_of(part: Part) -> list[bytes]:
    header = seal_batch(part.body, stream=part.stream, term=1, first_llsn=1)
    return decode_batch(header + part.body.data).values()


def three() -> tuple[Lanes, list[Lane]]:
    lanes = Lanes("t", PRODUCER, window=WINDOW, company_bytes=0)
    return lanes, [lanes.lane(stream) for stream in STREAMS]


def send(lane: Lane) -> Shipment:
    shipment = lane.next_shipment(1)
    assert shipment is not None
    return shipment


def facts(shipment: Shipment) -> tuple[int, tuple[int, ...]]:
    return shipment.sequence, shipment.after


def receipts_for(shipment: Shipment) -> list[Receipt]:
    return [Receipt("t", part.stream, 1, 1, part.body.count) for part in shipment.parts]


# -- one by one -----------------------------------------------------------------------------------


def test_a_whole_names_the_one_before_it_in_each_of_its_streams() -> None:
    lanes, [first, second, third] = three()
    first.offer(loose(b"a"))
    second.offer(loose(b"b"))
    assert [facts(send(lane)) for lane in (first, second)] == [(1, (0,)), (2, (0,))]
    offer(lanes, whole((1, 2, 3), b"c"))
    assert facts(send(first)) == (3, (1, 2, 0))
    for lane, value in ((second, b"d"), (third, b"e")):
        lane.offer(loose(value))
    assert [facts(send(lane)) for lane in (second, third)] == [(4, (3,)), (5, (3,))]


def test_a_whole_leaves_when_it_comes_next_in_each_of_its_streams() -> None:
    lanes, [first, second, _] = three()
    woken: list[int] = []
    second.offer(loose(b"a"))
    offer(lanes, whole((1, 2), b"b"))
    first.wake = partial(woken.append, 1)
    assert first.next_shipment(1) is None, "something lies before it in the other one"
    assert facts(send(second)) == (1, (0,))
    assert second.next_shipment(1) is None, "the other lane sends it"
    assert woken == [1]
    assert facts(send(first)) == (2, (0, 1))


def test_nothing_leaves_before_the_whole_that_it_lies_behind() -> None:
    lanes, [first, second, _] = three()
    woken: list[int] = []
    offer(lanes, whole((1, 2), b"a"))
    second.offer(loose(b"b"))
    second.wake = partial(woken.append, 2)
    assert second.next_shipment(1) is None
    assert facts(send(first)) == (1, (0, 0))
    assert woken == [2]
    assert facts(send(second)) == (2, (1,))


def test_a_whole_waits_for_room_in_each_of_its_streams() -> None:
    lanes, [first, second, _] = three()
    sent = []
    for number in range(WINDOW):
        second.offer(loose(b"%d" % number))
        sent.append(send(second))
    offer(lanes, whole((1, 2), b"a"))
    assert first.next_shipment(1) is None
    second.answered(sent[0].sequence, receipts_for(sent[0]))
    assert second.next_shipment(1) is None
    assert facts(send(first)) == (WINDOW + 1, (0, WINDOW))


def test_after_a_loss_all_of_it_is_sent_again_in_order() -> None:
    lanes, [first, second, _] = three()
    second.offer(loose(b"a"))
    send(second)
    offer(lanes, whole((1, 2), b"b"))
    send(first)
    second.offer(loose(b"c"))
    send(second)
    for lane in (first, second):
        lane.send_again()
    assert first.next_shipment(1) is None, "what lies before it in the other one goes first"
    assert facts(send(second)) == (1, (0,))
    assert second.next_shipment(1) is None, "the whole comes next"
    assert facts(send(first)) == (2, (0, 1))
    assert facts(send(second)) == (3, (2,))


def test_what_follows_a_whole_that_was_refused_for_good_begins_a_new_run() -> None:
    lanes, [first, second, _] = three()
    ticket = whole((1, 2), b"a")
    offer(lanes, ticket)
    send(first)
    second.offer(loose(b"b"))
    assert facts(send(second)) == (2, (1,))
    first.refused(1, lambda: StaleWrite("too old"))
    assert isinstance(outcome_of(ticket).error, StaleWrite)
    second.send_again()
    assert facts(send(second)) == (2, (0,))


def test_a_whole_that_nobody_waits_for_holds_nobody_back() -> None:
    lanes, [first, second, _] = three()
    ticket = whole((1, 2), b"a")
    offer(lanes, ticket)
    send(first)
    second.offer(loose(b"b"))
    first.put_off(1, is_certain=True)
    assert second.next_shipment(1) is None
    assert list(first.tickets()) == [(ticket, False)]
    assert [known for known, _ in second.tickets()] != [ticket], "it is told by one lane"
    fail(ticket, DeadlineExceeded("too late"))
    assert facts(send(second)) == (2, (0,))


def test_a_lane_is_woken_when_what_it_waits_for_is_gone() -> None:
    lanes, [first, second, third] = three()
    woken: list[int] = []
    for lane in (first, second, third):
        lane.wake = partial(woken.append, lane.stream)
    lost = loose(b"a")
    second.offer(lost)
    send(second)
    offer(lanes, whole((1, 2, 3), b"b"))
    send(first)
    second.put_off(1, is_certain=True)
    first.send_again()
    fail(lost, DeadlineExceeded("too late"))
    assert first.next_shipment(1) is None
    woken.clear()
    second.send_again()
    assert second.next_shipment(1) is None
    assert 1 in woken
    third.offer(loose(b"c"))
    woken.clear()
    assert facts(send(first)) == (2, (0, 0, 0))
    assert woken == [3]
    first.answered(2, [Receipt("t", stream, 1, 1) for stream in STREAMS])
    assert 3 in woken
    assert facts(send(third)) == (3, (0,))


# -- against a model ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """A shipment as it is on the wire."""

    sequence: int
    sender: int
    parts: tuple[tuple[int, int, tuple[bytes, ...]], ...]
    """(stream, after, values)"""


class Node:
    """All log streams, which take an append together or not at all."""

    def __init__(self) -> None:
        self.values: dict[int, list[bytes]] = {stream: [] for stream in STREAMS}
        self.producers = {stream: ProducerTable(window=WINDOW) for stream in STREAMS}

    def take(self, sent: Sent) -> list[Receipt] | None:
        """Where a shipment lies; None if it is out of order."""
        known = [self.producers[part[0]].lookup(PRODUCER, sent.sequence) for part in sent.parts]
        assert len({one is None for one in known}) == 1, "it is there in part"
        for (stream, after, _), one in zip(sent.parts, known, strict=True):
            if one is None and after and self.producers[stream].is_new(PRODUCER, after):
                return None
        receipts = []
        for (stream, _, values), one in zip(sent.parts, known, strict=True):
            log = self.values[stream]
            begin = len(log) + 1 if one is None else one.llsn_begin
            if one is None:
                log += values
                self.producers[stream].record(PRODUCER, sent.sequence, begin, len(values))
            receipts.append(Receipt("t", stream, begin, begin, len(values)))
        return receipts


class LanesMachine(RuleBasedStateMachine):
    """The lanes of a topic over one connection; each may give up what it has under way."""

    COMPANY_BYTES = 0

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes("t", PRODUCER, window=WINDOW, company_bytes=self.COMPANY_BYTES)
        self.awake: set[int] = set()
        self.paused: set[int] = set()
        """Lanes of which something was refused; nothing is sent before all is sent again."""
        self.node = Node()
        self.wire: list[Sent] = []
        self.late: list[Sent] = []
        """Sent, but nobody listens to the answers; they may still arrive."""
        self.answers: list[tuple[Sent, list[Receipt]]] = []
        self.tickets: dict[bytes, Ticket] = {}
        self.places: dict[bytes, tuple[int, ...]] = {}
        self.given_up: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.without_effect: set[bytes] = set()
        self._numbers = count()
        for stream in STREAMS:
            self.lanes.lane(stream).wake = partial(self.awake.add, stream)

    @rule(streams=st.lists(st.sampled_from(STREAMS), min_size=1, unique=True), single=st.booleans())
    def offer(self, streams: list[int], single: bool) -> None:
        value = b"%d" % next(self._numbers)
        if single:
            streams = streams[:1]
        self.tickets[value] = ticket = loose(value) if single else whole(streams, value)
        self.places[value] = tuple(streams)
        for stream in streams:
            self.lanes.lane(stream).offer(ticket)

    @precondition(lambda self: self.awake - self.paused)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        self._send(data.draw(st.sampled_from(sorted(self.awake - self.paused))))

    def _send(self, stream: int) -> None:
        """Send one thing; a lane that has more to send stays awake."""
        self.awake.discard(stream)
        shipment = self.lanes.lane(stream).next_shipment(1)
        if shipment is not None:
            self.awake.add(stream)
            parts = tuple(
                (part.stream, after, tuple(values_of(part)))
                for part, after in zip(shipment.parts, shipment.after, strict=True)
            )
            self.wire.append(Sent(shipment.sequence, stream, parts))

    @precondition(lambda self: self.wire)
    @rule()
    def take(self) -> None:
        sent = self.wire.pop(0)
        try:
            receipts = self.node.take(sent)
        except ProducerConflict:
            self._refuse(sent, ProducerConflict)
            return
        if receipts is None:
            self._put_off(sent)
        else:
            self.answers.append((sent, receipts))

    @precondition(lambda self: self.wire)
    @rule()
    def refuse_for_good(self) -> None:
        sent = self.wire.pop(0)
        self.refused.update(value for part in sent.parts for value in part[2])
        self._refuse(sent, StaleWrite)

    def _refuse(self, sent: Sent, error: type[LogError]) -> None:
        self.lanes.lane(sent.sender).refused(sent.sequence, lambda: error("refused"))
        self.awake.add(sent.sender)

    @precondition(lambda self: self.wire)
    @rule()
    def refuse_for_now(self) -> None:
        self._put_off(self.wire.pop(0))

    def _put_off(self, sent: Sent) -> None:
        self.lanes.lane(sent.sender).put_off(sent.sequence, is_certain=True)
        self.paused.add(sent.sender)

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        sent, receipts = self.answers.pop(0)
        self.lanes.lane(sent.sender).answered(sent.sequence, receipts)
        self.awake.add(sent.sender)

    @rule(stream=st.sampled_from(STREAMS))
    def give_way_up(self, stream: int) -> None:
        """A lane has waited long enough for answers; a pause of it is over."""
        self.late += [sent for sent in self.wire if sent.sender == stream]
        self.wire = [sent for sent in self.wire if sent.sender != stream]
        self.answers = [one for one in self.answers if one[0].sender != stream]
        self.lanes.lane(stream).send_again()
        self.paused.discard(stream)
        self.awake.add(stream)

    @rule(order=st.permutations(STREAMS))
    def lose(self, order: list[int]) -> None:
        """The connection is gone."""
        for stream in order:
            self.give_way_up(stream)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        with suppress(ProducerConflict):
            self.node.take(self.late.pop(data.draw(st.integers(0, len(self.late) - 1))))

    def _open_tickets(self) -> list[tuple[Ticket, bool]]:
        return [one for stream in STREAMS for one in self.lanes.lane(stream).tickets()]

    @precondition(lambda self: self._open_tickets())
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        tickets = self._open_tickets()
        ticket, maybe = tickets[data.draw(st.integers(0, len(tickets) - 1))]
        [value] = [value for value, known in self.tickets.items() if known is ticket]
        self.given_up.add(value)
        if not maybe:
            self.without_effect.add(value)
        fail(ticket, DeadlineExceeded("given up"))
        self.awake.update(STREAMS)

    @invariant()
    def every_ticket_is_told_by_one_lane(self) -> None:
        waiting = [ticket for ticket, _ in self._open_tickets()]
        assert len(waiting) == len(set(map(id, waiting)))
        assert set(map(id, waiting)) == {
            id(ticket) for ticket in self.tickets.values() if not ticket.settled
        }

    @invariant()
    def nothing_is_there_twice_and_the_order_is_kept(self) -> None:
        for values in self.node.values.values():
            numbers = [int(value) for value in values]
            assert numbers == sorted(set(numbers))

    @invariant()
    def it_is_there_as_a_whole_or_not_at_all(self) -> None:
        for value, streams in self.places.items():
            found = [stream for stream in STREAMS if value in self.node.values[stream]]
            assert found in ([], sorted(streams))

    @invariant()
    def receipts_and_refusals_are_true(self) -> None:
        for value, ticket in self.tickets.items():
            outcome = outcome_of(ticket)
            if outcome.result is not None:
                told = outcome.result
                receipts = (told,) if isinstance(told, Receipt) else told
                assert tuple(receipt.stream for receipt in receipts) == self.places[value]
                for one in receipts:
                    assert value in self.node.values[one.stream][one.glsn - 1 : one.glsn_end - 1]
            elif value not in self.given_up and outcome.error is not None:
                assert value in self.refused, "another append has passed it by"
                assert isinstance(outcome.error, LogError)
                if outcome.error.definite:
                    self.without_effect.add(value)
        for stream in STREAMS:
            assert self.without_effect.isdisjoint(self.node.values[stream])

    def teardown(self) -> None:
        """A connection that holds settles all; nobody looks after lanes that are not woken."""
        for stream in self.paused.copy():
            self.give_way_up(stream)
        while self.awake or self.wire or self.answers:
            for stream in sorted(self.awake):
                self._send(stream)
            while self.wire:
                self.take()
            while self.answers:
                self.answer()
            for stream in self.paused.copy():
                self.give_way_up(stream)
        assert all(ticket.settled for ticket in self.tickets.values())
        self.receipts_and_refusals_are_true()
        self.nothing_is_there_twice_and_the_order_is_kept()
        self.it_is_there_as_a_whole_or_not_at_all()


class WaitingLanesMachine(LanesMachine):
    """The same, but few entries wait for company."""

    COMPANY_BYTES = COMPANY_BYTES


TestLanesMachine = LanesMachine.TestCase
TestWaitingLanesMachine = WaitingLanesMachine.TestCase
