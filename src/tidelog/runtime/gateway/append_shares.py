"""One append, part by part: each part goes to its log stream's leader, wherever that is.

All or none holds for each log stream alone.  When some parts were taken and others were not, the
answer says so, and never that nothing was done.

Invariants:
  S1  an append is answered once, when the outcome of every part is known
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.errors import (
    Busy,
    LeaderLost,
    LogError,
    NotLeader,
    OutOfOrder,
    PartlyAppended,
    Unreachable,
)
from tidelog.formats.batch import HEADER_BYTES, seal_batch
from tidelog.interface.appends import Append, Part
from tidelog.interface.records import Receipt
from tidelog.server.backend import Outcome
from tidelog.types import StreamId

PASSING: Final = (NotLeader, OutOfOrder, LeaderLost, Busy, Unreachable)
"""Troubles after which a client sends the same append again."""


class Share:
    """The part of an append for one log stream, until its outcome is known."""

    __slots__ = ("after", "append", "deadline", "is_over", "part", "whole")

    def __init__(
        self, append: Append, part: Part, after: int, deadline: float, whole: Whole
    ) -> None:
        self.append = append
        self.part = part
        self.after = after
        self.deadline = deadline
        self.whole = whole
        self.is_over = False

    @property
    def stream(self) -> StreamId:
        return StreamId(self.part.stream)

    @property
    def size(self) -> int:
        return HEADER_BYTES + len(self.part.body.data)

    def header(self) -> bytes:
        """What makes a sealed batch of the body; its place is given by whoever stores it."""
        append, part = self.append, self.part
        return seal_batch(
            part.body,
            stream=part.stream,
            term=1,
            first_llsn=1,
            producer=append.producer,
            sequence=append.sequence,
        )

    def end(self, outcome: Receipt | LogError) -> None:
        if not self.is_over:
            self.is_over = True
            self.whole.end_one(outcome)


class Whole:
    """Waits for all parts of an append."""

    __slots__ = ("_errors", "_outcome", "_receipts", "_streams")

    def __init__(self, streams: tuple[int, ...], outcome: Outcome) -> None:
        self._streams = streams
        self._outcome = outcome
        self._receipts: list[Receipt] = []
        self._errors: list[LogError] = []

    def end_one(self, outcome: Receipt | LogError) -> None:
        if isinstance(outcome, LogError):
            self._errors.append(outcome)
        else:
            self._receipts.append(outcome)
        if len(self._receipts) + len(self._errors) < len(self._streams) or self._outcome.done():
            return
        if self._errors:
            self._outcome.set_exception(joint_error(self._errors, self._receipts))
        else:
            self._receipts.sort(key=lambda receipt: self._streams.index(receipt.stream))
            self._outcome.set_result(tuple(self._receipts))


def shares_of(append: Append, deadline: float) -> tuple[list[Share], Outcome]:
    """The parts of an append, and what becomes of all of them together."""
    outcome: Outcome = asyncio.get_running_loop().create_future()
    whole = Whole(tuple([part.stream for part in append.parts]), outcome)
    after = append.after or (0,) * len(append.parts)
    shares = [
        Share(append, part, before, deadline, whole)
        for part, before in zip(append.parts, after, strict=True)
    ]
    return shares, outcome


def joint_error(errors: list[LogError], receipts: list[Receipt]) -> LogError:
    """What is true of an append of which these parts failed and those did not.

    Definite only if certainly none of them was taken, whatever the worst error says by itself.
    """
    unsure = [error for error in errors if not error.definite]
    lasting = [error for error in errors if not isinstance(error, PASSING)]
    worst = (lasting or unsure or errors)[0]
    if not receipts and (len(errors) == 1 or not unsure):
        return worst
    taken = sorted(receipt.stream for receipt in receipts)
    known = f"log streams {taken} have their parts" if taken else "some parts may be in the log"
    text = f"{worst}; of the append, {known}"
    if isinstance(worst, PASSING):
        return LeaderLost(text)
    return PartlyAppended(text) if worst.definite else type(worst)(text)
