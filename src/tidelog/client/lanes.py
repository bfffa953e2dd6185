"""Lanes: the appends of one client, numbered so that a retry is harmless.

There is a lane for each log stream; those of a topic are one producer of the log.  Loose entries
queue up while earlier ones are under way; the next shipment is what is queued then, so there is no
timer and a lone append is never held back.  Few and large requests take less of the nodes' time,
and so of everybody's, than many small ones.  What touches several log streams lies in all of their
lanes, and leaves when it comes next in each; the first of these lanes sends it.
No I/O and no clock: whoever owns a lane sends what ``next_shipment`` gives and tells it of answers.

  N1  sequences ascend, and a shipment keeps its own through all of its tries
  N2  from the first shipment under way on, at most ``PRODUCER_WINDOW`` sequences were given out in
      a lane: what is sent again is still known to the log, which then answers with the first
      try's places
  N3  in each of its lanes a shipment is sent, and sent again, in the order of the sequences
  N4  every ticket is settled exactly once
  N5  a ticket certainly had no effect if it was never in a shipment, or was alone in one of which
      every try was refused as having none
  N6  a shipment names the one before it in each of its lanes as long as that is under way, so no
      leader takes it first.  What lies behind one that was refused for good, or that nobody waits
      for any more, begins a new run: it names nobody, and the log takes nothing of a lower sequence
      after it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from tidelog.client.shipments import Loose, Shipment, Ticket, Whole, encode, fail, settle
from tidelog.errors import Busy, ConnectionLost, LogError, ProducerConflict
from tidelog.interface.appends import Part
from tidelog.interface.records import Ack, Receipt
from tidelog.invariants import check
from tidelog.limits import KIB, MIB, PRODUCER_WINDOW

SHIPMENT_BYTES: Final = MIB
"""About what single appends are gathered up to."""
SHIPMENT_ENTRIES: Final = 16 * 1024
ENTRY_OVERHEAD: Final = 64
"""What an entry weighs besides its key and value."""
COMPANY_BYTES: Final = 64 * KIB
"""So much of loose entries waits for no answer: it is a large request anyway."""


class Lanes:
    """The lanes of a topic, which number what they send together."""

    def __init__(
        self,
        topic: str,
        producer: int,
        *,
        window: int = PRODUCER_WINDOW,
        company_bytes: int = COMPANY_BYTES,
    ) -> None:
        check(producer > 0, "N1: the lanes of a topic are a producer")
        self.topic: Final = topic
        self.producer: Final = producer
        self.window: Final = window
        self.company_bytes: Final = company_bytes
        self._sequence = 0
        self._lanes: dict[int, Lane] = {}

    def lane(self, stream: int) -> Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            lane = self._lanes[stream] = Lane(self, stream)
        return lane

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence


class Lane:
    """The appends to ``stream``."""

    def __init__(self, lanes: Lanes, stream: int) -> None:
        self.topic: Final = lanes.topic
        self.stream: Final = stream
        self.producer: Final = lanes.producer
        self.wake: Callable[[], None] = _nobody
        """Called when there may be something to send: it was offered, or waited for something."""
        self._lanes = lanes
        self._window = lanes.window
        self._company_bytes = lanes.company_bytes
        self._queue: deque[Ticket] = deque()
        self._under_way: dict[int, Shipment] = {}
        self._given: deque[int] = deque(maxlen=lanes.window)
        """The sequences that were given out last (N2)."""
        self._again: deque[int] = deque()
        """Sequences of the shipments that this lane has to send again."""

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything."""
        return next(self.tickets(), None) is None

    def offer(self, ticket: Ticket) -> None:
        """Take in an append; it goes behind all that came before it.

        One that touches several log streams is to be offered to all of their lanes at once.
        """
        # Entries that waited for company go now.
        frees = bool(self._queue) and isinstance(self._queue[-1], Loose)
        self._queue.append(ticket)
        if frees or isinstance(ticket, Loose) or self._sends(ticket.parts):
            self.wake()

    def _along(self, parts: Sequence[Part]) -> Sequence[Lane]:
        """The lanes that batches are in; the first of them sends them."""
        if len(parts) == 1:
            return (self,)
        return [self._lanes.lane(part.stream) for part in parts]

    # -- what to send -------------------------------------------------------------------------

    def next_shipment(self, now_us: int) -> Shipment | None:
        """What to send now; None when there is nothing, or too much under way."""
        shipment = self._choose(now_us)
        if shipment is None:
            self._wake_next(awake=self)
        return shipment

    def _choose(self, now_us: int) -> Shipment | None:
        if self._again or not self._is_open():
            self._drop_unwanted()
        if self._again:
            return self._next_again()
        self._skip_settled()
        if not self._queue or not self._is_open():
            return None
        first = self._queue[0]
        if isinstance(first, Whole):
            return self._next_whole(first)
        if self._awaits_company(first):
            return None
        tickets = self._gather(first)
        part = Part(self.stream, encode(tickets, now_us), first.version)
        return self._send(self._add((part,), tickets, max(t.deadline for t in tickets), first.ack))

    def _next_again(self) -> Shipment | None:
        shipment = self._under_way[self._again[0]]
        if not all(lane._is_clear(shipment.sequence) for lane in self._along(shipment.parts)):
            return None
        self._again.popleft()
        return self._send(shipment)

    def _next_whole(self, whole: Whole) -> Shipment | None:
        """Send batches once they come next in each of their lanes (N3)."""
        lanes = self._along(whole.parts)
        if lanes[0] is not self or not all(lane._has_next(whole) for lane in lanes):
            return None
        for lane in lanes:
            lane._queue.popleft()
        return self._send(self._add(whole.parts, whole, whole.deadline, whole.ack))

    def _has_next(self, whole: Whole) -> bool:
        if not self._is_open():
            self._drop_unwanted()
            if not self._is_open():
                return False
        self._skip_settled()
        return bool(self._queue) and self._queue[0] is whole

    def _is_open(self) -> bool:
        """Whether something new may be sent."""
        return self._has_room() and self._is_all_out()

    def _is_all_out(self) -> bool:
        return not self._under_way or all(one.is_out for one in self._under_way.values())

    def _is_clear(self, sequence: int) -> bool:
        """Whether all that lies before a shipment is on its way (N3)."""
        return all(one.is_out for known, one in self._under_way.items() if known < sequence)

    def _wake_next(self, awake: Lane | None = None) -> None:
        """Wake the lane that sends what comes next here, unless it is awake."""
        lane = self._next_sender()
        if lane is not None and lane is not awake:
            lane.wake()

    def _next_sender(self) -> Lane | None:
        for shipment in self._under_way.values():
            if not shipment.is_out:
                return self._along(shipment.parts)[0]
        self._skip_settled()
        if not self._queue:
            return None
        first = self._queue[0]
        return self if isinstance(first, Loose) else self._along(first.parts)[0]

    def _awaits_company(self, first: Loose) -> bool:
        """Whether loose entries stay until those before them were answered, to go together."""
        if first.version is not None or isinstance(self._queue[-1], Whole):
            return False  # They get no company, or hold up somebody else.
        few = islice(self._queue, self._company_bytes // ENTRY_OVERHEAD)
        if sum(ticket.size for ticket in few) >= self._company_bytes:
            return False
        return any(
            shipment.ack is first.ack and not isinstance(shipment.tickets, Whole)
            for shipment in self._under_way.values()
            if shipment.alive
        )

    def _drop_unwanted(self) -> None:
        """Forget shipments that nobody waits for: the log may have them or not."""
        for shipment in [one for one in self._under_way.values() if not one.alive]:
            self._forget(shipment)

    def _forget(self, shipment: Shipment) -> None:
        """A shipment is not under way any more, in any lane."""
        sequence = shipment.sequence
        for lane in self._along(shipment.parts):
            del lane._under_way[sequence]
            if sequence in lane._again:
                lane._again.remove(sequence)
            lane._wake_next()

    def _has_room(self) -> bool:
        """N2: those that were forgotten in between may be in the log, so they count."""
        given = self._given
        return (
            not self._under_way
            or len(given) < self._window
            or given[0] < next(iter(self._under_way))
        )

    def _before(self, sequence: int) -> int:
        """The shipment under way before this one; 0 for none."""
        return max((known for known in self._under_way if known < sequence), default=0)

    def _gather(self, first: Loose) -> list[Loose]:
        """The loose ones at the front of the queue that go into one batch."""
        queue, tickets = self._queue, [first]
        size, count = first.size, len(first.contents)
        queue.popleft()
        if first.version is not None:
            return tickets
        while queue:
            ticket = queue[0]
            if not ticket.settled:
                if (
                    isinstance(ticket, Whole)
                    or ticket.version is not None
                    or ticket.ack is not first.ack
                ):
                    break
                size += ticket.size
                count += len(ticket.contents)
                if size > SHIPMENT_BYTES or count > SHIPMENT_ENTRIES:
                    break
                tickets.append(ticket)
            queue.popleft()
        return tickets

    def _add(
        self, parts: Sequence[Part], tickets: Sequence[Loose] | Whole, deadline: float, ack: Ack
    ) -> Shipment:
        shipment = Shipment(self._lanes.next_sequence(), parts, tickets, deadline, ack)
        for lane in self._along(parts):
            check(lane._has_room(), "N2: too many shipments under way")
            lane._under_way[shipment.sequence] = shipment
            lane._given.append(shipment.sequence)
        return shipment

    def _send(self, shipment: Shipment) -> Shipment:
        shipment.tries += 1
        shipment.is_out = True
        lanes = self._along(shipment.parts)
        shipment.after = tuple([lane._before(shipment.sequence) for lane in lanes])
        for lane in lanes[1:]:
            lane._wake_next(awake=self)
        return shipment

    def _skip_settled(self) -> None:
        while self._queue and self._queue[0].settled:
            self._queue.popleft()

    # -- what became of it --------------------------------------------------------------------

    def answered(self, sequence: int, receipts: Sequence[Receipt]) -> int:
        """A shipment is in the log; returns how many bytes are settled."""
        shipment = self._under_way.get(sequence)
        if shipment is None:
            return 0
        self._forget(shipment)
        tickets = shipment.tickets
        if isinstance(tickets, Whole):
            return settle(tickets, lambda: tickets.waiter.set_result(tuple(receipts)))
        settled = offset = 0
        for ticket in tickets:
            count = len(ticket.contents)
            if not ticket.settled:
                ticket.settled = True
                settled += ticket.size
                if not ticket.waiter.done():
                    ticket.waiter.set_result(receipts[0].part(offset, count))
            offset += count
        return settled

    def refused(self, sequence: int, error: Callable[[], LogError]) -> int:
        """A shipment was refused for good; ``error`` makes one for each of those who wait."""
        shipment = self._under_way.get(sequence)
        if shipment is None:
            return 0
        self._forget(shipment)
        if shipment.tries > 1 and isinstance(error(), ProducerConflict):
            # Had it been appended, N2 says that the log would know; later ones passed it by.
            error = _refused_before
        elif shipment.in_doubt and error().definite:
            error = partial(_maybe_done_before, error)
        return sum([fail(ticket, error()) for ticket in shipment.each()])

    def put_off(self, sequence: int, *, is_certain: bool) -> None:
        """A shipment was refused, and another try may do better.

        ``is_certain``: this try had no effect.
        """
        shipment = self._under_way.get(sequence)
        if shipment is not None:
            shipment.is_out = False
            shipment.in_doubt = shipment.in_doubt or not is_certain

    def send_again(self) -> None:
        """Send all that is under way again, in order (N3); no answer to earlier tries will come."""
        own = [one for one in self._under_way.values() if self._sends(one.parts)]
        for shipment in own:
            shipment.in_doubt = shipment.in_doubt or shipment.is_out
            shipment.is_out = False
        self._again = deque([shipment.sequence for shipment in own])

    def _sends(self, parts: Sequence[Part]) -> bool:
        """Whether this is the lane that sends these batches."""
        return parts[0].stream == self.stream

    # -- giving up ----------------------------------------------------------------------------

    def tickets(self) -> Iterator[tuple[Ticket, bool]]:
        """All that it sends and is not settled, and whether it may have had an effect (N5)."""
        for shipment in [one for one in self._under_way.values() if self._sends(one.parts)]:
            waiting = [ticket for ticket in shipment.each() if not ticket.settled]
            # One of several is sent again for the others' sake, whoever gives up.
            maybe = shipment.is_out or shipment.in_doubt or len(waiting) > 1
            yield from ((ticket, maybe) for ticket in waiting)
        for ticket in self._queue:
            if not ticket.settled and (isinstance(ticket, Loose) or self._sends(ticket.parts)):
                yield ticket, False


def _nobody() -> None:
    """Nobody is told."""


def _refused_before() -> LogError:
    return Busy("the append was refused when the connection broke: try again")


def _maybe_done_before(error: Callable[[], LogError]) -> LogError:
    return ConnectionLost(f"{error()}; an earlier try of the append may have taken effect")
