"""A replica's commit context is what the cuts up to its version have made of the stream.

White box: all cuts are known to the reference.  It holds also after a crash, for the context is
stored with what it orders.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from tidelog.core.order.commands import CutDecided
from tidelog.core.replica.commit_context import CommitContext
from tidelog.testing.stream_image import StreamImage
from tidelog.testing.violation import Violation
from tidelog.types import FIRST_GLSN, FIRST_LLSN, Glsn, Llsn, NodeId, StreamId, Version

NAME: Final = "commit_context"


class CommitContexts:
    """Where every cut ended every stream."""

    __slots__ = ("_ends", "_versions")

    def __init__(self) -> None:
        self._versions: dict[StreamId, list[Version]] = {}
        self._ends: dict[StreamId, list[tuple[Llsn, Glsn]]] = {}

    def on_cut(self, cut: CutDecided) -> None:
        """Note a cut when it is decided."""
        for commit in cut.commits:
            self._versions.setdefault(commit.stream, []).append(cut.version)
            ends = (commit.llsn_end, commit.glsn_end)
            self._ends.setdefault(commit.stream, []).append(ends)

    def on_context(self, node: NodeId, stream: StreamId, context: CommitContext) -> None:
        """Check a context that a replica writes."""
        count = bisect_right(self._versions.get(stream, []), context.version)
        due = self._ends[stream][count - 1] if count else (FIRST_LLSN, FIRST_GLSN)
        if due != (context.llsn_end, context.glsn_end):
            raise Violation(
                NAME, f"node {node}, stream {stream}: {context}, but that version ends at {due}"
            )

    def on_recovery(self, node: NodeId, stream: StreamId, image: StreamImage) -> None:
        """Check what a crash left."""
        self.on_context(node, stream, image.context)
        is_complete = image.hard_state is not None and image.hard_state.is_complete
        if is_complete and not image.first <= image.context.llsn_end <= image.end:
            raise Violation(NAME, f"node {node} lost ordered entries of stream {stream}")
