"""Cuts: which are known, which are applied, and what is reported to be ordered next.

Cuts wait here until their entries are committed and durable.  A cut tells by itself that they are
committed, to who leads or follows in its term or a later one.  A replica that missed cuts is
behind: it asks another replica for what they gave, as one step from its own context to that one's.

Invariants:
  O1  pending cuts rise in version, and each begins where the one before ends; only the first may
      begin beyond the ordered end, and then the replica is behind
  O2  a cut is applied only up to what is committed and durable here
  O3  only durable, matched entries are reported, and none of an older reign above the commit index
  O4  a cut proves something only to a replica whose term is not below the cut's
  O5  what one message cannot tell of missing cuts is gathered; it is applied as one step, too
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tidelog.core.order.commands import Report, VersionedCommit
from tidelog.core.replica.commit_context import CommitContext, flaw_in_context, flaw_in_following
from tidelog.core.replica.entries import GlsnRun
from tidelog.core.replica.messages import CutsRequest, CutsResponse
from tidelog.core.replica.options import Ignored
from tidelog.core.replica.state import State
from tidelog.types import NO_LLSN, NO_TERM, NO_VERSION, Llsn, NodeId, Term, Version

RUN_BYTES: Final = 32
"""What one run takes in a message, at most."""
RUNS_MIN: Final = 1_024
"""So many are sent in any case."""


class PendingCut(msgspec.Struct, frozen=True):
    """The GLSNs from ``llsn_begin`` on, and the context behind them: one cut or several.

    ``term``: that in which it was decided; of several cuts it is not known.
    """

    llsn_begin: Llsn
    runs: tuple[GlsnRun, ...]
    context: CommitContext
    term: Term = NO_TERM


def one_cut(commit: VersionedCommit) -> PendingCut:
    part = commit.commit
    context = CommitContext(
        commit.version, part.high_watermark, part.glsn_begin, part.llsn_begin, part.length
    )
    run = GlsnRun(part.llsn_begin, part.glsn_begin, part.length)
    return PendingCut(part.llsn_begin, (run,) if part.length else (), context, part.term)


class Gathered(msgspec.Struct, frozen=True):
    """What others told of missing cuts so far: GLSNs from ``begin`` to ``end``.

    ``after``: the end of our context, behind which they come, maybe not at once: trimmed entries
    lie between.
    """

    after: Llsn
    begin: Llsn
    end: Llsn
    runs: tuple[GlsnRun, ...] = ()

    def joined(self, response: CutsResponse) -> Gathered:
        """Return it with what one more answer tells."""
        begin, runs = response.llsn_begin, response.runs
        end = runs[-1].llsn_end if runs else begin
        if begin > self.end:
            return Gathered(self.after, begin, end, runs)
        return Gathered(self.after, self.begin, end, self.runs + runs)


class Ordering:
    """The cuts of one stream, as one replica knows them."""

    __slots__ = ("_gathered", "_known", "_pending", "_state", "_wanted")

    def __init__(self, state: State) -> None:
        self._state = state
        self._pending: deque[PendingCut] = deque()
        self._known = Version(state.context.version)
        """All cuts up to it are applied or pending."""
        self._wanted = NO_VERSION
        """There are cuts up to it."""
        self._gathered = Gathered(NO_LLSN, NO_LLSN, NO_LLSN)

    # --- cuts ---

    def commit(self, commits: Sequence[VersionedCommit], version: Version) -> None:
        """Take in what cuts mean for this stream; those left out ordered nothing of it."""
        for commit in commits:
            self._add(commit)
        if not self._has_gap and self._known >= self._wanted:
            self._known = max(self._known, version)

    def _add(self, commit: VersionedCommit) -> None:
        state = self._state
        last = self._pending[-1].context if self._pending else state.context
        cut = one_cut(commit)
        if commit.version <= max(self._known, last.version):
            state.ignore(Ignored.KNOWN_CUT)
        elif flaw_in_context(cut.context) is not None or cut.llsn_begin < last.llsn_end:
            state.ignore(Ignored.CONTRADICTION)
        elif cut.llsn_begin > last.llsn_end or self._is_full():
            # What lies between is asked for as a whole, and covers all that waits.
            self._pending.clear()
            self._pending.append(cut)
        elif flaw_in_following(last, cut.context) is not None:
            state.ignore(Ignored.CONTRADICTION)
        else:
            self._pending.append(cut)
            if not self._has_gap:
                self._known = commit.version

    def _is_full(self) -> bool:
        return len(self._pending) >= self._state.options.pending_cuts_max

    @property
    def _has_gap(self) -> bool:
        """Whether cuts before the first pending one are missing (O1)."""
        return bool(self._pending) and self._pending[0].llsn_begin != self._state.context.llsn_end

    def place(self, llsn_end: Llsn, version: Version) -> None:
        """As of ``version``, the stream is ordered up to ``llsn_end``."""
        if llsn_end == self.ordered_end and not self._has_gap:
            self._known = max(self._known, version)
        elif version > self._known:
            self._wanted = max(self._wanted, version)

    def fall_behind(self, version: Version) -> None:
        """The cuts up to ``version`` cannot be had one by one."""
        if version > self._known:
            self._wanted = max(self._wanted, version)

    @property
    def version(self) -> Version:
        """All cuts up to this one are applied or pending."""
        return self._known

    @property
    def ordered_end(self) -> Llsn:
        """How far the stream is ordered by the cuts that are known, applied or not."""
        last = self._pending[-1].context if self._pending else self._state.context
        return last.llsn_end

    @property
    def is_behind(self) -> bool:
        """Whether cuts are missing."""
        return self._has_gap or self._known < self._wanted

    @property
    def proven(self) -> Llsn:
        """Up to here pending cuts prove that the log of our leader is committed; 0: nothing."""
        for cut in reversed(self._pending):
            if self._is_proof(cut):
                return Llsn(cut.context.llsn_end - 1)
        return NO_LLSN

    def _is_proof(self, cut: PendingCut) -> bool:
        """Whether the leader of our term surely has what a cut ordered (O4).

        A quorum had it in the cut's term, so that term's leader has it, and all later ones.  An
        earlier leader may have other entries there, and so may who follows it.
        """
        return NO_TERM < cut.term <= self._state.term

    def apply(self) -> None:
        """Apply the cuts whose entries are here for good (O2)."""
        state = self._state
        if not state.is_complete or state.is_filling:
            return
        while self._pending and not self._has_gap and self._may_apply(self._pending[0]):
            cut = self._pending.popleft()
            state.order(cut.runs, cut.context)
        if not self._pending:
            state.rise_to(self._known)

    def _may_apply(self, cut: PendingCut) -> bool:
        """Whether all entries of a cut are committed and durable here (T8)."""
        state = self._state
        return cut.context.llsn_end <= min(state.writes.durable_end, state.commit + 1)

    def replaced(self) -> None:
        """The context was replaced by a synchronisation: forget the cuts that it covers."""
        context = self._state.context
        while self._pending and self._pending[0].context.version <= context.version:
            self._pending.popleft()
        joins = self._pending and not self._has_gap
        last = self._pending[-1].context if joins else context
        self._known = Version(last.version)

    def forget(self) -> None:
        """The replica begins anew."""
        self._pending.clear()
        self._known = self._wanted = NO_VERSION
        self._gathered = Gathered(NO_LLSN, NO_LLSN, NO_LLSN)

    # --- several cuts at once ---

    @property
    def _so_far(self) -> Gathered:
        """What was gathered behind our context; nothing if that has moved since (O5)."""
        end = self._state.context.llsn_end
        return self._gathered if self._gathered.after == end else Gathered(end, end, end)

    def request(self, peer: NodeId, term: Term) -> None:
        """Ask another replica for the cuts that are missing."""
        state, version = self._state, Version(self._state.context.version)
        state.send(CutsRequest(*state.address(peer), term, self._so_far.end, version))

    def answer(self, request: CutsRequest) -> bool:
        """Tell another replica what was ordered since its context; say whether that can be told."""
        state, context = self._state, self._state.settled_context
        if context.version <= request.version or request.llsn_end > context.llsn_end:
            return True  # It knows more.
        begin = max(request.llsn_end, state.log.first)
        runs = state.store.runs(begin, context.llsn_end) if begin < context.llsn_end else ()
        if runs is None:
            return True  # The store fetches them; the request will come again.
        if not abut(runs, begin, context.llsn_end):
            return False
        told = self._that_fit(runs)
        address = state.address(request.source)
        state.send(CutsResponse(*address, request.term, request.llsn_end, begin, told, context))
        return True

    def _that_fit(self, runs: tuple[GlsnRun, ...]) -> tuple[GlsnRun, ...]:
        """As many as one message holds; the rest is asked for."""
        return runs[: max(RUNS_MIN, self._state.options.message_bytes_max // RUN_BYTES)]

    def catch_up(self, response: CutsResponse) -> None:
        """Take in what another replica knows of the cuts that are missing."""
        state, context, so_far = self._state, response.context, self._so_far
        if not self.is_behind:
            state.ignore(Ignored.NOT_WANTED)
            return
        if response.asked != so_far.end:
            state.ignore(Ignored.LATE)
            return
        told = so_far.joined(response)
        if response.llsn_begin < so_far.end or not self._leads_to(told, context):
            state.ignore(Ignored.CONTRADICTION)
        elif told.end < context.llsn_end:
            self._gathered = told
            self.request(response.source, response.term)
        else:
            if context.llsn_end > state.context.llsn_end:
                self._jump(PendingCut(state.context.llsn_end, told.runs, context))
            self._known = max(self._known, Version(context.version))

    def _leads_to(self, told: Gathered, theirs: CommitContext) -> bool:
        """Whether GLSNs follow our context, and lead to another one, or on the way to it."""
        ours, runs = self._state.context, told.runs
        if flaw_in_context(theirs) is not None or theirs.version <= ours.version:
            return False
        if theirs.high_watermark < ours.high_watermark or not told.begin <= told.end:
            return False
        if told.end > theirs.llsn_end or not abut(runs, told.begin, told.end):
            return False
        if told.end < theirs.llsn_end and not runs:
            return False
        glsns = [ours.glsn_end, *(run.glsn_begin + run.length for run in runs)]
        begins = [*(run.glsn_begin for run in runs), theirs.glsn_end]
        rising = all(begin >= end for begin, end in zip(begins, glsns, strict=True))
        is_whole = told.end == theirs.llsn_end
        return rising and (not runs or not is_whole or glsns[-1] == theirs.glsn_end)

    def _jump(self, jump: PendingCut) -> None:
        """Put one step before the cuts that are later; what still does not join is asked for."""
        later = [cut for cut in self._pending if cut.context.version > jump.context.version]
        self._pending.clear()
        self._pending.append(jump)
        if later and later[0].llsn_begin == jump.context.llsn_end:
            self._pending.extend(later)
            self._known = max(self._known, Version(later[-1].context.version))
        elif later:
            self._wanted = max(self._wanted, Version(later[-1].context.version))

    # --- reports ---

    def report(
        self, term: Term, reign: Term, matched: Llsn, committed_end: Llsn = NO_LLSN
    ) -> Report | None:
        """Tell how much of the log may be ordered next; None while the replica is silent (T7).

        ``committed_end``: what a leader knows to be durable on a write quorum.
        """
        state, context = self._state, self._state.settled_context
        if self._is_silent():
            return None
        begin = context.llsn_end
        end = max(begin, min(state.writes.durable_end, matched + 1))
        if self._may_be_replaced(Llsn(end - 1), reign):
            end = begin
        version = Version(context.version)
        return Report(state.node, state.stream, term, version, begin, end - begin, committed_end)

    def _is_silent(self) -> bool:
        return not self._state.is_complete or self.is_behind

    def _may_be_replaced(self, llsn: Llsn, reign: Term) -> bool:
        """Whether an entry is of an older reign and not known to be committed (O3)."""
        term = self._state.log.term_at(llsn)
        return llsn > self._state.commit and (term is None or term < reign)

    def flaw(self) -> str | None:
        """Say which invariant is broken."""
        for before, after in pairwise(self._pending):
            if after.llsn_begin != before.context.llsn_end:
                return f"O1: {after} does not follow {before}"
            if after.context.version <= before.context.version:
                return f"O1: {after} does not follow {before}"
        if len(self._pending) > self._state.options.pending_cuts_max:
            return f"O1: {len(self._pending)} cuts are pending"
        return None


def abut(runs: Sequence[GlsnRun], begin: Llsn, end: Llsn) -> bool:
    """Whether runs cover all entries in ``[begin, end)``, in order."""
    place = begin
    for run in runs:
        if run.llsn_begin != place or run.length < 1 or run.glsn_begin < 1:
            return False
        place = run.llsn_end
    return place == end
