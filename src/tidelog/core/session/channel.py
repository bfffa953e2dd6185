"""One log channel as its replica sees it: what may be written on it next.

Invariants:
  C1  entries are dense: each batch begins where the last one ended
  C2  epochs never fall, and entries are only written inside a log session, of its very epoch
  C3  a BLOB comes in order, one at a time; another channel may bring the same one at once
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelog.core.session.messages import BlobWrite, ErrorCode, LogEntryWrite
from tidelog.core.session.output import ChannelBatch, StoreOutput, WriteBlob
from tidelog.errors import ReplicaRefused


class PartialBlob(msgspec.Struct, frozen=True):
    """A BLOB of which the first ``received`` bytes were taken."""

    blob: int
    size: int
    received: int


class Channel:
    """One log channel of a session; it outlives the connections that it has one after the other."""

    __slots__ = ("blob", "connection", "end", "epoch", "is_writing", "number", "session_begin")

    def __init__(self, number: int, end: int) -> None:
        self.number = number
        self.end = end
        """The LLSN of the next entry."""
        self.epoch = 0
        """The highest that was written in."""
        self.session_begin: int | None = None
        """The end as it was when the open log session began."""
        self.connection: int | None = None
        self.is_writing = False
        """Whether the store is at work for it."""
        self.blob: PartialBlob | None = None

    def is_writing_in(self, epoch: int) -> bool:
        """Whether entries of this epoch, or of earlier ones, may still be on their way."""
        return self.epoch <= epoch and (self.session_begin is not None or self.is_writing)

    # --- entries ---

    def check_write(
        self, write: LogEntryWrite, batches: tuple[ChannelBatch, ...] | None, committed: int
    ) -> tuple[ChannelBatch, ...]:
        """Refuse what does not continue the channel; return the batches, which are sound."""
        self._check_committed(write.epoch, committed)
        self._check_epoch(write.epoch)
        self._check_log_session(write, is_empty=batches == ())
        if batches is None:
            raise refusal(ErrorCode.BAD_ENTRIES, "the entries are damaged, or not of this channel")
        self._check_dense(batches)
        return batches

    def _check_committed(self, epoch: int, committed: int) -> None:
        if epoch <= committed:
            text = f"epoch {epoch} is over: the last group commit was at {committed}"
            raise refusal(ErrorCode.EPOCH_COMMITTED, text)

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self.epoch:
            text = f"channel {self.number} is at epoch {self.epoch}, not at {epoch}"
            raise refusal(ErrorCode.EPOCH_WENT_BACK, text)

    def _check_log_session(self, write: LogEntryWrite, *, is_empty: bool) -> None:
        """C2; a message that only flushes needs no log session."""
        is_open = self.session_begin is not None
        if write.session_begin and is_open:
            text = "a log session is open"
        elif write.session_end and write.session_abort:
            text = "a log session ends or is aborted"
        elif is_open and write.epoch != self.epoch:
            text = f"the open log session is of epoch {self.epoch}, not of {write.epoch}"
        elif not (is_open or write.session_begin or is_only_flush(write, is_empty=is_empty)):
            text = "no log session is open"
        else:
            return
        raise refusal(ErrorCode.NO_LOG_SESSION, f"channel {self.number}: {text}")

    def _check_dense(self, batches: Sequence[ChannelBatch]) -> None:
        """C1."""
        end = self.end
        for batch in batches:
            if not end == batch.llsn_begin < batch.llsn_end:
                text = f"entries {batch.llsn_begin}..{batch.llsn_end} do not continue {end}"
                raise refusal(ErrorCode.BAD_ENTRIES, text)
            end = batch.llsn_end

    def write(self, write: LogEntryWrite, batches: Sequence[ChannelBatch]) -> int | None:
        """Take what was checked in; return where to cut, if the log session is aborted."""
        self.epoch = write.epoch
        if write.session_begin:
            self.session_begin = self.end
        if batches:
            self.end = batches[-1].llsn_end
        if write.session_abort:
            return self.abort()
        if write.session_end:
            self.session_begin = None
        return None

    def abort(self) -> int | None:
        """Take the entries of the open log session back; return where to cut, if there are any."""
        begin, self.session_begin = self.session_begin, None
        if begin is None or begin == self.end:
            return None
        self.end = begin
        return begin

    # --- BLOBs ---

    def is_receiving(self, blob: int) -> bool:
        """Whether a BLOB is on its way here."""
        return self.blob is not None and self.blob.blob == blob

    def check_blob(self, part: BlobWrite, length: int) -> None:
        """Refuse what neither begins a BLOB nor continues it (C3)."""
        if part.offset != 0 and not self._continues(part):
            text = f"BLOB {part.blob} is not to be continued at {part.offset}"
            raise refusal(ErrorCode.BAD_BLOB, text)
        if not self._fits(part, length):
            text = f"{length} bytes at {part.offset} of BLOB {part.blob}, which has {part.size}"
            raise refusal(ErrorCode.BAD_BLOB, text)

    def _continues(self, part: BlobWrite) -> bool:
        return self.blob == PartialBlob(part.blob, part.size, part.offset)

    def _fits(self, part: BlobWrite, length: int) -> bool:
        """Each part brings something, but that of an empty BLOB."""
        return part.offset + length <= part.size and (length > 0 or part.size == 0)

    def add_part(self, part: BlobWrite, length: int) -> None:
        """Take in what was checked."""
        self.blob = PartialBlob(part.blob, part.size, part.offset + length)

    def stored(self, output: StoreOutput) -> None:
        """The store has done a step; a BLOB is complete with its last part."""
        if not isinstance(output, WriteBlob):
            self.is_writing = False
        elif self.blob is not None and self.blob.received == self.blob.size:
            self.blob = None


def is_only_flush(write: LogEntryWrite, *, is_empty: bool) -> bool:
    return is_empty and not (write.session_end or write.session_abort)


def refusal(code: ErrorCode, text: str) -> ReplicaRefused:
    return ReplicaRefused(text, code=code)
