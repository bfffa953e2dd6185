"""What a replica has in every role, and the few ways in which it changes.

Invariants:
  S1  ordered end <= commit index + 1 <= the log's end: what is ordered or committed is never cut
  S2  the term never falls, and no entry is of a later term
  S3  a promise leaves only when all that happened before it is durable
  S4  the commit index never goes back in one life, unless the replica is dropped
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import NO_ENTRY, NO_PRODUCER, Batch, EntryId, GlsnRun
from tidelog.core.replica.log import ReplicaLog
from tidelog.core.replica.messages import Message, Reason, Refusal, ToReplica
from tidelog.core.replica.options import Ignored, ReplicaOptions
from tidelog.core.replica.output import Filled, HardState, Output, Store
from tidelog.core.replica.producers import ProducerState, ProducerTable
from tidelog.core.replica.writes import Writes
from tidelog.errors import CorruptData
from tidelog.invariants import check
from tidelog.types import (
    FIRST_LLSN,
    NO_LLSN,
    NO_NODE,
    NO_TERM,
    Llsn,
    NodeId,
    StreamId,
    Term,
    Version,
)

NEVER_A_MEMBER: Final = HardState(NO_TERM, is_complete=False, is_member=False, had=NO_ENTRY)


class Stored(msgspec.Struct, frozen=True):
    """What the host found on disk; as it stands, it never was a replica.

    ``terms``: each term and the first LLSN that it wrote, the one before ``first`` included.
    ``is_sound``: whether the ordered part can be trusted.  If not, or if the rest contradicts
    itself, the hard state must say that the replica is not complete, and a synchronisation replaces
    everything.
    """

    hard_state: HardState | None = None
    first: Llsn = FIRST_LLSN
    end: Llsn = FIRST_LLSN
    terms: tuple[tuple[Term, Llsn], ...] = ()
    context: CommitContext = NONE
    snapshot_index: Llsn = NO_LLSN
    producers: tuple[ProducerState, ...] = ()
    is_sound: bool = True


def flaw_in_stored(stored: Stored) -> str | None:
    """Say why a replica cannot start from what was found; None if it can."""
    hard_state = stored.hard_state
    if hard_state is None:
        return None if stored == Stored() else "a log without a term"
    if not stored.is_sound:
        return "its ordered part cannot be trusted"
    log = ReplicaLog(stored.first, stored.end, stored.terms, stored.snapshot_index)
    if log.flaw() is not None:
        return log.flaw()
    if log.end > FIRST_LLSN and log.term_at(log.end - 1) is None:
        return "the term of the last entry is missing"
    if log.head.term > hard_state.term:
        return f"the log ends in term {log.head.term}, after the replica's"
    if not stored.first <= stored.context.llsn_end <= stored.end:
        return f"the ordered part ends at {stored.context.llsn_end}, outside the log"
    return None


def nothing_after(context: CommitContext, version: Version) -> CommitContext:
    """Return the empty context of a later cut."""
    return CommitContext(
        version, context.high_watermark, context.glsn_end, context.llsn_end, length=0
    )


class State:
    """Term, log and context, and what has to leave the replica."""

    __slots__ = (
        "_hard_state",
        "_promises",
        "commit",
        "context",
        "deposed",
        "ignored",
        "is_filling",
        "is_sound",
        "log",
        "messages",
        "node",
        "options",
        "producers",
        "store",
        "stream",
        "writes",
    )

    def __init__(
        self,
        node: NodeId,
        stream: StreamId,
        stored: Stored,
        store: Store,
        options: ReplicaOptions,
    ) -> None:
        check(node > NO_NODE, "S2: a replica needs a node")
        flaw = flaw_in_stored(stored)
        if flaw is not None and stored.hard_state is not None and stored.hard_state.is_complete:
            raise CorruptData(f"the stored replica of stream {stream} is not sound: {flaw}")
        self.node = node
        self.stream = stream
        self.options = options
        self.store = store
        self._hard_state = stored.hard_state or NEVER_A_MEMBER
        self.is_sound = stored.is_sound and flaw is None
        if self.is_sound:
            self.log = ReplicaLog(stored.first, stored.end, stored.terms, stored.snapshot_index)
            self.context = stored.context
            self.producers = ProducerTable.thaw(stored.producers)
        else:
            self.log, self.context, self.producers = ReplicaLog(), NONE, ProducerTable()
        self.commit = Llsn(self.context.llsn_end - 1)
        self.writes = Writes(self.log.end, self.context)
        self.messages: list[Message] = []
        self._promises: deque[tuple[int, Message]] = deque()
        self.deposed = False
        self.is_filling = False
        """Whether a synchronisation fills the log: nobody else adds to it or orders it then."""
        self.ignored: dict[Ignored, int] = {}

    @property
    def term(self) -> Term:
        """The highest that it was told of."""
        return self._hard_state.term

    @property
    def is_member(self) -> bool:
        """Whether there is a replica at all."""
        return self._hard_state.is_member

    @property
    def is_complete(self) -> bool:
        """Whether it has all that it ever acknowledged."""
        return self._hard_state.is_complete

    @property
    def had(self) -> EntryId | None:
        """The head of the log that it gave up, if it is not complete and that is known."""
        return self._hard_state.had

    @property
    def durable_head(self) -> EntryId:
        """The last entry that would survive a crash."""
        return self.log.id_at(Llsn(self.writes.durable_end - 1)) or NO_ENTRY

    @property
    def settled_context(self) -> CommitContext:
        """The last cut that would survive a crash; those after it that ordered nothing included."""
        durable = self.writes.durable_context
        return self.context if self.context.llsn_end == durable.llsn_end else durable

    # --- messages ---

    def ignore(self, reason: Ignored) -> None:
        """Count a message that has no effect."""
        self.ignored[reason] = self.ignored.get(reason, 0) + 1

    def address(self, target: NodeId) -> tuple[NodeId, NodeId, StreamId]:
        """What every message to a node begins with."""
        return self.node, target, self.stream

    def send(self, message: Message) -> None:
        """Say something that promises nothing."""
        self.messages.append(message)

    def promise(self, message: Message) -> None:
        """Say something once all that happened so far is durable (S3).

        If too much waits to be said it is left out: whoever asked will ask again (T9).
        """
        if len(self._promises) >= self.options.promises_max:
            self.ignore(Ignored.CROWDED)
            return
        self._promises.append((self.writes.last_sequence(self.log), message))
        self.keep_promises()

    def keep_promises(self) -> None:
        """Send what had to wait until something was durable."""
        while self._promises and self.writes.is_durable(self._promises[0][0]):
            self.messages.append(self._promises.popleft()[1])

    @property
    def owes(self) -> bool:
        """Whether something is to be said once what happened so far is durable."""
        return bool(self._promises)

    def break_promises(self) -> None:
        """Withdraw what was not said yet: the role is over, or the log another."""
        self._promises.clear()

    def refuse(self, request: ToReplica, reason: Reason) -> None:
        """Tell the sender that its request changed nothing."""
        self.send(Refusal(*self.address(request.source), request.term, self.term, reason))

    # --- changes ---

    def go_to(self, term: Term, *, is_complete: bool | None = None) -> None:
        """Go to a later term, or say in this one whether the replica is complete."""
        check(term >= self.term, "S2: the term falls")
        if term == self.term and is_complete in (None, self.is_complete):
            return
        complete = self.is_complete if is_complete is None else is_complete
        had = self.log.head if self.is_complete else self.had
        self._hard_state = HardState(term, complete, had=None if complete else had)
        self.writes.set_hard_state(self._hard_state)

    def append(self, batch: Batch) -> None:
        """Add the next batch to the log."""
        check(batch.term <= self.term, "S2: a batch comes from a later term")
        check(batch.llsn_begin == self.log.end, "S1: a batch leaves a gap")
        self.log.append(batch)
        self.writes.append(batch)
        if batch.producer != NO_PRODUCER and self.producers.is_new(batch.producer, batch.sequence):
            self.producers.record(batch.producer, batch.sequence, batch.llsn_begin, batch.count)

    def truncate(self, end: Llsn) -> None:
        """Cut off the entries from ``end`` on, physically; the leader does not have them."""
        check(end > self.commit, "S1: a committed entry would be cut")
        self.cut_to(end)

    def commit_to(self, llsn: Llsn) -> bool:
        """Move the commit index up; say whether it moved (S4)."""
        check(llsn < self.log.end, "S1: an entry is committed that is not here")
        if llsn <= self.commit:
            return False
        self.commit = llsn
        return True

    def order(self, runs: tuple[GlsnRun, ...], context: CommitContext) -> None:
        """Apply a cut: the context and the GLSNs that it gives go into one write."""
        check(context.llsn_end <= self.commit + 1, "S1: what is not committed would be ordered")
        first = runs[0].llsn_begin if runs else context.llsn_end
        if first > self.context.llsn_end:
            self._trim(first)  # Others have trimmed what was ordered before.
        self.context = context
        self.writes.order(runs, context)

    def rise_to(self, version: Version) -> None:
        """Apply cuts that ordered nothing here: worth no write of their own."""
        if version > self.context.version:
            self.context = nothing_after(self.context, version)
            self.writes.rise(self.context)

    def trim(self, first: Llsn) -> None:
        """Delete ordered entries before ``first``."""
        first = min(first, self.writes.durable_context.llsn_end)
        if first > self.log.first:
            self._trim(first)

    def _trim(self, first: Llsn) -> None:
        self.log.trim(first)
        self.writes.trim(first)

    def compacted(self, snapshot_index: Llsn) -> None:
        """Dead entries up to this one are gone, or will be."""
        ordered_end = self.writes.durable_context.llsn_end
        check(snapshot_index < ordered_end, "S1: a snapshot of what is not ordered")
        self.log.compact(snapshot_index)

    def cut_to(self, end: Llsn) -> None:
        """Cut off the entries from ``end`` on; what was committed among them will come again."""
        check(end >= self.context.llsn_end, "S1: an ordered entry would be cut")
        self.log.truncate(end)
        self.writes.truncate(end)
        self.producers.truncate(end)

    def fill(self, batches: Sequence[Batch], runs: tuple[GlsnRun, ...], end: Llsn) -> None:
        """Add a part of the leader's log; LLSNs up to ``end`` that are left out are dead."""
        for batch in batches:
            check(batch.term <= self.term, "S2: a batch comes from a later term")
            self.log.append(batch)
            self.writes.append(batch, sparse=True)
        self.log.skip_to(end)
        self.writes.order(runs, None)

    def install(self, filled: Filled, context: CommitContext, first: Llsn, state: bytes) -> None:
        """Take over the rest of what the leader had; our own context and snapshot may be newer."""
        self.log.set_terms(filled.terms)
        # What a snapshot says of entries that the leader has trimmed is of no use any more.
        is_ours_newer = self.log.snapshot_index > max(filled.snapshot_index, first - 1)
        self.log.compact(filled.snapshot_index)
        filled = self._as_kept(filled)
        self.producers = ProducerTable.thaw(filled.producers)
        if context.version > self.context.version:
            self.context = context
        self.commit = Llsn(max(min(self.commit, self.log.end - 1), self.context.llsn_end - 1))
        self.writes.order((), self.context)
        self.writes.install(filled, None if is_ours_newer else state)
        self.log.trim(max(first, self.log.first))
        if self.log.first > FIRST_LLSN:
            self.writes.trim(self.log.first)

    def _as_kept(self, filled: Filled) -> Filled:
        """What our own snapshot left out of entries that were kept stays known as dead."""
        return replace(filled, terms=self.log.terms, snapshot_index=self.log.snapshot_index)

    def begin_anew(self, first: Llsn) -> None:
        """Delete the log and the context; the next entry is ``first``."""
        self.log.begin_anew(first)
        self.context, self.producers = NONE, ProducerTable()
        self.is_sound = True
        self.writes.wipe(first)

    def drop(self, term: Term) -> None:
        """Delete all of the replica but the term, in which nobody can make it a member again."""
        check(term >= self.term, "S2: the term falls")
        self.log.begin_anew(FIRST_LLSN)
        self.context, self.commit, self.producers = NONE, NO_LLSN, ProducerTable()
        self.is_sound = True
        self._hard_state = HardState(term, is_complete=False, is_member=False)
        self.writes.drop(self._hard_state)

    # --- reading and output ---

    def batches(self, begin: Llsn) -> tuple[Batch, ...] | None:
        """Return batches from ``begin`` on, from memory or the store; None: ask again later."""
        bytes_max = self.options.message_bytes_max
        recent = self.log.recent(begin, bytes_max)
        if recent or begin >= self.writes.handed_end:
            return recent
        return self._stored_batches(begin)

    def live_batches(self, begin: Llsn, end: Llsn) -> tuple[Batch, ...] | None:
        """The same up to ``end``, but without dead ones as far as they are left out already."""
        recent = self.log.recent(begin, self.options.message_bytes_max)
        is_whole = begin > self.log.snapshot_index
        if is_whole and (recent or begin >= self.writes.handed_end):
            return tuple([batch for batch in recent if batch.llsn_end <= end])
        return self._stored_batches(begin, end)

    def _stored_batches(self, begin: Llsn, end: Llsn | None = None) -> tuple[Batch, ...] | None:
        stored = self.store.batches(begin, self.options.message_bytes_max, end)
        if stored is None:
            return None
        # What was cut off after it was handed out is still in the store until the next write.
        return tuple([batch for batch in stored if batch.llsn_end <= self.writes.handed_end])

    @property
    def has_output(self) -> bool:
        """Whether ``take`` would return anything."""
        return bool(self.messages or self.deposed or self.writes.is_due(self.log))

    def take(self) -> Output:
        """Hand over what has to be sent and written."""
        messages, self.messages = tuple(self.messages), []
        deposed, self.deposed = self.deposed, False
        write = self.writes.take(self.log)
        if self.log.recent_bytes > 2 * self.options.recent_bytes_max:
            self.log.forget(self.writes.handed_end, self.options.recent_bytes_max)
        return Output(messages=messages, write=write, deposed=deposed)

    def flaw(self) -> str | None:
        """Say which invariant is broken; looks at the whole log."""
        log = self.log
        if self.is_complete and not self.context.llsn_end <= self.commit + 1 <= log.end:
            return f"S1: ordered {self.context.llsn_end}, commit {self.commit}, end {log.end}"
        if log.head.term > self.term:
            return f"S2: the log ends in term {log.head.term}, the replica is in {self.term}"
        return log.flaw() or self.writes.flaw(log)
