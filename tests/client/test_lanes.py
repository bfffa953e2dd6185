"""Lanes against a model of the log: losses, refusals and leaders that come and go, in any order.

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

from tidelog.client.lanes import (
    COMPANY_BYTES,
    SHIPMENT_BYTES,
    SHIPMENT_ENTRIES,
    Lane,
    Lanes,
)
from tidelog.client.shipments import Loose, Shipment, Ticket, Whole, fail
from tidelog.core.replica.producers import ProducerTable
from tidelog.errors import Busy, DeadlineExceeded, LogError, ProducerConflict, StaleWrite
from tidelog.formats.batch import decode_batch, encode_values, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Part
from tidelog.interface.records import Ack, Receipt

STREAM = 3
WINDOW = 3
PRODUCER = 9
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


def loose(*contents: bytes | Entry, version: int | None = None) -> Loose:
    size = sum(len(one if isinstance(one, bytes) else one.value) for one in contents)
    return Loose(Outcome[Receipt](), size, 1.0, list(contents), version)


def whole(values: Sequence[bytes]) -> Whole:
    part = Part(STREAM, encode_values(values, timestamp_us=1))
    return Whole(Outcome[tuple[Receipt, ...]](), 10, 1.0, (part,))


def values_in(shipment: Shipment) -> list[bytes]:
    [part] = shipment.parts
    header = seal_batch(part.body, stream=part.stream, term=1, first_llsn=1)
    return decode_batch(header + part.body.data).values()


def versioned(value: bytes, version: int) -> Loose:
    return loose(Entry(Kind.PUT, value, b"key", write_version=version), version=version)


def outcome_of(ticket: Ticket) -> Outcome[Receipt] | Outcome[tuple[Receipt, ...]]:
    assert isinstance(ticket.waiter, Outcome)
    return ticket.waiter


# -- one by one -----------------------------------------------------------------------------------


def test_what_queues_up_while_the_window_is_full_goes_in_one_batch() -> None:
    lane = Lanes("t", 7, window=1).lane(STREAM)
    first = loose(b"a")
    lane.offer(first)
    sent = lane.next_shipment(1)
    assert sent is not None
    assert values_in(sent) == [b"a"]
    others = [loose(b"b"), loose(b"c"), loose(b"d")]
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


def under_way() -> Lane:
    """A lane with one loose entry under way."""
    lane = Lanes("t", 7).lane(STREAM)
    lane.offer(loose(b"a"))
    assert lane.next_shipment(1) is not None
    return lane


def test_few_entries_wait_for_the_answer_to_those_before_them_and_go_together() -> None:
    lane = under_way()
    lane.offer(loose(b"b"))
    assert lane.next_shipment(1) is None
    lane.offer(loose(b"c"))
    assert lane.next_shipment(1) is None
    lane.answered(1, [Receipt("t", STREAM, 10, 5)])
    following = lane.next_shipment(1)
    assert following is not None
    assert values_in(following) == [b"b", b"c"]


def test_many_entries_wait_for_no_answer() -> None:
    lane = under_way()
    lane.offer(loose(bytes(COMPANY_BYTES - 1)))
    assert lane.next_shipment(1) is None
    lane.offer(loose(b"b"))
    assert lane.next_shipment(1) is not None


def test_an_entry_that_gets_no_company_waits_for_no_answer() -> None:
    lane = under_way()
    lane.offer(versioned(b"b", 4))
    assert lane.next_shipment(1) is not None


def test_entries_wait_for_nobody_that_waits_for_less() -> None:
    lane = under_way()
    lane.offer(Loose(Outcome[Receipt](), 1, 1.0, [b"b"], None, Ack.STORED))
    assert lane.next_shipment(1) is not None


def test_entries_that_wait_for_company_hold_up_no_batch() -> None:
    lane = under_way()
    lane.offer(loose(b"b"))
    assert lane.next_shipment(1) is None
    lane.offer(whole([b"c"]))
    shipments = [lane.next_shipment(1), lane.next_shipment(1)]
    assert [values_in(one) for one in shipments if one is not None] == [[b"b"], [b"c"]]
    lane.answered(1, [Receipt("t", STREAM, 10, 5)])
    lane.answered(2, [Receipt("t", STREAM, 11, 6)])
    lane.offer(loose(b"d"))
    assert lane.next_shipment(1) is not None, "nor does a batch hold them up"


def test_entries_wait_for_no_answer_that_nobody_waits_for() -> None:
    lane = Lanes("t", 7).lane(STREAM)
    first = loose(b"a")
    lane.offer(first)
    assert lane.next_shipment(1) is not None
    lane.offer(loose(b"b"))
    assert lane.next_shipment(1) is None
    fail(first, DeadlineExceeded("too late"))
    assert lane.next_shipment(1) is not None


def test_a_batch_of_loose_entries_is_bounded_in_bytes() -> None:
    lane = Lanes("t", 7).lane(STREAM)
    for _ in range(5):
        lane.offer(loose(bytes(SHIPMENT_BYTES // 2)))
    sizes = []
    while (shipment := lane.next_shipment(1)) is not None:
        sizes.append(len(values_in(shipment)))
    assert sizes == [2, 2, 1]


def test_a_batch_of_loose_entries_is_bounded_in_entries() -> None:
    lane = Lanes("t", 7, company_bytes=0).lane(STREAM)
    for _ in range(5):
        lane.offer(loose(*[b"a"] * (SHIPMENT_ENTRIES // 2)))
    sizes = []
    while (shipment := lane.next_shipment(1)) is not None:
        sizes.append(len(values_in(shipment)))
    assert sizes == [SHIPMENT_ENTRIES, SHIPMENT_ENTRIES, SHIPMENT_ENTRIES // 2]


def test_every_ticket_of_a_batch_gets_its_part_of_the_receipt() -> None:
    lane = Lanes("t", 7).lane(STREAM)
    tickets = [loose(b"a", b"b"), loose(b"c"), loose(b"d", b"e", b"f"), loose(b"g")]
    for ticket in tickets:
        lane.offer(ticket)
    shipment = lane.next_shipment(1)
    assert shipment is not None
    assert values_in(shipment) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    fail(tickets[1], DeadlineExceeded("too late"))
    assert lane.answered(1, [Receipt("t", STREAM, 20, 6, 7)]) == 6
    assert [outcome_of(ticket).result for ticket in tickets] == [
        Receipt("t", STREAM, 20, 6, 2),
        None,
        Receipt("t", STREAM, 23, 9, 3),
        Receipt("t", STREAM, 26, 12),
    ]


def test_explicit_versions_share_a_batch_with_nobody() -> None:
    """One that is too old is refused; the others must not be refused with it."""
    lane = Lanes("t", 7, company_bytes=0).lane(STREAM)
    for ticket in (loose(b"a"), versioned(b"b", 1), versioned(b"c", 2), loose(b"d")):
        lane.offer(ticket)
    found = []
    while (shipment := lane.next_shipment(1)) is not None:
        found.append(values_in(shipment))
    assert found == [[b"a"], [b"b"], [b"c"], [b"d"]]


def test_keys_and_plain_values_share_a_batch_and_get_the_time_of_sending() -> None:
    lane = Lanes("t", 7).lane(STREAM)
    lane.offer(loose(b"a"))
    lane.offer(loose(Entry(Kind.PUT, b"b", b"k")))
    lane.offer(loose(Entry(Kind.PUT, b"c", b"l", timestamp_us=5)))
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
    lane = Lanes("t", 7, company_bytes=0).lane(STREAM)
    for value in (b"a", b"b", b"c"):
        lane.offer(loose(value))
        assert lane.next_shipment(1) is not None
    lane.answered(2, [Receipt("t", STREAM, 2, 2)])
    lane.send_again()
    again = [lane.next_shipment(1), lane.next_shipment(1)]
    assert [(s.sequence, values_in(s), s.tries) for s in again if s] == [
        (1, [b"a"], 2),
        (3, [b"c"], 2),
    ]
    assert lane.next_shipment(1) is None


def test_what_nobody_waits_for_is_not_sent_again() -> None:
    lane = Lanes("t", 7).lane(STREAM)
    ticket = loose(b"a")
    lane.offer(ticket)
    assert lane.next_shipment(1) is not None
    fail(ticket, DeadlineExceeded("too late"))
    lane.send_again()
    assert lane.next_shipment(1) is None
    assert lane.idle


def test_a_conflict_on_a_second_try_means_that_the_first_was_refused() -> None:
    lane = Lanes("t", 7).lane(STREAM)
    ticket = loose(b"a")
    lane.offer(ticket)
    lane.next_shipment(1)
    lane.send_again()
    lane.next_shipment(1)
    lane.refused(1, lambda: ProducerConflict("not among the last"))
    error = outcome_of(ticket).error
    assert isinstance(error, Busy)
    assert error.definite


def test_a_duplicate_whose_place_was_compacted_away_has_no_glsn() -> None:
    lane = Lanes("t", 7, window=1).lane(STREAM)
    tickets = [loose(b"a"), loose(b"b")]
    for ticket in tickets:
        lane.offer(ticket)
    lane.next_shipment(1)
    lane.answered(1, [Receipt("t", STREAM, 0, 4, 2)])
    assert [outcome_of(ticket).result for ticket in tickets] == [
        Receipt("t", STREAM, 0, 4),
        Receipt("t", STREAM, 0, 5),
    ]


def three_under_way() -> tuple[Lane, list[Shipment]]:
    lane = Lanes("t", 7, company_bytes=0).lane(STREAM)
    sent = []
    for value in (b"a", b"b", b"c"):
        lane.offer(loose(value))
        shipment = lane.next_shipment(1)
        assert shipment is not None
        sent.append(shipment)
    return lane, sent


def resent(lane: Lane) -> list[tuple[int, int]]:
    """Sequence and ``after`` of all that is sent again."""
    lane.send_again()
    found = []
    while (shipment := lane.next_shipment(1)) is not None:
        [after] = shipment.after
        found.append((shipment.sequence, after))
    return found


def test_a_shipment_names_the_one_before_it_only_while_that_is_unanswered() -> None:
    lane, sent = three_under_way()
    assert [(one.sequence, one.after) for one in sent] == [(1, (0,)), (2, (1,)), (3, (2,))]
    lane.answered(1, [Receipt("t", STREAM, 1, 1)])
    assert resent(lane) == [(2, 0), (3, 2)]


def test_what_follows_a_shipment_that_was_refused_for_good_names_the_one_before_that() -> None:
    lane, _ = three_under_way()
    lane.refused(2, lambda: StaleWrite("too old"))
    assert resent(lane) == [(1, 0), (3, 1)]


def test_what_follows_a_shipment_that_was_given_up_begins_a_new_run() -> None:
    lane, sent = three_under_way()
    for ticket in sent[0].each():
        fail(ticket, DeadlineExceeded("too late"))
    assert resent(lane) == [(2, 0), (3, 2)]


def test_what_was_forgotten_in_between_counts_for_the_window() -> None:
    """The log may have it: with one more, it would not know the first one any longer."""
    lane = Lanes("t", 7, window=3, company_bytes=0).lane(STREAM)
    tickets = [loose(b"%d" % number) for number in range(4)]
    for ticket in tickets[:3]:
        lane.offer(ticket)
        assert lane.next_shipment(1) is not None
    fail(tickets[1], DeadlineExceeded("too late"))
    assert resent(lane) == [(1, 0), (3, 1)]
    lane.offer(tickets[3])
    assert lane.next_shipment(1) is None
    lane.answered(1, [Receipt("t", STREAM, 1, 1)])
    assert lane.next_shipment(1) is not None


def test_a_full_window_that_nobody_waits_for_holds_nobody_back() -> None:
    lane = Lanes("t", 7, window=1).lane(STREAM)
    first = loose(b"a")
    lane.offer(first)
    assert lane.next_shipment(1) is not None
    lane.offer(loose(b"b"))
    assert lane.next_shipment(1) is None
    fail(first, DeadlineExceeded("too late"))
    following = lane.next_shipment(1)
    assert following is not None
    assert (following.sequence, following.after) == (2, (0,))


def test_what_waits_for_less_shares_no_batch_with_what_waits_for_more() -> None:
    lane = Lanes("t", 7, company_bytes=0).lane(STREAM)
    levels = (Ack.ORDERED, Ack.STORED, Ack.STORED, Ack.ORDERED)
    for ack in levels:
        lane.offer(Loose(Outcome[Receipt](), 1, 1.0, [b"a"], None, ack))
    found = []
    while (shipment := lane.next_shipment(1)) is not None:
        found.append((shipment.ack, len(values_in(shipment))))
    assert found == [(Ack.ORDERED, 1), (Ack.STORED, 2), (Ack.ORDERED, 1)]


@pytest.mark.parametrize(
    ("refusal", "maybe"), [(None, True), (True, False), (False, True)], ids=str
)
def test_what_was_only_ever_refused_certainly_had_no_effect(
    refusal: bool | None, maybe: bool
) -> None:
    lane = Lanes("t", 7).lane(STREAM)
    ticket = loose(b"a")
    lane.offer(ticket)
    lane.next_shipment(1)
    if refusal is not None:
        lane.put_off(1, is_certain=refusal)
    lane.send_again()
    assert list(lane.tickets()) == [(ticket, maybe)]


def test_a_refusal_is_no_proof_if_an_earlier_try_had_no_answer() -> None:
    """The old leader may have it, and lead again."""
    lane = Lanes("t", 7).lane(STREAM)
    ticket = loose(b"a")
    lane.offer(ticket)
    lane.next_shipment(1)
    lane.send_again()
    lane.next_shipment(1)
    lane.refused(1, lambda: StaleWrite("too old"))
    error = outcome_of(ticket).error
    assert isinstance(error, LogError)
    assert not error.definite
    assert "too old" in str(error)


@pytest.mark.parametrize("sent", [False, True])
def test_a_lane_knows_what_was_sent(sent: bool) -> None:
    lane = Lanes("t", 7).lane(STREAM)
    ticket = loose(b"a")
    lane.offer(ticket)
    if sent:
        lane.next_shipment(1)
    assert list(lane.tickets()) == [(ticket, sent)]


# -- against a model ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """A shipment as it is on the wire."""

    sequence: int
    after: int
    values: tuple[bytes, ...]


class Replica:
    """A log stream that has nobody else's entries, so that GLSN and LLSN are its places."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.ends: list[int] = [0]
        """Where batches end: none is ever committed or kept in part."""
        self.producers = ProducerTable(window=WINDOW)

    def take(self, sent: Sent) -> int | None:
        """Where a shipment lies; None if it is out of order or passed by."""
        try:
            known = self.producers.lookup(PRODUCER, sent.sequence)
        except ProducerConflict:
            return None
        if known is not None:
            assert known.count == len(sent.values)
            return known.llsn_begin
        if sent.after and self.producers.is_new(PRODUCER, sent.after):
            return None
        begin = len(self.values) + 1
        self.values += sent.values
        self.ends.append(len(self.values))
        self.producers.record(PRODUCER, sent.sequence, begin, len(sent.values))
        return begin

    def follow(self, other: Replica, end: int) -> None:
        """Have the first ``end`` entries of another one, and nothing else."""
        self.values = other.values[:end]
        self.ends = [known for known in other.ends if known <= end]
        self.producers = ProducerTable.thaw(other.producers.freeze(), window=WINDOW)
        self.producers.truncate(end + 1)


