"""A lane: the appends of one client to one log stream, numbered so that a retry is harmless.

A lane is one producer of the log.  Loose entries queue up while earlier ones are under way; the
next shipment is what is queued then, so there is no timer and a lone append is never held back.
Few and large requests take less of the nodes' time, and so of everybody's, than many small ones.
No I/O and no clock: whoever owns a lane sends what ``next_shipment`` gives and tells it of answers.

  N1  sequences ascend, and a shipment keeps its own through all of its tries
  N2  from the first shipment under way on, at most ``PRODUCER_WINDOW`` sequences were given out:
      what is sent again is still known to the log, which then answers with the first try's places
  N3  shipments are sent, and sent again, in the order of their sequences
  N4  every ticket is settled exactly once
  N5  a ticket certainly had no effect if it was never in a shipment, or was alone in one of which
      every try was refused as having none
  N6  a shipment names the one before it as long as that is under way, so no leader takes it first.
      What lies behind one that was refused for good, or that nobody waits for any more, begins a
      new run: it names nobody, and the log takes nothing of a lower sequence after it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from tidelog.errors import Busy, ConnectionLost, LogError, ProducerConflict
from tidelog.formats.batch import BatchBody, encode_entries, encode_values
from tidelog.formats.entry import Entry, Kind
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

T_contra = TypeVar("T_contra", contravariant=True)


class Waiter(Protocol[T_contra]):
    """Whoever waits for a ticket: a future of asyncio or of a thread."""

    def done(self) -> bool: ...

    def set_result(self, result: T_contra, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class Loose(msgspec.Struct, eq=False, gc=False):
    """Entries of one caller, which may share a batch with those of others."""

    waiter: Waiter[Receipt]
    """Told of all of them at once."""
    size: int
    deadline: float
    contents: list[bytes | Entry]
    """Plain values, and entries that are more than a value."""
    version: int | None = None
    """The write version of one that shares a batch with nobody.

    It may be too old for the log; that must not refuse a neighbour's entry.
    """
    ack: Ack = Ack.ORDERED
    settled: bool = False
    inside: bool = False
    """Whether its owner counts its bytes."""
    is_open: bool = False
    """Whether its caller may add to it."""


@dataclass(slots=True, eq=False)
class Whole:
    """Encoded batches that go by themselves, one for each log stream."""

    waiter: Waiter[tuple[Receipt, ...]]
    size: int
    deadline: float
    parts: Sequence[Part]
    ack: Ack = Ack.ORDERED
    settled: bool = field(default=False, init=False)
    inside: bool = field(default=False, init=False)
    """Whether its owner counts its bytes."""


Ticket: TypeAlias = Loose | Whole
"""One caller's append on its way."""


@dataclass(slots=True, eq=False)
class Shipment:
    """What one request carries."""

    sequence: int
    parts: Sequence[Part]
    tickets: Sequence[Loose] | Whole
    deadline: float
    ack: Ack = Ack.ORDERED
    after: int = 0
    """The shipment before it, if that is under way (N6)."""
    tries: int = 0
    is_out: bool = False
    """Whether an answer to its last try may come."""
    in_doubt: bool = False
    """Whether an earlier try may have had an effect."""

    @property
    def alive(self) -> bool:
        """Whether anybody still waits for it."""
        return not all(ticket.settled for ticket in self.each())

    def each(self) -> Iterator[Ticket]:
        yield from (self.tickets,) if isinstance(self.tickets, Whole) else self.tickets


