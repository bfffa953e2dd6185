"""What a replica has only while it leads: its ensemble, follow cursors and the commit index.

Invariants:
  E1  the leader is of the ensemble, and there are cursors for other members only
  E2  an entry is committed by counting only if it is of the reign; with it all before it are
  E3  the leader counts its own copy of an entry only once that is durable
  E4  nothing is said in a term before the term is durable
"""

from __future__ import annotations

from tidelog.core.replica.backlog import Backlog
from tidelog.core.replica.cursor import UNTOLD, Cursor
from tidelog.core.replica.entries import NO_PRODUCER, Batch, EntryId
from tidelog.core.replica.messages import (
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    BecomeLeaderRequest,
    FollowerHead,
    Reason,
    Refusal,
    SyncEntriesResponse,
    SyncInitResponse,
    TruncateRequest,
    TruncateResponse,
)
from tidelog.core.replica.options import Appended, CursorKind, Ignored
from tidelog.core.replica.soundness import all_abut
from tidelog.core.replica.state import State
from tidelog.core.replica.sync_source import SyncSources
from tidelog.errors import Busy
from tidelog.invariants import check
from tidelog.types import NO_NODE, Llsn, NodeId, ProducerId, Term


class Leading:
    """One replica's reign."""

    __slots__ = (
        "_backlog",
        "_elapsed_ticks",
        "_leaving",
        "_state",
        "cursors",
        "due",
        "ensemble",
        "quorum",
        "reign",
        "sources",
        "term",
    )

    def __init__(self, state: State, request: BecomeLeaderRequest) -> None:
        check(state.node in request.ensemble, "E1: the leader is not of the ensemble")
        self._state = state
        self.reign = request.term
        self.term = request.term
        """In which it speaks; the replica's own may be higher until that is durable (E4)."""
        self.ensemble = request.ensemble
        self.quorum = request.quorum
        self.cursors: dict[NodeId, Cursor] = {}
        self.sources = SyncSources(state)
        self._leaving = NO_NODE
        self._backlog = Backlog()
        self._elapsed_ticks = 0
        self.due = True
        if self._has_unordered():
            self._append(b"", 1, is_control=True)
        for follower in request.followers:
            self.add(follower)
        self.advance_commit()

    # --- appends ---

    def append(self, data: bytes, count: int, producer: ProducerId, sequence: int) -> Appended:
        """Append a batch, or say where it went before.

        Raises ProducerConflict when that is not known any more, Busy when too much waits.
        """
        if producer != NO_PRODUCER:
            known = self._state.producers.lookup(producer, sequence)
            if known is not None:
                return Appended(known.llsn_begin, known.count, True)
        self._refuse_pile()
        batch = self._append(data, count, producer, sequence)
        return Appended(batch.llsn_begin, count, False)

    def _refuse_pile(self) -> None:
        """Let clients wait rather than the disk fill with what no quorum takes."""
        if self._backlog.size >= self._state.options.uncommitted_bytes_max:
            raise Busy(f"{self._backlog.size} bytes wait for a quorum: try again later")

    def _append(
        self,
        data: bytes,
        count: int,
        producer: ProducerId = NO_PRODUCER,
        sequence: int = 0,
        *,
        is_control: bool = False,
    ) -> Batch:
        end = self._state.log.end
        batch = Batch(self.term, end, count, data, producer, sequence, is_control)
        self._state.append(batch)
        self._backlog.add(batch)
        self.due = True
        return batch

    def _has_unordered(self) -> bool:
        """Whether older reigns left entries that only an entry of this one can commit (T6)."""
        return self._state.log.end > self._state.context.llsn_end

    # --- followers ---

    def add(self, follower: FollowerHead) -> None:
        """Begin to serve a fenced member of the ensemble; one that is served goes on."""
        if follower.node not in self.cursors:
            cursor = self.cursors[follower.node] = Cursor()
            if follower.node == self._leaving:
                cursor.leave()
            self._begin(follower.node, follower.head, is_complete=follower.is_complete)
        elif not follower.is_complete:
            self.serve_anew(follower.node)

    def let_go(self, node: NodeId) -> None:
        """Serve a member no longer, and do not count it, be it known by now or later."""
        self._leaving = node
        cursor = self.cursors.get(node)
        if cursor is not None:
            cursor.leave()

    def keep(self, node: NodeId) -> None:
        """Serve a member again that was to be let go."""
        self._leaving = NO_NODE
        self.due = True
        cursor = self.cursors.get(node)
        if cursor is not None:
            cursor.stay()
            self.advance_commit()

    def change_ensemble(self, ensemble: tuple[NodeId, ...]) -> None:
        """Count these members from now on; who is not of them is served no longer."""
        self._leaving = NO_NODE
        self.due = True
        self.ensemble = ensemble
        for node in [node for node in self.cursors if node not in ensemble]:
            del self.cursors[node]
            self.sources.stop(node)
        self.advance_commit()

    def _begin(self, node: NodeId, head: EntryId, *, is_complete: bool) -> None:
        """Serve a follower from a head that it told: attach, truncate or synchronise."""
        log, cursor = self._state.log, self.cursors[node]
        self.due = True
        self.sources.stop(node)
        if not is_complete:
            self.synchronise(node)
        elif self._is_own_entry(head):
            if log.can_serve(Llsn(head.llsn + 1)):
                cursor.attach(head.llsn)
                self.advance_commit()
            else:
                self.synchronise(node)
        else:
            cut = log.highest_at_or_below(head)
            if cut is not None and log.can_serve(Llsn(cut.llsn + 1)):
                cursor.truncate(head, cut)
            else:
                self.synchronise(node)

    def _is_own_entry(self, head: EntryId) -> bool:
        """Whether a follower's log is a prefix of ours, by its head (T4, T5)."""
        return self._state.log.contains(head)

    # --- synchronisations ---

    def synchronise(self, node: NodeId) -> None:
        """Fill a follower up; it does not count meanwhile."""
        self.due = True
        self.cursors[node].synchronise()
        self.sources.begin(node)

    def fill(self, node: NodeId) -> None:
        """A replica asks to be filled up."""
        self.due = True
        self.sources.asked(node)

    def begun(self, response: SyncInitResponse) -> None:
        """A replica said what it lacks."""
        self.due = True
        self.sources.begun(response)

    def received(self, response: SyncEntriesResponse) -> None:
        """A replica has a part; after the last one a follower is attached."""
        self.due = True
        head = self.sources.received(response)
        if head is not None and response.source in self.cursors:
            self._begin(response.source, head, is_complete=True)

    def renew(self) -> None:
        """The log was trimmed or compacted."""
        self.due = True
        self.sources.renew()

    def serve_anew(self, node: NodeId) -> None:
        """A follower lacks what only a synchronisation can bring."""
        if node in self.cursors and node not in self.sources:
            self.synchronise(node)

    @property
    def attached(self) -> tuple[NodeId, ...]:
        """The followers whose cursors count."""
        return tuple([node for node, cursor in self.cursors.items() if cursor.counts])

    # --- answers of followers ---

    def truncated(self, response: TruncateResponse) -> None:
        """A follower cut its log: look its head up again (T5)."""
        cursor = self.cursors.get(response.source)
        if cursor is None or cursor.kind is not CursorKind.TRUNCATING:
            self._state.ignore(Ignored.LATE)
        else:
            self._begin(response.source, response.head, is_complete=True)

    def acknowledge(self, response: AddEntriesResponse) -> None:
        """Count what a follower has."""
        cursor = self.cursors.get(response.source)
        if cursor is None:
            self._state.ignore(Ignored.UNKNOWN_SENDER)
        elif not cursor.counts:
            self._state.ignore(Ignored.LATE)
        elif response.confirmed >= self._state.log.end:
            self._state.ignore(Ignored.NONSENSE)
        else:
            self.due = True
            cursor.heard_in = max(cursor.heard_in, response.term)
            if cursor.acknowledge(response.confirmed):
                self.advance_commit()

    def refused(self, refusal: AddEntriesRefusal) -> None:
        """A follower's log does not go on where the last message did."""
        cursor = self.cursors.get(refusal.source)
        if cursor is None:
            self._state.ignore(Ignored.UNKNOWN_SENDER)
        elif not refusal.is_complete:
            if refusal.source not in self.sources:
                self.synchronise(refusal.source)
        elif not self._is_news(cursor, refusal):
            self._state.ignore(Ignored.LATE)
        else:
            self._begin(refusal.source, refusal.head, is_complete=True)

    def _is_news(self, cursor: Cursor, refusal: AddEntriesRefusal) -> bool:
        """Whether a refusal answers the last message; a complete replica has what it confirmed."""
        return (
            cursor.counts
            and refusal.previous == cursor.previous
            and refusal.head.llsn >= cursor.confirmed
        )

    def lost(self, refusal: Refusal) -> None:
        """A follower was wiped: it is to be filled up once it is fenced again."""
        cursor = self.cursors.get(refusal.source)
        if refusal.reason not in (Reason.NOT_MEMBER, Reason.NOT_FENCED) or cursor is None:
            self._state.ignore(Ignored.LATE)
        elif refusal.source not in self.sources:
            self.synchronise(refusal.source)

    # --- commitment ---

    def advance_commit(self) -> None:
        """Commit what a write quorum of the ensemble has durable."""
        llsn = self.quorum_place(self.ensemble)
        if llsn > self._state.commit and self._may_commit(llsn):
            self.commit_to(llsn)

    def commit_to(self, llsn: Llsn) -> None:
        """All up to an entry stays: answers of followers prove it, or a cut (T8)."""
        if self._state.commit_to(llsn):
            self._backlog.release(llsn)

    def quorum_place(self, ensemble: tuple[NodeId, ...]) -> Llsn:
        """Return up to where a write quorum of an ensemble surely has the log."""
        places = sorted([self._confirmed_by(node) for node in ensemble], reverse=True)
        return places[self.quorum.size(len(ensemble)) - 1]

    def is_followed_in(self, term: Term, ensemble: tuple[NodeId, ...]) -> bool:
        """Whether a write quorum of an ensemble was heard of in this term."""
        heard = [one for one, cursor in self.cursors.items() if cursor.heard_in >= term]
        alive = [one for one in ensemble if one == self._state.node or one in heard]
        return len(alive) >= self.quorum.size(len(ensemble))

    def _confirmed_by(self, node: NodeId) -> Llsn:
        """How much of the log a member surely has; of our own only what is durable (E3)."""
        if node == self._state.node:
            return Llsn(self._state.writes.durable_end - 1)
        cursor = self.cursors.get(node)
        return cursor.confirmed if cursor is not None and cursor.counts else Llsn(0)

    def _may_commit(self, llsn: Llsn) -> bool:
        """Whether a quorum's copies of an entry prove that it stays (E2)."""
        term = self._state.log.term_at(llsn)
        return term is not None and term >= self.reign

    # --- terms ---

    def is_of_reign(self, term: Term) -> bool:
        """Whether an answer is to something that this leader said (T2)."""
        return self.reign <= term <= self.term

    def settle(self) -> None:
        """Do what had to wait until something was durable."""
        if self.term < self._state.term and self._state.writes.hard_state_durable:
            self.term = self._state.term
            self._send_heartbeats()
        self.advance_commit()

    # --- time and messages ---

    def tick(self) -> None:
        """Let one unit of time pass."""
        self.due = True
        self.sources.tick()
        for cursor in self.cursors.values():
            cursor.tick(self._state.options)
        self._elapsed_ticks += 1
        if self._elapsed_ticks >= self._state.options.heartbeat_ticks:
            self._send_heartbeats()
        for node, cursor in self.cursors.items():
            if cursor.lacks_word_of(self._state.commit):
                self._send_commit(node, cursor)

    def _send_heartbeats(self) -> None:
        """Tell each follower the commit index, be it news or not."""
        self._elapsed_ticks = 0
        for node, cursor in self.cursors.items():
            self._send_commit(node, cursor)

    def _send_commit(self, node: NodeId, cursor: Cursor) -> None:
        """Tell a follower the commit index, right behind what it surely has."""
        previous = self._state.log.id_at(cursor.confirmed)
        if cursor.counts and previous is not None:
            self._send(node, cursor, previous, ())

    def flush(self) -> None:
        """Send what followers lack, as far as their windows allow."""
        for node, cursor in self.cursors.items():
            if cursor.counts:
                self._push(node, cursor)
            elif cursor.kind is CursorKind.TRUNCATING and not cursor.is_asked:
                cursor.is_asked = True
                self._state.send(
                    TruncateRequest(
                        *self._state.address(node), self.term, self.reign, cursor.told, cursor.cut
                    )
                )

        self.sources.flush(self.term, self.reign)
        self.due = False

    def _push(self, node: NodeId, cursor: Cursor) -> None:
        state, taken = self._state, self._backlog.taken
        while cursor.pushed + 1 < state.log.end and cursor.has_room(taken, state.options):
            previous = state.log.id_at(cursor.pushed)
            if previous is None or not state.log.can_serve(Llsn(cursor.pushed + 1)):
                self.synchronise(node)
                return
            batches = state.batches(Llsn(cursor.pushed + 1))
            if not batches:
                return  # The store fetches them.
            if not all_abut(batches, cursor.pushed + 1):
                self.synchronise(node)
                return
            if cursor.gathers(batches, taken, state.options):
                break
            self._send(node, cursor, previous, batches)
        if cursor.commit_told == UNTOLD:
            self._send_commit(node, cursor)  # It follows from now on, and may report.

    def _send(
        self, node: NodeId, cursor: Cursor, previous: EntryId, batches: tuple[Batch, ...]
    ) -> None:
        commit = self._state.commit
        cursor.sent(previous, batches, commit)
        self._state.send(
            AddEntriesRequest(
                *self._state.address(node), self.term, self.reign, previous, batches, commit
            )
        )

    def flaw(self) -> str | None:
        """Say which invariant is broken."""
        if self._state.node not in self.ensemble or not self.cursors.keys() <= set(self.ensemble):
            return f"E1: ensemble {self.ensemble}, cursors {list(self.cursors)}"
        if not self.reign <= self.term <= self._state.term:
            return f"E4: reign {self.reign}, term {self.term}, known {self._state.term}"
        flaws = (cursor.flaw(self._state.log.end) for cursor in self.cursors.values())
        return next((flaw for flaw in flaws if flaw is not None), None)
