"""Several appends whose caller waits for all of them at once.

J1  the caller is told once, when the last of them is settled
J2  an error that says that nothing happened is passed on only if nothing happened in any of them
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.client.shipments import Waiter
from tidelog.errors import LogError, PartlyAppended
from tidelog.interface.records import Receipt
from tidelog.invariants import check


class Joined:
    """The outcomes of ``count`` appends, one for each log stream, as that of one."""

    def __init__(self, waiter: Waiter[tuple[Receipt, ...]], count: int) -> None:
        check(count > 0, "J1: there is something to wait for")
        self.waiter = waiter
        self._receipts: list[tuple[Receipt, ...]] = [()] * count
        self._errors: list[BaseException] = []
        self._open = count

    def part(self, number: int) -> JoinedPart:
        """Who waits for one of them; their receipts come in the order of the numbers."""
        return JoinedPart(self, number)

    def settle(
        self, number: int, receipts: tuple[Receipt, ...], error: BaseException | None
    ) -> None:
        """One of them is through, or failed."""
        self._receipts[number] = receipts
        if error is not None:
            self._errors.append(error)
        self._open -= 1
        check(self._open >= 0, "J1: an append was settled twice")
        if self._open == 0 and not self.waiter.done():
            self._tell()

    def _tell(self) -> None:
        receipts = tuple([receipt for part in self._receipts for receipt in part])
        if not self._errors:
            self.waiter.set_result(receipts)
            return
        # One that may have had an effect says more than one that had none.
        worst = next((error for error in self._errors if not _is_definite(error)), self._errors[0])
        if receipts and _is_definite(worst):
            streams = [receipt.stream for receipt in receipts]
            worst = PartlyAppended(f"appended to log streams {streams}, but not to all: {worst}")
        self.waiter.set_exception(worst)


@dataclass(frozen=True, slots=True)
class JoinedPart:
    """A waiter for one of several appends."""

    joined: Joined
    number: int

    def done(self) -> bool:
        return False  # The others count on being told of each.

    def set_result(self, result: tuple[Receipt, ...], /) -> None:
        self.joined.settle(self.number, result, None)

    def set_exception(self, exception: BaseException, /) -> None:
        self.joined.settle(self.number, (), exception)


def _is_definite(error: BaseException) -> bool:
    return isinstance(error, LogError) and error.definite