class Lane:
    """``stream`` is where single entries go; -1 for a lane of appends to several log streams."""

    def __init__(
        self,
        topic: str,
        stream: int,
        producer: int,
        *,
        window: int = PRODUCER_WINDOW,
        company_bytes: int = COMPANY_BYTES,
    ) -> None:
        check(producer > 0, "N1: a lane is a producer")
        self.topic: Final = topic
        self.stream: Final = stream
        self.producer: Final = producer
        self._window = window
        self._company_bytes = company_bytes
        self._sequence = 0
        self._queue: deque[Ticket] = deque()
        self._under_way: dict[int, Shipment] = {}
        self._again: deque[int] = deque()
        """Sequences of the shipments that have to be sent again."""

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything."""
        return next(self.tickets(), None) is None

    def offer(self, ticket: Ticket) -> None:
        """Take in an append; it goes behind all that came before it."""
        self._queue.append(ticket)

    # -- what to send -------------------------------------------------------------------------

    def next_shipment(self, now_us: int) -> Shipment | None:
        """What to send now; None when there is nothing, or too much under way."""
        if self._again or not self._has_room():
            self._drop_unwanted()
        if self._again:
            return self._send(self._under_way[self._again.popleft()])
        self._skip_settled()
        if not self._queue or not self._has_room():
            return None
        first = self._queue[0]
        if isinstance(first, Whole):
            self._queue.popleft()
            return self._send(self._add(first.parts, first, first.deadline, first.ack))
        if self._awaits_company(first):
            return None
        tickets = self._gather(first)
        part = Part(self.stream, _encode(tickets, now_us), first.version)
        return self._send(self._add((part,), tickets, max(t.deadline for t in tickets), first.ack))

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
        for sequence in [n for n, shipment in self._under_way.items() if not shipment.alive]:
            del self._under_way[sequence]
            if sequence in self._again:
                self._again.remove(sequence)

    def _has_room(self) -> bool:
        """N2: those that were forgotten in between may be in the log, so they count."""
        first = next(iter(self._under_way), self._sequence + 1)
        return self._sequence + 1 - first < self._window

    def _before(self, sequence: int) -> int:
        """The shipment under way before this one; 0 for a lane whose appends go to several log
        streams, none of which knows all of them (N6)."""
        if self.stream < 0:
            return 0
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
        self._sequence += 1
        shipment = Shipment(self._sequence, parts, tickets, deadline, ack)
        self._under_way[shipment.sequence] = shipment
        check(
            self._sequence - next(iter(self._under_way)) < self._window,
            "N2: too many shipments under way",
        )
        return shipment

    def _send(self, shipment: Shipment) -> Shipment:
        shipment.tries += 1
        shipment.is_out = True
        shipment.after = self._before(shipment.sequence)
        return shipment

    def _skip_settled(self) -> None:
        while self._queue and self._queue[0].settled:
            self._queue.popleft()

    # -- what became of it --------------------------------------------------------------------

    def answered(self, sequence: int, receipts: Sequence[Receipt]) -> int:
        """A shipment is in the log; returns how many bytes are settled."""
        shipment = self._under_way.pop(sequence, None)
        if shipment is None:
            return 0
        tickets = shipment.tickets
        if isinstance(tickets, Whole):
            return _settle(tickets, lambda: tickets.waiter.set_result(tuple(receipts)))
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
        shipment = self._under_way.pop(sequence, None)
        if shipment is None:
            return 0
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
        for shipment in self._under_way.values():
            shipment.in_doubt = shipment.in_doubt or shipment.is_out
            shipment.is_out = False
        self._again = deque(self._under_way)

    # -- giving up ----------------------------------------------------------------------------

    def tickets(self) -> Iterator[tuple[Ticket, bool]]:
        """All that is not settled, and whether it may have had an effect (N5)."""
        for shipment in self._under_way.values():
            waiting = [ticket for ticket in shipment.each() if not ticket.settled]
            # One of several is sent again for the others' sake, whoever gives up.
            maybe = shipment.is_out or shipment.in_doubt or len(waiting) > 1
            yield from ((ticket, maybe) for ticket in waiting)
        yield from ((ticket, False) for ticket in self._queue if not ticket.settled)


def fail(ticket: Ticket, error: LogError) -> int:
    """Settle a ticket with an error; returns its bytes."""
    return _settle(ticket, lambda: ticket.waiter.set_exception(error))


def _settle(ticket: Ticket, tell: Callable[[], None]) -> int:
    if ticket.settled:
        return 0
    ticket.settled = True
    if not ticket.waiter.done():
        tell()
    return ticket.size


def _encode(tickets: Sequence[Loose], now_us: int) -> BatchBody:
    contents = list(chain.from_iterable([ticket.contents for ticket in tickets]))
    values = [content for content in contents if type(content) is bytes]
    if len(values) == len(contents):
        return encode_values(values, timestamp_us=now_us)
    return encode_entries([_entry_of(content, now_us) for content in contents])


def _entry_of(content: bytes | Entry, now_us: int) -> Entry:
    if isinstance(content, bytes):
        return Entry(Kind.APPEND, content, timestamp_us=now_us)
    return content if content.timestamp_us else content.at(now_us)


def _refused_before() -> LogError:
    return Busy("the append was refused when the connection broke: try again")


def _maybe_done_before(error: Callable[[], LogError]) -> LogError:
    return ConnectionLost(f"{error()}; an earlier try of the append may have taken effect")
