"""What the application of one master has written, by channel: what stores are held against.

One life of a master has one ledger.  It begins with what the master's store had recorded.

Invariants:
  G1  batches of a channel stand in the order in which they were written, and their epochs never
      fall; those of an aborted log session do not stand there
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tidelog.core.session.output import ChannelBatch
from tidelog.testing.session_image import EpochImage, Stored


class OpenLogSession:
    """A log session that has not ended."""

    __slots__ = ("batches", "channel", "epoch", "llsn_begin")

    def __init__(self, channel: int, epoch: int, llsn_begin: int) -> None:
        self.channel = channel
        self.epoch = epoch
        self.llsn_begin = llsn_begin
        self.batches: list[Stored] = []


class _Channel:
    """The log sessions of a channel that have ended."""

    __slots__ = ("base", "epochs", "written")

    def __init__(self, base: int) -> None:
        self.base = base
        """How many batches were there before."""
        self.written: list[Stored] = []
        self.epochs: list[int] = []


class Ledger:
    """All log sessions of one life of a master."""

    __slots__ = ("_aborted", "_channels", "_open", "blobs", "number")

    def __init__(self, number: int, image: EpochImage) -> None:
        self.number = number
        """The ledgers of a simulation are counted."""
        self._channels = [_Channel(len(batches)) for batches in image.channels]
        self._open: dict[int, OpenLogSession] = {}
        self._aborted: set[bytes] = set()
        self.blobs: dict[int, bytes] = {}
        """Those that entries refer to."""

    def begin(self, channel: int, epoch: int, llsn_begin: int) -> OpenLogSession:
        """A log session begins."""
        session = self._open[channel] = OpenLogSession(channel, epoch, llsn_begin)
        return session

    def write(self, channel: int, batches: Sequence[ChannelBatch]) -> None:
        """The open log session of a channel gets entries."""
        session = self._open[channel]
        session.batches += [Stored(session.epoch, batch) for batch in batches]

    def end(self, channel: int) -> None:
        """The open log session of a channel ends."""
        session = self._open.pop(channel)
        self._channels[channel].written += session.batches
        self._channels[channel].epochs += [session.epoch] * len(session.batches)

    def abort(self, channel: int) -> None:
        """The open log session of a channel ends without its entries."""
        session = self._open.pop(channel)
        self._aborted.update(bytes(stored.batch.data) for stored in session.batches)

    # What must be in a store.

    @property
    def channels(self) -> range:
        return range(len(self._channels))

    def open_epochs(self) -> list[int]:
        """The epochs of log sessions that have not ended."""
        return [session.epoch for session in self._open.values()]

    def count(self, channel: int, epoch: int) -> int:
        """How many batches of epochs up to this one a channel must have."""
        one = self._channels[channel]
        return one.base + bisect_right(one.epochs, epoch)

    def at(self, channel: int, place: int) -> Stored | None:
        """The batch at a place of a channel, if it was written in this life."""
        one = self._channels[channel]
        index = place - one.base
        return one.written[index] if 0 <= index < len(one.written) else None

    def was_aborted(self, batch: ChannelBatch) -> bool:
        """Whether a batch is of an aborted log session."""
        return bytes(batch.data) in self._aborted
