"""Raft's own promises, checked white box at every step.

Invariants, after Raft's figure 3:
  election safety     a term has one leader
  log matching        an entry is named by (index, term): same name, same content, same past
  leader completeness a leader has every entry that was committed before its term
  state machine       what is committed at an index never changes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tidelog.core.raft.entries import Entry, Index, RaftTerm, Snapshot
from tidelog.core.raft.output import Write
from tidelog.testing.shadow_log import ShadowLog
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "raft_safety"

Named: TypeAlias = tuple[Index, RaftTerm]


class RaftSafety:
    """What all nodes of a group have said and done so far."""

    __slots__ = ("_committed", "_entries", "_leaders", "_on_committed", "_sometimes")

    def __init__(self, sometimes: Sometimes, on_committed: Callable[[Entry], None]) -> None:
        self._sometimes = sometimes
        self._on_committed = on_committed
        self._leaders: dict[RaftTerm, NodeId] = {}
        self._entries: dict[Named, tuple[RaftTerm, Entry]] = {}
        self._committed: list[Entry] = []

    @property
    def committed(self) -> Index:
        """The highest index that any leader took for committed."""
        return Index(len(self._committed))

    def committed_entry(self, index: Index) -> Entry:
        """Return what is committed at an index."""
        return self._committed[index - 1]

    def on_write(self, node: NodeId, write: Write, log: ShadowLog) -> None:
        """Check log matching for the entries that a node adds; ``log`` has them already."""
        if not write.entries:
            return
        first = write.entries[0].index
        previous = log.term_of(Index(first - 1))
        if previous is None:
            raise Violation(NAME, f"node {node} writes index {first} onto nothing")
        for entry in write.entries:
            known = self._entries.setdefault((entry.index, entry.term), (previous, entry))
            if known != (previous, entry):
                raise Violation(
                    NAME,
                    f"log matching: node {node} has {entry} after term {previous},"
                    f" another node has {known[1]} after term {known[0]}",
                )
            previous = entry.term

    def on_leader(self, node: NodeId, term: RaftTerm, log: ShadowLog) -> None:
        """Check a node that leads."""
        leader = self._leaders.setdefault(term, node)
        if leader != node:
            raise Violation(NAME, f"election safety: nodes {leader} and {node} lead term {term}")
        if not self._committed:
            return
        # By log matching, having the last one is having them all.
        last = self._committed[-1]
        if last.term < term and not log.holds(last.index, last.term):
            raise Violation(
                NAME,
                f"leader completeness: node {node} leads term {term} without the committed entry"
                f" {last.index} of term {last.term}",
            )

    def on_commit(self, node: NodeId, commit: Index, log: ShadowLog, *, leads: bool) -> None:
        """Check that a node's commit index is right; a leader's makes the history longer."""
        known = len(self._committed)
        if commit > known:
            if not leads:
                raise Violation(NAME, f"node {node} commits {commit}, no leader got beyond {known}")
            for index in range(known + 1, commit + 1):
                self._commit(node, Index(index), log)
        elif commit > log.head.index:
            term = self._committed[commit - 1].term
            if not log.holds(commit, term):
                raise Violation(
                    NAME,
                    f"state machine: node {node} commits index {commit} of term"
                    f" {log.term_of(commit)}, it was committed in term {term}",
                )

    def _commit(self, node: NodeId, index: Index, log: ShadowLog) -> None:
        term = log.term_of(index)
        if term is None:
            raise Violation(NAME, f"node {node} commits index {index}, which it does not have")
        entry = self._entries[index, term][1]
        self._committed.append(entry)
        self._sometimes.count(Rare.COMMIT)
        self._on_committed(entry)

    def on_apply(self, node: NodeId, entry: Entry) -> None:
        """Check an entry that a node applies."""
        if entry.index > len(self._committed):
            raise Violation(NAME, f"node {node} applies {entry}, which nobody committed")
        committed = self._committed[entry.index - 1]
        if committed != entry:
            raise Violation(
                NAME, f"state machine: node {node} applies {entry}, committed was {committed}"
            )

    def on_install(self, node: NodeId, snapshot: Snapshot) -> None:
        """Check a snapshot that a node takes over from its leader."""
        head = snapshot.head
        if head.index > len(self._committed):
            raise Violation(NAME, f"node {node} installs index {head.index}, not yet committed")
        if head.index and self._committed[head.index - 1].term != head.term:
            raise Violation(
                NAME,
                f"node {node} installs index {head.index} of term {head.term}, committed was"
                f" term {self._committed[head.index - 1].term}",
            )
