"""A linearizable read sees all that was committed when it began.

Stronger than what a client could prove: it counts what any leader knew to be committed, whether
somebody had been told or not.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.raft.entries import Index
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "reads"


class Reads:
    """Reads that are under way, with the index that each of them must see."""

    __slots__ = ("_due", "_next")

    def __init__(self) -> None:
        self._due: dict[int, Index] = {}
        self._next = 1

    def begin(self, committed: Index) -> int:
        """Return the context of a new read."""
        context, self._next = self._next, self._next + 1
        self._due[context] = committed
        return context

    def end(self, context: int) -> None:
        """Note that a read failed: it may be asked for again."""
        self._due.pop(context, None)

    def serve(self, node: NodeId, context: int, applied: Index) -> bool:
        """Check a read that is answered from what ``node`` has applied; False if it had ended."""
        due = self._due.pop(context, None)
        if due is None:
            return False
        if applied < due:
            raise Violation(
                NAME,
                f"read {context} is served by node {node} as of index {applied}; when it began,"
                f" {due} was committed",
            )
        return True
