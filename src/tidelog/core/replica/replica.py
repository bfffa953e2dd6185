"""One replica of a log stream, as a deterministic machine.

Input: messages, ticks, cuts, what the host asks for, and word of completed writes.  Output:
``take``; see ``output`` for what the host owes in return.  The replica reads no clock and does
nothing between calls.  No state of its own but what it told its host last: its parts have it
(``state``, ``roles`` and the objects of the roles), with their invariants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from tidelog import limits
from tidelog.core.order.commands import Report, VersionedCommit
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.dispatch import Dispatch
from tidelog.core.replica.entries import NO_PRODUCER, EntryId
from tidelog.core.replica.messages import Reason, Role, ToReplica
from tidelog.core.replica.options import (
    Appended,
    CursorKind,
    CursorStatus,
    Ignored,
    ReplicaOptions,
)
from tidelog.core.replica.output import Output, Store
from tidelog.core.replica.roles import Roles
from tidelog.core.replica.state import State, Stored
from tidelog.errors import BatchTooLarge
from tidelog.types import FIRST_LLSN, NO_TERM, Llsn, NodeId, ProducerId, StreamId, Term, Version

__all__ = [
    "Appended",
    "CursorKind",
    "CursorStatus",
    "Ignored",
    "Replica",
    "ReplicaOptions",
    "Stored",
]


class Replica:
    """One replica; see the module's text."""

    __slots__ = ("_dispatch", "_roles", "_state", "_told")

    def __init__(
        self,
        node: NodeId,
        stream: StreamId,
        stored: Stored,
        store: Store,
        options: ReplicaOptions,
    ) -> None:
        self._state = State(node, stream, stored, store, options)
        self._roles = Roles(self._state)
        self._dispatch = Dispatch(self._state, self._roles)
        self._told = (FIRST_LLSN, FIRST_LLSN, self._state.context.llsn_end)
        """How far it told its host that appends are stored, propagated and ordered."""

    # --- what comes in ---

    def tick(self) -> None:
        """Let one unit of time pass."""
        self._roles.tick()

    def step(self, message: ToReplica) -> None:
        """Take in a message; one that makes no sense is ignored and counted."""
        self._dispatch.step(message)

    def written(self, sequence: int) -> None:
        """All writes up to this one are durable."""
        self._state.writes.complete(sequence)
        self._state.keep_promises()
        self._roles.settle()

    def append(
        self, data: bytes, count: int, *, producer: ProducerId = NO_PRODUCER, sequence: int = 0
    ) -> Appended | Reason:
        """Append a batch of ``count`` entries; only a leader can.

        An append that a producer repeats is answered with its old place.  Raises ProducerConflict
        if that is not known any more, BatchTooLarge, and Busy while too much waits for a quorum.
        """
        if self._roles.leading is None:
            return Reason.NOT_LEADER
        if not 1 <= count <= limits.BATCH_ENTRIES_MAX or len(data) > limits.BATCH_BODY_BYTES_MAX:
            raise BatchTooLarge(f"a batch of {count} entries and {len(data)} bytes")
        return self._roles.leading.append(data, count, producer, sequence)

    def commit(self, commits: Sequence[VersionedCommit], version: Version) -> None:
        """Take in cuts of this stream, up to ``version``; those left out ordered nothing of it."""
        self._roles.ordering.commit(commits, version)
        self._roles.apply_cuts()

    def place(self, llsn_end: Llsn, version: Version) -> None:
        """As of ``version`` the stream is ordered up to ``llsn_end``; the cuts before are gone."""
        self._roles.ordering.place(llsn_end, version)
        self._roles.apply_cuts()

    def fall_behind(self, version: Version) -> None:
        """The cuts up to ``version`` that the replica misses are gone: it asks its leader."""
        self._roles.ordering.fall_behind(version)

    def trim(self, llsn: Llsn) -> None:
        """Delete the ordered entries before ``llsn``, which is where a batch begins."""
        self._state.trim(llsn)
        if self._roles.leading is not None:
            self._roles.leading.renew()

    def compacted(self, snapshot_index: Llsn) -> None:
        """Entries up to this one may be gone from the store, as far as they are dead."""
        self._state.compacted(snapshot_index)
        if self._roles.leading is not None:
            self._roles.leading.renew()

    def joined(self, llsn: Llsn) -> None:
        """The store does not tell any more who appended the entries up to this one.

        Followers that lack them are filled up, for only that brings the table of producers.
        """
        self._state.log.join(llsn)

    def fetched(self) -> None:
        """The store has something by now that it did not have when it was asked."""
        if self._roles.leading is not None:
            self._roles.leading.due = True

    # --- what comes out ---

    def report(self) -> Report | None:
        """Tell the metadata repository what may be ordered next; None while it is silent."""
        return self._roles.report()

    def last_sequence(self, producer: ProducerId) -> int:
        """Return the highest sequence that a producer appended, ordered or not; 0 if none."""
        return self._state.producers.last_sequence(producer)

    @property
    def has_output(self) -> bool:
        """Whether ``take`` may have something."""
        leading = self._roles.leading
        is_due = leading is not None and leading.due
        return is_due or self._state.has_output or self._progress() != self._told

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for an answer until all writes are durable."""
        return self._state.owes

    def take(self) -> Output:
        """Hand over what has to be done; see ``Output``."""
        if self._roles.leading is not None:
            self._roles.leading.flush()
        output = self._state.take()
        if output.deposed:  # The next leadership tells all anew.
            self._told = (FIRST_LLSN, FIRST_LLSN, self._told[2])
        told, self._told = self._told, self._progress()
        if told == self._told:
            return output
        stored, propagated, ordered = (
            new if new != old else None for old, new in zip(told, self._told, strict=True)
        )
        return replace(output, stored=stored, propagated=propagated, ordered=ordered)

    def _progress(self) -> tuple[Llsn, Llsn, Llsn]:
        """The ends of what is stored, propagated and ordered; they never go back."""
        stored, propagated, ordered = self._told
        state = self._state
        if self._roles.leading is not None:
            stored = max(stored, state.writes.durable_end)
            # Nothing is told to be propagated before it is stored.
            propagated = max(propagated, min(state.writes.durable_end, Llsn(state.commit + 1)))
        return stored, propagated, max(ordered, state.context.llsn_end)

    # --- what it looks like ---

    @property
    def role(self) -> Role:
        """What it is to the stream at the moment."""
        return self._roles.role

    @property
    def term(self) -> Term:
        """The highest term that it was told of."""
        return self._state.term

    @property
    def reign(self) -> Term:
        """The term in which its leader was elected; 0 if it has none."""
        part = self._roles.leading or self._roles.following
        return part.reign if part is not None else NO_TERM

    @property
    def leader(self) -> NodeId:
        """Who leads, if known."""
        return self._roles.leader

    @property
    def head(self) -> EntryId:
        """The last entry."""
        return self._state.log.head

    @property
    def durable_head(self) -> EntryId:
        """The last entry that would survive a crash."""
        return self._state.durable_head

    @property
    def first(self) -> Llsn:
        """The first entry that was not trimmed."""
        return self._state.log.first

    @property
    def snapshot_index(self) -> Llsn:
        """Up to this entry only live ones are stored, as far as it was told."""
        return self._state.log.snapshot_index

    @property
    def joined_index(self) -> Llsn:
        """Up to this entry the store does not tell who appended what, as far as it was told."""
        return self._state.log.joined_index

    @property
    def commit_index(self) -> Llsn:
        """All entries up to this one stay, as far as it knows."""
        return self._state.commit

    @property
    def context(self) -> CommitContext:
        """The last cut that it applied; maybe not durable yet."""
        return self._state.context

    @property
    def durable_context(self) -> CommitContext:
        """The last cut with entries that it applied and that would survive a crash."""
        return self._state.writes.durable_context

    @property
    def is_complete(self) -> bool:
        """Whether it has all that it ever acknowledged."""
        return self._state.is_complete

    @property
    def is_behind(self) -> bool:
        """Whether it misses cuts."""
        return self._roles.ordering.is_behind

    @property
    def is_filling(self) -> bool:
        """Whether it fills other replicas up: trimming or compacting may make it begin anew."""
        return self._roles.leading is not None and len(self._roles.leading.sources) > 0

    @property
    def version(self) -> Version:
        """All cuts up to this one are applied, or wait for their entries."""
        return self._roles.ordering.version

    @property
    def ordered_end(self) -> Llsn:
        """How far the stream is ordered by the cuts up to ``version``."""
        return self._roles.ordering.ordered_end

    @property
    def ensemble(self) -> tuple[NodeId, ...]:
        """The members that the leader counts; empty elsewhere."""
        return self._roles.leading.ensemble if self._roles.leading is not None else ()

    @property
    def cursors(self) -> Mapping[NodeId, CursorStatus]:
        """What the leader believes of each follower; empty elsewhere."""
        cursors = self._roles.leading.cursors if self._roles.leading is not None else {}
        return MappingProxyType({node: cursor.status for node, cursor in cursors.items()})

    @property
    def ignored(self) -> Mapping[Ignored, int]:
        """How many messages and cuts were left without effect, by reason, since the start."""
        return MappingProxyType(self._state.ignored)

    def validate(self) -> None:
        """Check every invariant, at the cost of looking at the whole log."""
        self._roles.validate()
