"""What the store of a stream knows more if it is a replica of a storage node.

A log that begins anew does so as another generation, in another directory and another store: what
is still being done to the files of the old one cannot touch the new one.

Invariants:
  R1  State as of the first frame of a WAL file is kept until that file is not needed any more:
      recovery starts from it and repeats what happened, step by step
  R2  terms and first LLSNs of the runs rise
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from tidelog.core.compaction.horizon import NOTHING_DROPPED, DeleteHorizon
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.output import HardState
from tidelog.formats.manifest import ReplicaManifest, StreamManifest
from tidelog.types import Llsn, Term


@dataclass(slots=True)
class ReplicaPart:
    """Beside the log: term, terms of the entries, and what a synchronisation left out."""

    generation: int = 0
    hard_state: HardState | None = None
    terms: tuple[tuple[Term, Llsn], ...] = ()
    filled_index: int = 0
    """Up to here a synchronisation left dead entries out."""
    filled_deletes: DeleteHorizon = NOTHING_DROPPED
    """What came with it, until a snapshot says so."""
    carried_end: int = 0
    """Batches up to here come again: they were counted before."""
    damage: str = ""
    """Why the files cannot be trusted; empty if they can."""
    is_lost: bool = False
    """Whether not even the head of the log is known, at a start."""
    bases: tuple[tuple[int, StreamManifest], ...] = field(default_factory=tuple)
    """The stream as of the first frame of each WAL file that is needed (R1)."""

    @classmethod
    def of(cls, manifest: ReplicaManifest) -> ReplicaPart:
        """As a manifest describes it."""
        return cls(manifest.generation, manifest.hard_state, manifest.terms, manifest.filled_index)

    def manifest(self) -> ReplicaManifest:
        """As the manifest is to describe it."""
        return ReplicaManifest(self.hard_state, self.terms, self.filled_index, self.generation)

    @property
    def is_complete(self) -> bool:
        """Whether it has all that it ever acknowledged."""
        return self.hard_state is not None and self.hard_state.is_complete

    def head_before(self, end: int) -> EntryId | None:
        """The last entry of a log that ends there; None if that is not known."""
        if self.is_lost or not self.terms:
            return None
        return EntryId(self.terms[-1][0], Llsn(end - 1))

    # --- bases ---

    def note_base(self, wal_file: int, now: StreamManifest) -> None:
        """Remember the stream as it is before the first frame of a WAL file (R1)."""
        if not self.bases or self.bases[-1][0] < wal_file:
            self.bases = (*self.bases, (wal_file, now))

    def base_of(self, wal_file: int, now: StreamManifest) -> StreamManifest:
        """The stream as of the beginning of a WAL file; as it is now if nothing came since."""
        return next((base for number, base in self.bases if number >= wal_file), now)

    def forget_bases(self, wal_file: int) -> None:
        """WAL files below this one are not needed any more."""
        self.bases = tuple([base for base in self.bases if base[0] >= wal_file])

    # --- terms ---

    def note_term(self, term: Term, llsn_begin: Llsn) -> None:
        """A batch of this term begins here."""
        if not self.terms or term > self.terms[-1][0]:
            self.terms = (*self.terms, (term, llsn_begin))

    def truncate_terms(self, llsn_end: int) -> None:
        """Entries from here on are gone."""
        if self.terms and self.terms[-1][1] >= llsn_end:
            self.terms = tuple([run for run in self.terms if run[1] < llsn_end])

    def trim_terms(self, first: int) -> None:
        """Entries before ``first`` are gone; the term of the last of them stays known."""
        gone = bisect_left(self.terms, first, key=lambda run: run[1]) - 1
        if gone > 0:
            self.terms = self.terms[gone:]
