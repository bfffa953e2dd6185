"""Changes that were refused lately for a reason that may pass.

Input: requests as they come out of the Raft log.  Output: what is to be refused once more.

Invariants:
  F1  a request that was refused is not made when the log has it once more: who asked was told so
  F2  what is remembered is bounded; a repetition follows soon, for it is offered by who waits for
      its outcome, or was under way with the leader before
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tidelog import limits
from tidelog.core.metadata.commands import Request
from tidelog.errors import BadOption
from tidelog.types import NodeId

Refused: TypeAlias = tuple[NodeId, int]
"""Where a change was asked for, and its number there."""


class Refusals:
    """The last refused requests, oldest first."""

    __slots__ = ("_known",)

    def __init__(self, known: Iterable[Refused] = ()) -> None:
        # A dict as an ordered set.
        self._known: dict[Refused, None] = dict.fromkeys(known)

    @property
    def known(self) -> tuple[Refused, ...]:
        """All that is remembered; a new one goes on from it."""
        return tuple(self._known)

    def refuse_repeated(self, request: Request) -> None:
        """Refuse what was refused before: what it wanted for may be there by now (F1)."""
        if (request.origin, request.number) in self._known:
            raise BadOption("it was refused before")

    def note(self, request: Request) -> None:
        """Remember a refused request, and forget the oldest one if there are too many (F2)."""
        self._known[request.origin, request.number] = None
        if len(self._known) > limits.METADATA_REFUSALS_MAX:
            del self._known[next(iter(self._known))]
