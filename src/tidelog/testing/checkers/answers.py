"""A change of the metadata that was answered as done is committed, and was asked for here."""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.core.metadata.commands import Change, Request, decode_batch
from tidelog.core.raft.entries import Entry, EntryKind
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "answers"

_encoder: Final = msgspec.msgpack.Encoder()


class Answers:
    """The changes that are committed, by the node that they were asked for at."""

    __slots__ = ("_committed",)

    def __init__(self) -> None:
        self._committed: set[tuple[NodeId, bytes]] = set()

    def on_committed(self, entry: Entry) -> None:
        """Note the changes of an entry."""
        if entry.kind is EntryKind.COMMAND:
            for command in decode_batch(entry.data).commands:
                if isinstance(command, Request):
                    self._committed.add((command.origin, _encoder.encode(command.change)))

    def on_answer(self, node: NodeId, change: Change) -> None:
        """Check a change that its client is told to be decided: done, or refused by the state."""
        if (node, _encoder.encode(change)) not in self._committed:
            raise Violation(NAME, f"node {node} answers {change}, which is not committed")
