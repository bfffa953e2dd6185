"""A replica's commit context is what the cuts up to its version have made of the stream.

White box: all cuts are known to the reference.  It holds also after a crash, for the context is
stored with what it orders.  And a node takes no stream to end before it does: a reader would be
told that nothing is missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from tidelog.core.order.commands import CutDecided
from tidelog.core.replica.commit_context import CommitContext
from tidelog.testing.stream_image import StreamImage
from tidelog.testing.violation import Violation
from tidelog.types import FIRST_GLSN, FIRST_LLSN, Glsn, Llsn, NodeId, StreamId, Version

NAME: Final = "commit_context"
ENDS: Final = "hosted_ends"


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
        due = self._ends_at(stream, Version(context.version))
        if due != (context.llsn_end, context.glsn_end):
            raise Violation(
                NAME, f"node {node}, stream {stream}: {context}, but that version ends at {due}"
            )

    def on_hosted(self, node: NodeId, newest: Version, ends: Mapping[StreamId, Llsn]) -> None:
        """Check how far a node takes streams to be ordered as of a version, or of a later cut."""
        for stream, end in ends.items():
            due, _ = self._ends_at(stream, newest)
            last = self._ends[stream][-1][0] if stream in self._ends else FIRST_LLSN
            if not due <= end <= last:
                raise Violation(
                    ENDS,
                    f"node {node} takes stream {stream} to end at {end} as of {newest}, where it "
                    f"ends at {due}, and now at {last}",
                )

    def _ends_at(self, stream: StreamId, version: Version) -> tuple[Llsn, Glsn]:
        count = bisect_right(self._versions.get(stream, []), version)
        return self._ends[stream][count - 1] if count else (FIRST_LLSN, FIRST_GLSN)

    def on_recovery(self, node: NodeId, stream: StreamId, image: StreamImage) -> None:
        """Check what a crash left."""
        self.on_context(node, stream, image.context)
        is_complete = image.hard_state is not None and image.hard_state.is_complete
        if is_complete and not image.first <= image.context.llsn_end <= image.end:
            raise Violation(NAME, f"node {node} lost ordered entries of stream {stream}")
