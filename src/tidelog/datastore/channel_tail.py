"""The entries of one log channel behind the last recorded epoch.

Invariants:
  Y1  Batches follow one another without gap, and their epochs never fall.
  Y2  Written batches come first; only a prefix by epochs is ever recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, takewhile

import msgspec

from tidelog.core.session.output import ChannelBatch
from tidelog.errors import WrongState
from tidelog.formats.batch import decode_batch
from tidelog.formats.channel_batch import STAMP_STORAGE, version_min
from tidelog.invariants import check
from tidelog.limits import WRITE_VERSION_END
from tidelog.storage.memtable import StoredBatch


class WaitingBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch whose epoch is not recorded yet."""

    epoch: int
    stored: StoredBatch
    count: int
    version_min: int
    """The smallest write version that a GC boundary can be too high for."""
    blobs: tuple[int, ...]

    @classmethod
    def of(cls, epoch: int, batch: ChannelBatch) -> WaitingBatch:
        """A copy of its own: the bytes that came may lie in a buffer of others."""
        data = batch.data if isinstance(batch.data, bytes) else bytes(batch.data)
        view = decode_batch(data, verify=False)
        stored = StoredBatch(batch.llsn_begin, batch.llsn_end, data)
        version = version_min(view)
        if view.count == 1 and view.storage_id_at(0) == STAMP_STORAGE:
            version = WRITE_VERSION_END - 1  # Stamps are never deleted, so no delete is missed.
        return cls(epoch, stored, view.count, version, batch.blobs)


@dataclass(slots=True)
class ChannelTail:
    channel: int
    end_llsn: int
    """Behind all that was appended."""
    written_end: int
    """Behind all that is in the WAL."""
    batches: list[WaitingBatch] = field(default_factory=list)
    _written: int = 0
    """How many of the batches are in the WAL."""

    @property
    def epoch(self) -> int:
        """Of the last batch; 0 if none waits."""
        return self.batches[-1].epoch if self.batches else 0

    @property
    def is_written(self) -> bool:
        """Whether all of it is in the WAL, durably."""
        return self.written_end == self.end_llsn

    def check_next(self, epoch: int, batches: list[WaitingBatch]) -> None:
        """WrongState unless these continue the channel (Y1)."""
        if epoch < self.epoch:
            raise WrongState(
                f"log channel {self.channel}: epoch {epoch} after {self.epoch}: epochs never fall"
            )
        end = self.end_llsn
        for batch in batches:
            if batch.stored.first_llsn != end:
                raise WrongState(
                    f"log channel {self.channel}: a batch at LLSN {batch.stored.first_llsn} was "
                    f"appended, but {end} comes next"
                )
            end = batch.stored.end_llsn

    def add(self, batches: list[WaitingBatch]) -> None:
        self.batches += batches
        if batches:
            self.end_llsn = batches[-1].stored.end_llsn

    def unwritten(self) -> list[WaitingBatch]:
        """What is in memory only."""
        return self.batches[self._written :]

    def note_written(self, llsn_end: int) -> None:
        """The next batch, which ends there, is in the WAL."""
        self._written += 1
        self.written_end = llsn_end
        check(
            self.batches[self._written - 1].stored.end_llsn == llsn_end,
            "Y2: batches are written in their order",
        )

    def end_of(self, epoch: int, limit: int) -> int:
        """Behind the last entry below ``limit`` of epochs up to this one (Y2); 0 if none waits."""
        end = 0
        for batch in self.batches:
            if batch.epoch > epoch or batch.stored.end_llsn > limit:
                break
            end = batch.stored.end_llsn
        return end

    def forget_below(self, llsn_end: int) -> int:
        """Entries below are recorded; returns how many bytes wait no longer."""
        done = list(takewhile(lambda batch: batch.stored.end_llsn <= llsn_end, self.batches))
        check(len(done) <= self._written, "Y2: only written batches are recorded")
        del self.batches[: len(done)]
        self._written -= len(done)
        return sum(batch.stored.size for batch in done)

    def check_cut(self, llsn_end: int) -> None:
        """WrongState unless the channel can end there."""
        for begin in chain((self.end_llsn,), self._begins_from_the_end()):
            if begin <= llsn_end:
                break
        if begin != llsn_end:
            raise WrongState(
                f"log channel {self.channel} cannot be cut back to LLSN {llsn_end}: no unrecorded "
                "batch begins there"
            )

    def cut(self, llsn_end: int) -> list[WaitingBatch]:
        """Forget the entries from there on; returns what went."""
        count = sum(1 for _ in takewhile(lambda b: b >= llsn_end, self._begins_from_the_end()))
        kept = len(self.batches) - count
        gone = self.batches[kept:]
        del self.batches[kept:]
        self._written = min(self._written, kept)
        self.end_llsn = llsn_end
        self.written_end = min(self.written_end, llsn_end)
        return gone

    def _begins_from_the_end(self) -> Iterator[int]:
        return (batch.stored.first_llsn for batch in reversed(self.batches))
