"""What a replica wants done, and what it asks its host for.  No state.

The replica changes its state when it is stepped; ``Replica.take`` hands over what follows from all
steps since the last ``take``, so that one write and one message carry what piled up.  The host

  1. sends ``messages`` now, in any order; none of them promises what is not durable;
  2. lets ``write`` take effect for readers of its ``Store`` at once, and makes it durable: writes
     complete in the order of their sequence numbers, and ``Replica.written(sequence)`` says that
     all up to that one are durable.  A crash keeps a prefix of the writes, each whole or not.
     A batch is kept or cut as a whole, so the host trims only where one begins.  A write that
     ``can_wait`` may be made durable along with the next one, but not much later, and at once
     while ``Replica.is_awaited``;
  3. tells clients what became of their appends: ``stored``, ``propagated`` and ``ordered`` are
     ends (LLSNs not included) that never go back while the replica leads; with ``deposed`` all
     appends that wait are answered as unknown.  ``ordered`` does not wait for the context to be
     durable here: the entries are, and the metadata repository keeps the cut until a majority has
     it durable, so a crash loses no GLSN.  Log readers see an entry only when it is durable here,
     so who was told that it is ordered and reads at once has to wait for that;
  4. says what its store does not tell any more: ``compacted``, when dead entries may be gone, and
     ``joined``, when it is not known any more who appended which entries.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import Batch, EntryId, GlsnRun
from tidelog.core.replica.messages import Message
from tidelog.core.replica.producers import ProducerState
from tidelog.types import Llsn, Term


class HardState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a replica must never forget besides its log.

    One that was dropped is no member any more, but keeps its term.  One that is not complete knows
    by ``had`` the head of the log that it gave up to be filled up: all that it ever acknowledged
    lies at or below it.  None: it lost what it had.
    """

    term: Term
    is_complete: bool
    is_member: bool = True
    had: EntryId | None = None


class Filled(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a log that was filled up is like, as far as its entries do not tell.

    Of the entries up to ``snapshot_index`` dead ones are left out, maybe the last of all.
    """

    end: Llsn
    snapshot_index: Llsn
    terms: tuple[tuple[Term, Llsn], ...]
    producers: tuple[ProducerState, ...]


class Write(msgspec.Struct, frozen=True):
    """One change of what is on disk, to be carried out in the order of the fields.

    ``wipe``: the log and the context go, the replica begins anew.  ``drop``: all of it goes,
    before its last term is written.
    ``truncate_to``: entries from this LLSN on go.  ``batches`` may leave gaps only where a
    synchronisation says so (``sparse``).  ``runs`` are the GLSNs that belong to ``context``.
    ``state`` and ``filled`` come with the end of a synchronisation.  ``trim_to``: entries before
    this LLSN go.
    """

    sequence: int
    drop: bool = False
    wipe: bool = False
    hard_state: HardState | None = None
    truncate_to: Llsn | None = None
    batches: tuple[Batch, ...] = ()
    sparse: bool = False
    runs: tuple[GlsnRun, ...] = ()
    context: CommitContext | None = None
    state: bytes | None = None
    filled: Filled | None = None
    trim_to: Llsn | None = None

    @property
    def can_wait(self) -> bool:
        """Whether it brings nothing but GLSNs, which the metadata repository keeps as well."""
        return not (
            self.batches
            or self.hard_state is not None
            or self.truncate_to is not None
            or self.trim_to is not None
            or self.filled is not None
            or self.wipe
            or self.drop
        )


class Output(msgspec.Struct, frozen=True):
    """See the module's text for what to do with each."""

    messages: tuple[Message, ...] = ()
    write: Write | None = None
    stored: Llsn | None = None
    propagated: Llsn | None = None
    ordered: Llsn | None = None
    deposed: bool = False


class Store(Protocol):
    """What the host lets a replica read: memory, not disk.

    A method that would have to wait for the disk returns None, fetches, and has it when the
    replica asks again at a later tick.
    """

    def batches(
        self, begin: Llsn, bytes_max: int, end: Llsn | None = None
    ) -> tuple[Batch, ...] | None:
        """Return batches from ``begin`` on, at least one; entries that are dead are left out.

        Batches may have been joined since they were written: those that reach beyond ``begin`` or
        ``end`` are cut there.
        """
        ...

    def runs(self, begin: Llsn, end: Llsn) -> tuple[GlsnRun, ...] | None:
        """Return the GLSNs of all entries in ``[begin, end)``, be they dead or not."""
        ...

    def state(self) -> bytes:
        """Return the state of the latest snapshot."""
        ...
