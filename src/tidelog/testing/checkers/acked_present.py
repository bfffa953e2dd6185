"""What a client was told to be committed is there at the end, at its place, with its bytes."""

from __future__ import annotations

from typing import Final

from tidelog.core.raft.entries import Entry, Index, RaftTerm
from tidelog.testing.checkers.raft_safety import RaftSafety
from tidelog.testing.violation import Violation

NAME: Final = "acked_present"


class AckedPresent:
    """The acknowledged commands."""

    __slots__ = ("_acked",)

    def __init__(self) -> None:
        self._acked: dict[Index, tuple[RaftTerm, bytes]] = {}

    def on_acknowledge(self, entry: Entry) -> None:
        """Note a command whose client was told."""
        known = self._acked.setdefault(entry.index, (entry.term, entry.data))
        if known != (entry.term, entry.data):
            raise Violation(NAME, f"two commands were acknowledged at index {entry.index}")

    def check(self, history: RaftSafety) -> None:
        """Hold the acknowledged commands against what is committed at the end."""
        for index, (term, data) in self._acked.items():
            if index > history.committed:
                raise Violation(NAME, f"the acknowledged index {index} is not committed")
            entry = history.committed_entry(index)
            if (entry.term, entry.data) != (term, data):
                raise Violation(NAME, f"index {index} was acknowledged as {data!r}, it is {entry}")
