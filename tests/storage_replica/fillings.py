"""Synchronisations, as the writes that they come to."""

from __future__ import annotations

from tests.storage_replica.twin import STREAM, Twin, values
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import EntryId, GlsnRun
from tidelog.core.replica.output import Filled, HardState
from tidelog.core.replica.producers import ProducerState
from tidelog.types import Llsn, StreamId, Term


def begin_filling(twin: Twin, *, stream: StreamId = STREAM, term: int = 3) -> None:
    """The old log goes."""
    incomplete = HardState(Term(term), is_complete=False, had=EntryId(Term(1), Llsn(1)))
    twin.write(stream, wipe=True, hard_state=incomplete)


def fill(twin: Twin, *, stream: StreamId = STREAM, first: int = 1, term: int = 3) -> None:
    """A synchronisation of nine entries, of which 2, 4 and 5 are dead, in two parts."""
    begin_filling(twin, stream=stream, term=term)
    end_filling(twin, stream=stream, first=first, term=term)


def end_filling(twin: Twin, *, stream: StreamId = STREAM, first: int = 1, term: int = 3) -> None:
    """The entries come, and then what tells that these are all."""
    twin.write(
        stream,
        batches=[values(1, first, "f1"), values(1, first + 2, "f3")],
        sparse=True,
        runs=[GlsnRun(Llsn(first), first + 9, 3)],
    )
    context = CommitContext(4, first + 19, first + 16, first + 7, 1)
    twin.write(
        stream,
        hard_state=HardState(Term(term), is_complete=True),
        batches=[values(2, first + 5, "f6", "f7", "f8"), values(3, first + 8, "f9")],
        sparse=True,
        runs=[GlsnRun(Llsn(first + 3), first + 12, 5)],
        context=context,
        state=b"",
        filled=Filled(
            Llsn(first + 9),
            Llsn(first + 4),
            ((Term(1), Llsn(first)), (Term(2), Llsn(first + 5)), (Term(3), Llsn(first + 8))),
            (ProducerState(4, 2, ((2, first + 5, 3),)),),
        ),
        trim_to=first if first > 1 else None,
    )
