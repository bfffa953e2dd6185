"""What an appender has under way: entries that go to a log stream together, and whole batches.

G1  an entry joins what came right before it, so the order of the calls is kept
G2  whoever cancels a future changes nothing for the others, and gives no room back before its time
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidelog.client.lanes import SHIPMENT_BYTES
from tidelog.client.orders import OneEntry
from tidelog.client.session import Session
from tidelog.client.shipments import Loose
from tidelog.interface.records import Receipt

F = TypeVar("F")
R_contra = TypeVar("R_contra", contravariant=True)


class Room(Protocol):
    """Where entries have taken room."""

    def leave(self, size: int, error: BaseException | None) -> None: ...


@dataclass(slots=True, eq=False)
class Pending(ABC, Generic[R_contra]):
    """Who waits for something that has taken room."""

    room: Room
    size: int

    def done(self) -> bool:
        return False  # Even if nobody waits for it any more, its room has to be given back.

    def set_result(self, result: R_contra, /) -> None:
        self.tell(result)
        self.room.leave(self.size, None)

    def set_exception(self, exception: BaseException, /) -> None:
        self.tell_failure(exception)
        self.room.leave(self.size, exception)

    @abstractmethod
    def tell(self, result: R_contra, /) -> None:
        """Give every future what is its own (G2)."""

    @abstractmethod
    def tell_failure(self, error: BaseException) -> None:
        """Give every future the error."""


@dataclass(slots=True, eq=False)
class PendingEntries(Pending[Receipt], Generic[F]):
    """Futures for the receipts of entries that go together."""

    futures: list[F]


class Gathering(NamedTuple, Generic[F]):
    """A ticket that grows, and who waits for it."""

    ticket: Loose
    pending: PendingEntries[F]

    @classmethod
    def begin(cls, session: Session, order: OneEntry, pending: PendingEntries[F]) -> Gathering[F]:
        # The time that its caller was held back before this does not count.
        return cls(session.loose(order, pending, None), pending)

    def add(self, order: OneEntry, future: F) -> bool:
        """Let an entry join, if it may; the caller knows that nothing came in between (G1)."""
        ticket, pending = self
        if ticket.size >= SHIPMENT_BYTES or ticket.version is not None or order.version is not None:
            return False
        ticket.contents.append(order.content)
        ticket.size += order.size
        pending.futures.append(future)
        pending.size += order.size
        return True
