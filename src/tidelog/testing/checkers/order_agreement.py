"""Every metadata node decides the same cuts, and they follow one another without gap.

White box.  A reference applies every entry as soon as a leader commits it, so it knows each cut
before any node does; what a node keeps of the history, and the whole of its state, must be what
the reference had at that index.  A node that restarts or takes a snapshot over is held against it
in the same way.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.metadata.commands import decode_batch
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.core.order.machine import OrderMachine
from tidelog.core.raft.entries import Entry, EntryKind, Index
from tidelog.testing.violation import Violation
from tidelog.types import FIRST_GLSN, FIRST_LLSN, Glsn, Llsn, NodeId, StreamId, TopicId, Version

NAME: Final = "order_agreement"
DENSE: Final = "dense"
COMPARE_EVERY: Final = 8
"""The whole state is compared at every so many indexes."""


class OrderAgreement:
    """The reference, and all cuts that it decided."""

    __slots__ = ("_cuts", "_glsn_ends", "_llsn_ends", "_machine", "_seen", "_states")

    def __init__(self) -> None:
        self._machine = MetadataMachine()
        self._cuts: list[CutDecided] = []
        self._glsn_ends: dict[TopicId, Glsn] = {}
        self._llsn_ends: dict[StreamId, Llsn] = {}
        self._seen: dict[NodeId, Version] = {}
        self._states: dict[Index, bytes] = {}

    @property
    def version(self) -> Version:
        """The last version that was decided."""
        return Version(len(self._cuts))

    @property
    def order(self) -> OrderMachine:
        """The order layer after all that is committed."""
        return self._machine.order

    def llsn_end(self, stream: StreamId) -> Llsn:
        """Return how far a stream is ordered."""
        return self._llsn_ends.get(stream, FIRST_LLSN)

    def on_committed(self, entry: Entry) -> tuple[CutDecided, ...]:
        """Apply what a leader has committed; return the cuts that it decides."""
        cuts: tuple[CutDecided, ...] = ()
        if entry.kind is EntryKind.COMMAND:
            cuts = self._machine.apply(decode_batch(entry.data)).cuts
            for cut in cuts:
                self._on_cut(cut)
        if entry.index % COMPARE_EVERY == 0:
            self._states[entry.index] = self._machine.snapshot()
        return cuts

    def on_applied(self, node: NodeId, machine: MetadataMachine, applied: Index) -> None:
        """Check what a metadata node has decided since the last look."""
        order = machine.order
        if order.version != self._seen.get(node):
            self._check_history(node, order)
        if applied in self._states and self._states[applied] != machine.snapshot():
            raise Violation(NAME, f"node {node} has another state at index {applied} than others")

    def on_restart(self, node: NodeId) -> None:
        """Trust nothing that a node knew before."""
        self._seen.pop(node, None)

    def _check_history(self, node: NodeId, order: OrderMachine) -> None:
        """Check the cuts that a node keeps, as far as they are news."""
        begin = max(self._seen.get(node, 0), order.first_version - 1)
        if order.version > len(self._cuts):
            raise Violation(NAME, f"node {node} decided {order.version}, which is not committed")
        kept = order.cuts_after(Version(begin))
        if kept != tuple(self._cuts[begin : order.version]):
            raise Violation(NAME, f"node {node} knows other cuts after {begin}: {kept}")
        self._seen[node] = order.version

    def _on_cut(self, cut: CutDecided) -> None:
        if cut.version != len(self._cuts) + 1 or not cut.commits:
            raise Violation(DENSE, f"{cut} comes after version {len(self._cuts)}")
        for commit in cut.commits:
            self._extend(cut.version, commit)
        for commit in cut.commits:
            if commit.high_watermark != self._glsn_ends[commit.topic] - 1:
                raise Violation(DENSE, f"version {cut.version}: wrong high watermark in {commit}")
        self._cuts.append(cut)

    def _extend(self, version: Version, commit: StreamCommit) -> None:
        """Check that GLSNs and LLSNs go on where they ended."""
        glsn = self._glsn_ends.get(commit.topic, FIRST_GLSN)
        llsn = self._llsn_ends.get(commit.stream, FIRST_LLSN)
        if commit.glsn_begin != glsn or commit.llsn_begin != llsn or commit.length < 1:
            raise Violation(
                DENSE, f"version {version}: {commit}, due were GLSN {glsn} and LLSN {llsn}"
            )
        self._glsn_ends[commit.topic] = commit.glsn_end
        self._llsn_ends[commit.stream] = commit.llsn_end