@dataclass
class Pending:
    """What a leader has taken and not answered yet."""

    sequence: int
    begin: int
    count: int


class LaneMachine(RuleBasedStateMachine):
    """One lane and two replicas, of which one leads; what both have is committed."""

    COMPANY_BYTES = 0

    def __init__(self) -> None:
        super().__init__()
        lanes = Lanes("t", PRODUCER, window=WINDOW, company_bytes=self.COMPANY_BYTES)
        self.lane = lanes.lane(STREAM)
        self.leader, self.other = Replica(), Replica()
        self.committed = 0
        self.wire: list[Sent] = []
        self.late: list[Sent] = []
        """Sent over connections that the client has given up; they may still arrive."""
        self.pending: list[Pending] = []
        self.tickets: dict[bytes, Ticket] = {}
        self.given_up: set[bytes] = set()
        self.without_effect: set[bytes] = set()
        self._numbers = count()

    def _value(self) -> bytes:
        return b"%d" % next(self._numbers)

    def _offer(self, ticket: Ticket, values: Sequence[bytes]) -> None:
        self.lane.offer(ticket)
        for value in values:
            self.tickets[value] = ticket

    @rule(size=st.integers(1, 3))
    def offer_loose(self, size: int) -> None:
        values = [self._value() for _ in range(size)]
        self._offer(loose(*values), values)

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
            values = tuple(values_in(shipment))
            [after] = shipment.after
            self.wire.append(Sent(shipment.sequence, after, values))

    @precondition(lambda self: self.wire)
    @rule()
    def take(self) -> None:
        sent = self.wire.pop(0)
        begin = self.leader.take(sent)
        if begin is None:
            self._put_off(sent.sequence, is_certain=True)
        else:
            self.pending.append(Pending(sent.sequence, begin, len(sent.values)))

    @precondition(lambda self: self.wire)
    @rule()
    def refuse_for_good(self) -> None:
        self.lane.refused(self.wire.pop(0).sequence, lambda: StaleWrite("refused"))

    @precondition(lambda self: self.wire)
    @rule()
    def refuse_for_now(self) -> None:
        """Not leader, or busy."""
        self._put_off(self.wire.pop(0).sequence, is_certain=True)

    def _put_off(self, sequence: int, *, is_certain: bool) -> None:
        self.lane.put_off(sequence, is_certain=is_certain)
        self.lose()

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        ends = [end for end in self.leader.ends if end >= self.committed]
        self._commit(data.draw(st.sampled_from(ends)))

    def _commit(self, end: int) -> None:
        self.committed = end
        self.other.follow(self.leader, end)

    @precondition(lambda self: self._answerable())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self._tell(data.draw(st.sampled_from(self._answerable())))

    def _answerable(self) -> list[Pending]:
        return [one for one in self.pending if one.begin + one.count - 1 <= self.committed]

    def _tell(self, one: Pending) -> None:
        self.pending.remove(one)
        receipt = Receipt("t", STREAM, one.begin, one.begin, one.count)
        self.lane.answered(one.sequence, [receipt])

    @rule()
    def lose(self) -> None:
        """The connection is gone, or given up; what was sent may still arrive."""
        self.late += self.wire
        self.wire.clear()
        self.pending.clear()
        self.lane.send_again()

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.late) - 1))
        self.leader.take(self.late.pop(index))

    @rule()
    def change_leader(self) -> None:
        """The other one takes over with what it has, which may be what it had when it led."""
        for one in self.pending:
            self.lane.put_off(one.sequence, is_certain=False)
        self.leader, self.other = self.other, self.leader
        self.lose()

    @precondition(lambda self: any(True for _ in self.lane.tickets()))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        tickets = list(self.lane.tickets())
        ticket, maybe = tickets[data.draw(st.integers(0, len(tickets) - 1))]
        values = {value for value, known in self.tickets.items() if known is ticket}
        self.given_up |= values
        if not maybe:
            self.without_effect |= values
        fail(ticket, DeadlineExceeded("given up"))

    @invariant()
    def nothing_is_there_twice_and_the_order_is_kept(self) -> None:
        for replica in (self.leader, self.other):
            numbers = [int(value) for value in replica.values]
            assert numbers == sorted(set(numbers))

    @invariant()
    def what_certainly_had_no_effect_is_nowhere(self) -> None:
        for replica in (self.leader, self.other):
            assert self.without_effect.isdisjoint(replica.values)

    @invariant()
    def receipts_and_refusals_are_true(self) -> None:
        for value, ticket in self.tickets.items():
            outcome = outcome_of(ticket)
            if outcome.result is not None:
                told = outcome.result
                [receipt] = (told,) if isinstance(told, Receipt) else told
                assert value in self.leader.values[receipt.glsn - 1 : receipt.glsn_end - 1]
            elif value not in self.given_up and outcome.error is not None:
                assert isinstance(outcome.error, LogError)
                if outcome.error.definite:
                    self.without_effect.add(value)

    def teardown(self) -> None:
        """A connection that holds settles all."""
        self.lose()
        while not self.lane.idle:
            self.send()
            while self.wire:
                self.take()
            self._commit(len(self.leader.values))
            for one in self._answerable():
                self._tell(one)
        assert all(ticket.settled for ticket in self.tickets.values())
        self.receipts_and_refusals_are_true()
        self.nothing_is_there_twice_and_the_order_is_kept()
        self.what_certainly_had_no_effect_is_nowhere()


class WaitingLaneMachine(LaneMachine):
    """The same, but few entries wait for company."""

    COMPANY_BYTES = COMPANY_BYTES


TestLaneMachine = LaneMachine.TestCase
TestWaitingLaneMachine = WaitingLaneMachine.TestCase
