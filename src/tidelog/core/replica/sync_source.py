"""The leader's side of synchronisations: replicas that cannot be served from the log are filled up.

Invariants:
  Y1  a synchronisation brings the log as it was when it began, up to one head, with one context
  Y2  one part is on its way at a time; an answer counts only with the number of its synchronisation
  Y3  it begins anew when something that it has not sent yet is trimmed or compacted
  Y4  what is ordered comes with its GLSNs: where they are gone, it waits to hear of the compaction
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.core.replica.entries import Batch, EntryId, GlsnRun
from tidelog.core.replica.messages import (
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
)
from tidelog.core.replica.options import Ignored
from tidelog.core.replica.output import Filled
from tidelog.core.replica.state import State
from tidelog.core.replica.sync_state import SyncState, encode_sync_state
from tidelog.types import Llsn, NodeId, Term

RUNS_MAX: Final = 1 << 17
"""Of GLSN runs in one part; a log of which little is live has far more of them than entries."""


class SyncSource:
    """One synchronisation of one replica."""

    __slots__ = (
        "_begin",
        "_context",
        "_data",
        "_first",
        "_is_sent",
        "_ordered_end",
        "_snapshot_index",
        "_state",
        "_terms",
        "_waited_ticks",
        "head",
        "number",
    )

    def __init__(self, state: State, number: int) -> None:
        log = state.log
        self._state = state
        self.number = number
        self.head = log.head
        self._first = log.first
        self._context = state.settled_context
        self._snapshot_index = log.snapshot_index
        self._terms = log.terms
        self._data = encode_sync_state(
            SyncState(
                Filled(log.end, log.snapshot_index, self._terms, state.producers.freeze()),
                state.store.state(),
            )
        )
        self._begin: Llsn | None = None
        """What the replica lacks begins here; None until it said so."""
        self._ordered_end = log.first
        """GLSNs before it are known there."""
        self._is_sent = False
        self._waited_ticks = 0

    @property
    def is_begun(self) -> bool:
        """Whether the replica has answered."""
        return self._begin is not None

    @property
    def is_stale(self) -> bool:
        """Whether something is gone that was not sent yet, be it only a GLSN (Y3)."""
        log, begin = self._state.log, min(self._begin or self._first, self._ordered_end)
        compacted = log.snapshot_index > self._snapshot_index and begin <= log.snapshot_index
        return compacted or begin < log.first

    def tick(self) -> None:
        """Let time pass: what was not answered for long is sent again."""
        self._waited_ticks += 1
        if self._waited_ticks >= self._state.options.resend_ticks:
            self._expect_answer(is_sent=False)

    def _expect_answer(self, *, is_sent: bool) -> None:
        self._is_sent, self._waited_ticks = is_sent, 0

    # --- what is sent ---

    def flush(self, node: NodeId, term: Term, reign: Term) -> None:
        """Send what is due: the beginning, or the next part."""
        if self._is_sent:
            return
        state = self._state
        message: SyncInitRequest | SyncEntriesRequest | None
        if self._begin is None:
            message = SyncInitRequest(
                *state.address(node),
                term,
                reign,
                self.number,
                self._first,
                self.head,
                self._context,
                self._snapshot_index,
                self._terms,
            )
        else:
            message = self._part(node, term, reign, self._begin)
        if message is not None:
            state.send(message)
            self._expect_answer(is_sent=True)

    def _part(
        self, node: NodeId, term: Term, reign: Term, begin: Llsn
    ) -> SyncEntriesRequest | None:
        batches = self._batches(begin)
        if batches is None:
            return None  # The store fetches them.
        end = batches[-1].llsn_end if batches else self._end
        runs = self._runs(self._ordered_end, min(end, self._context.llsn_end))
        if runs is None or not are_covered(self._ordered_in(begin, batches), runs):
            return None
        if batches and len(runs) > RUNS_MAX:
            batches, runs = shortened(batches, runs)
            end = batches[-1].llsn_end
        is_last = end == self._end
        return SyncEntriesRequest(
            *self._state.address(node),
            term,
            reign,
            self.number,
            begin,
            end,
            batches,
            runs,
            self._context if is_last else None,
            self._data if is_last else b"",
        )

    @property
    def _end(self) -> Llsn:
        return Llsn(self.head.llsn + 1)

    def _batches(self, begin: Llsn) -> tuple[Batch, ...] | None:
        """Batches from ``begin`` on, up to the head that the synchronisation is for (Y1)."""
        if begin == self._end:
            return ()
        return self._state.live_batches(begin, self._end)

    def _runs(self, begin: Llsn, end: Llsn) -> tuple[GlsnRun, ...] | None:
        return self._state.store.runs(begin, end) if begin < end else ()

    def _ordered_in(self, begin: Llsn, batches: tuple[Batch, ...]) -> Iterable[tuple[Llsn, Llsn]]:
        """Where ordered entries are, of those that the replica has not ordered or is to get."""
        end = self._context.llsn_end
        yield self._ordered_end, min(begin, end)
        yield from ((batch.llsn_begin, min(batch.llsn_end, end)) for batch in batches)

    # --- what is answered ---

    def begun(self, response: SyncInitResponse) -> None:
        """The replica said what it lacks."""
        if self._begin is not None or not self._first <= response.begin <= self._end:
            self._state.ignore(Ignored.LATE)
        else:
            self._begin = response.begin
            self._ordered_end = max(self._first, response.ordered_end)
            self._expect_answer(is_sent=False)

    def received(self, response: SyncEntriesResponse) -> bool:
        """The replica has a part, durably; say whether that was the last one."""
        if self._begin is None or not self._begin <= response.end <= self._end:
            self._state.ignore(Ignored.LATE)
            return False
        if response.end > self._begin:
            self._begin = response.end
            self._ordered_end = max(self._ordered_end, response.end)
            self._expect_answer(is_sent=False)
        return response.end == self._end


class SyncSources:
    """All synchronisations that a leader has under way."""

    __slots__ = ("_number", "_sources", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._number = 0
        self._sources: dict[NodeId, SyncSource] = {}

    def __contains__(self, node: NodeId) -> bool:
        return node in self._sources

    def __len__(self) -> int:
        return len(self._sources)

    def begin(self, node: NodeId) -> None:
        """Fill a replica up, from the beginning of what it lacks."""
        self._number += 1
        self._sources[node] = SyncSource(self._state, self._number)

    def stop(self, node: NodeId) -> None:
        """Leave a replica as it is."""
        self._sources.pop(node, None)

    def asked(self, node: NodeId) -> None:
        """A replica has no synchronisation: begin, unless the first message is still on its way."""
        source = self._sources.get(node)
        if source is None or source.is_begun:
            self.begin(node)

    def renew(self) -> None:
        """Begin those anew that can no longer be completed (Y3)."""
        stale = [node for node, source in self._sources.items() if source.is_stale]
        for node in stale:
            self.begin(node)

    def tick(self) -> None:
        """Let one unit of time pass."""
        for source in self._sources.values():
            source.tick()

    def flush(self, term: Term, reign: Term) -> None:
        """Send what is due."""
        for node, source in self._sources.items():
            source.flush(node, term, reign)

    def begun(self, response: SyncInitResponse) -> None:
        """A replica said what it lacks."""
        source = self._answered(response)
        if source is not None:
            source.begun(response)

    def received(self, response: SyncEntriesResponse) -> EntryId | None:
        """A replica has a part; return the head that it was filled up to if that was the last."""
        source = self._answered(response)
        if source is None or not source.received(response):
            return None
        self.stop(response.source)
        return source.head

    def _answered(self, response: SyncInitResponse | SyncEntriesResponse) -> SyncSource | None:
        source = self._sources.get(response.source)
        if source is not None and source.number == response.number:
            return source
        self._state.ignore(Ignored.LATE)
        return None


def shortened(
    batches: tuple[Batch, ...], runs: tuple[GlsnRun, ...]
) -> tuple[tuple[Batch, ...], tuple[GlsnRun, ...]]:
    """Return the first batches of a part, as many as so many runs order, but one; and their runs.

    A part ends where a batch does; so all that order the first one, and the dead before it, go.
    """
    limit = runs[RUNS_MAX - 1].llsn_end
    kept = tuple([batch for batch in batches if batch.llsn_end <= limit]) or batches[:1]
    end = kept[-1].llsn_end
    return kept, tuple([_before(run, end) for run in runs if run.llsn_begin < end])


def are_covered(ranges: Iterable[tuple[Llsn, Llsn]], runs: Sequence[GlsnRun]) -> bool:
    """Whether runs have all that lies in some ranges; both ascend."""
    left = iter(runs)
    run = next(left, None)
    for begin, end in ranges:
        place = begin
        while place < end:
            while run is not None and run.llsn_end <= place:
                run = next(left, None)
            if run is None or run.llsn_begin > place:
                return False
            place = run.llsn_end
    return True


def _before(run: GlsnRun, end: Llsn) -> GlsnRun:
    return GlsnRun(run.llsn_begin, run.glsn_begin, min(run.length, end - run.llsn_begin))
