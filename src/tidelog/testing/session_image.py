"""A simulated epoch store at one moment: entries by channel, and how many of them are recorded.

Invariants:
  I1  what is recorded is a prefix of each channel, and never changes
  I2  epochs never fall within a channel, and its LLSNs have no gap
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from tidelog.core.session.output import ChannelBatch
from tidelog.testing.violation import Violation

NAME: Final = "session_entries"
STAMPS: Final = 0
"""The channel on which each life of a master first writes its stamp."""


class Stored(NamedTuple):
    """A batch with its epoch, as it lies in a channel."""

    epoch: int
    batch: ChannelBatch


class Cut(NamedTuple):
    """One record of an epoch: what it ordered, and a checksum of everything up to it."""

    epoch: int
    ends: tuple[int, ...]
    """The number of recorded batches of each channel."""
    chain: int


# -- what is written -----------------------------------------------------------------------------


class AppendBatches(msgspec.Struct, frozen=True, gc=False):
    channel: int
    epoch: int
    batches: tuple[ChannelBatch, ...]


class CutChannel(msgspec.Struct, frozen=True, gc=False):
    channel: int
    llsn_end: int


class RecordEpoch(msgspec.Struct, frozen=True, gc=False):
    epoch: int


class RaiseBoundary(msgspec.Struct, frozen=True, gc=False):
    version: int


class KeepBlob(msgspec.Struct, frozen=True, gc=False):
    blob: int
    data: bytes


class MakeReady(msgspec.Struct, frozen=True, gc=False):
    """Be the store of this configuration, and drop what is not recorded."""

    configuration_id: str
    channels: int


Change: TypeAlias = AppendBatches | CutChannel | RecordEpoch | RaiseBoundary | KeepBlob | MakeReady


class EpochImage:
    """What a store holds; ``apply`` is the only way to change it."""

    __slots__ = (
        "blobs",
        "boundary",
        "channels",
        "configuration_id",
        "cuts",
        "glsn_end",
        "recorded",
        "stamp",
    )

    def __init__(self) -> None:
        self.configuration_id: str | None = None
        self.boundary = 0
        self.channels: list[list[Stored]] = []
        self.recorded: list[int] = []
        """How many batches of each channel are."""
        self.cuts: list[Cut] = []
        self.glsn_end = 1
        self.stamp = ""
        """Of the last life of a master that has recorded anything."""
        self.blobs: dict[int, bytes] = {}

    def copy(self) -> EpochImage:
        """Return an image that changes on its own."""
        other = EpochImage()
        other.configuration_id = self.configuration_id
        other.boundary = self.boundary
        other.channels = [list(channel) for channel in self.channels]
        other.recorded = list(self.recorded)
        other.cuts = list(self.cuts)
        other.glsn_end = self.glsn_end
        other.stamp = self.stamp
        other.blobs = dict(self.blobs)
        return other

    @property
    def epoch(self) -> int:
        """The last one that is recorded."""
        return self.cuts[-1].epoch if self.cuts else 0

    @property
    def chain(self) -> int:
        """A checksum of all that is recorded, with its GLSNs."""
        return self.cuts[-1].chain if self.cuts else 0

    def end(self, channel: int) -> int:
        """The LLSN behind the last entry."""
        return _end(self.channels[channel])

    def ends(self) -> tuple[int, ...]:
        """The LLSN behind the last entry of each channel."""
        return tuple(map(_end, self.channels))

    def count(self, channel: int, epoch: int) -> int:
        """How many batches of epochs up to this one a channel has."""
        batches = self.channels[channel]
        count = len(batches)
        while count and batches[count - 1].epoch > epoch:
            count -= 1
        return count

    def unrecorded(self) -> int:
        """How many batches are not recorded."""
        return sum(map(len, self.channels)) - sum(self.recorded)

    def cut_at(self, epoch: int) -> Cut | None:
        """Return the last record at or below an epoch."""
        return next((cut for cut in reversed(self.cuts) if cut.epoch <= epoch), None)

    def holds(self, cut: Cut) -> bool:
        """Whether it has all that was recorded at a cut, in the same order."""
        return self.cut_at(cut.epoch) == cut

    def is_same(self, other: EpochImage) -> bool:
        """Whether two stores have recorded the same, of the same configuration."""
        mine, theirs = (
            (self.configuration_id, self.cuts[-1:]),
            (other.configuration_id, other.cuts[-1:]),
        )
        return mine == theirs

    def newly_recorded(self, before: Cut | None) -> Iterator[tuple[int, int, Stored]]:
        """Yield what was recorded since a cut, with its channel and place."""
        for channel, batches in enumerate(self.channels):
            known = before.ends[channel] if before and channel < len(before.ends) else 0
            for place in range(known, self.recorded[channel]):
                yield channel, place, batches[place]

    # Changes.

    def apply(self, change: Change) -> None:
        """Take a change, as all that came before it left the store."""
        match change:
            case AppendBatches(channel, epoch, batches):
                for batch in batches:
                    self._append(channel, Stored(epoch, batch))
            case CutChannel(channel, llsn_end):
                self._cut(channel, llsn_end)
            case RecordEpoch(epoch):
                self._record(epoch)
            case RaiseBoundary(version):
                self.boundary = max(self.boundary, version)
            case KeepBlob(blob, data):
                self.blobs[blob] = data
            case MakeReady(configuration_id, channels):
                self._make_ready(configuration_id, channels)

    def drop_unrecorded(self) -> None:
        """Let all go that no record covers."""
        for channel, batches in enumerate(self.channels):
            del batches[self.recorded[channel] :]

    def _append(self, channel: int, stored: Stored) -> None:
        batches = self.channels[channel]
        if stored.batch.llsn_begin != _end(batches):
            raise Violation(NAME, f"channel {channel} ends at {_end(batches)}, then comes {stored}")
        if batches and batches[-1].epoch > stored.epoch:
            raise Violation(NAME, f"{stored} follows {batches[-1]} on channel {channel}")
        if stored.epoch <= self.epoch:
            raise Violation(NAME, f"{stored} comes after epoch {self.epoch} was recorded")
        batches.append(stored)

    def _cut(self, channel: int, llsn_end: int) -> None:
        batches = self.channels[channel]
        while batches and batches[-1].batch.llsn_end > llsn_end:
            if len(batches) == self.recorded[channel]:
                raise Violation(NAME, f"recorded entries of channel {channel} are cut off")
            batches.pop()
        if _end(batches) != llsn_end:
            raise Violation(NAME, f"channel {channel} is cut inside a batch, at {llsn_end}")

    def _record(self, epoch: int) -> None:
        if epoch <= self.epoch:
            raise Violation(NAME, f"epoch {epoch} is recorded after {self.epoch}")
        chain = crc32(b"%d" % epoch, self.chain)
        for channel, batches in enumerate(self.channels):
            begin, end = self.recorded[channel], self.count(channel, epoch)
            for stored in batches[begin:end]:
                place = b"%d %d %d " % (channel, self.glsn_end, stored.batch.llsn_begin)
                chain = crc32(stored.batch.data, crc32(place, chain))
                if channel == STAMPS:
                    self.stamp = bytes(stored.batch.data).decode()
                self.glsn_end += stored.batch.llsn_end - stored.batch.llsn_begin
            self.recorded[channel] = end
        self.cuts.append(Cut(epoch, tuple(self.recorded), chain))

    def _make_ready(self, configuration_id: str, channels: int) -> None:
        if self.configuration_id not in (None, configuration_id):
            raise Violation(NAME, f"the store of {self.configuration_id} gets another identity")
        self.configuration_id = configuration_id
        while len(self.channels) < channels:
            self.channels.append([])
            self.recorded.append(0)
        self.drop_unrecorded()


def _end(batches: list[Stored]) -> int:
    return batches[-1].batch.llsn_end if batches else 1
