"""A part of a batch together with its places in the total order.  No state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.formats.batch import Batch, Column
from tidelog.formats.glsn_runs import GlsnRuns


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Entries ``[begin, end)`` of a batch, with the runs that know their GLSNs."""

    batch: Batch
    begin: int
    end: int
    runs: GlsnRuns

    def llsns(self) -> Sequence[int]:
        return self.batch.llsns()[self.begin : self.end]

    def glsns(self) -> Sequence[int]:
        """The GLSN of each entry."""
        llsns = self.llsns()
        if not llsns:
            return ()
        slices = self.runs.slices(llsns[0], llsns[-1] + 1)
        if self.batch.dense:
            if len(slices) == 1:
                _, glsn, length = slices[0]
                return range(glsn, glsn + length)
            return [g for _, glsn, length in slices for g in range(glsn, glsn + length)]
        if len(slices) == 1:
            distance = slices[0][1] - slices[0][0]
            return [llsn + distance for llsn in llsns]
        return [self.runs.glsn_of(llsn) for llsn in llsns]

    def first_value(self) -> memoryview:
        """The value of the first entry, where it lies."""
        offsets = self.batch.column(Column.VALUE_OFFSETS)
        items = self.batch.column(Column.VALUE_BYTES)
        if offsets is None or items is None:
            return memoryview(b"")
        return items[offsets[self.begin] : offsets[self.begin + 1]]
