"""What is to be appended, and what one request carries of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from tidelog.errors import LogError
from tidelog.formats.batch import BatchBody, encode_entries, encode_values
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Part
from tidelog.interface.records import Ack, Receipt

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
    """Encoded batches that go together and share a request with nobody, one for each log stream."""

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
    after: tuple[int, ...] = ()
    """For each part the shipment before it in its lane, if that is under way; else 0."""
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


def fail(ticket: Ticket, error: LogError) -> int:
    """Settle a ticket with an error; returns its bytes."""
    return settle(ticket, lambda: ticket.waiter.set_exception(error))


def settle(ticket: Ticket, tell: Callable[[], None]) -> int:
    if ticket.settled:
        return 0
    ticket.settled = True
    if not ticket.waiter.done():
        tell()
    return ticket.size


def encode(tickets: Sequence[Loose], now_us: int) -> BatchBody:
    contents = list(chain.from_iterable([ticket.contents for ticket in tickets]))
    values = [content for content in contents if type(content) is bytes]
    if len(values) == len(contents):
        return encode_values(values, timestamp_us=now_us)
    return encode_entries([_entry_of(content, now_us) for content in contents])


def _entry_of(content: bytes | Entry, now_us: int) -> Entry:
    if isinstance(content, bytes):
        return Entry(Kind.APPEND, content, timestamp_us=now_us)
    return content if content.timestamp_us else content.at(now_us)
