"""Entry ids and batches, as the replicas of a stream see them.  No state."""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.types import Llsn, ProducerId, Term


class EntryId(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """The place of an entry in the log of one term's leader; compared by term, then by LLSN."""

    term: Term
    llsn: Llsn


NO_ENTRY: Final = EntryId(Term(0), Llsn(0))
"""The head of an empty log, and what lies before the first entry."""

NO_PRODUCER: Final = ProducerId(0)


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entries that were appended together, written by the leader of ``term``.

    ``data`` is opaque here.  A control batch has one entry, which readers never see.
    """

    term: Term
    llsn_begin: Llsn
    count: int
    data: bytes
    producer: ProducerId = NO_PRODUCER
    sequence: int = 0
    is_control: bool = False

    @property
    def llsn_end(self) -> Llsn:
        """The first LLSN not included."""
        return Llsn(self.llsn_begin + self.count)

    @property
    def head(self) -> EntryId:
        """The id of the last entry."""
        return EntryId(self.term, Llsn(self.llsn_end - 1))


class GlsnRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``length`` entries from ``llsn_begin`` on have the GLSNs from ``glsn_begin`` on."""

    llsn_begin: Llsn
    glsn_begin: int
    length: int

    @property
    def llsn_end(self) -> Llsn:
        """The first LLSN not included."""
        return Llsn(self.llsn_begin + self.length)
