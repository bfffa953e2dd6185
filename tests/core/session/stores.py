"""A store of epochs in memory, which complains about what a real one could not survive."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.core.session.output import ChannelBatch


def batch(
    begin: int, count: int = 1, label: str = "x", blobs: tuple[int, ...] = ()
) -> ChannelBatch:
    return ChannelBatch(begin, begin + count, label.encode(), blobs)


@dataclass
class Entry:
    llsn: int
    epoch: int
    data: bytes


@dataclass
class Store:
    """Entries of each channel; behind ``recorded`` ends they are not committed."""

    configuration_id: str | None = None
    epoch: int = 0
    boundary: int = 0
    stamp: str = ""
    channels: list[list[Entry]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """How many entries of each channel are recorded."""
    flushed: list[int] = field(default_factory=list)
    blobs: set[int] = field(default_factory=set)
    parts: dict[tuple[int, int], int] = field(default_factory=dict)

    def make_channels(self, count: int) -> None:
        while len(self.channels) < count:
            self.channels.append([])
            self.ends.append(0)
            self.flushed.append(0)

    def llsn_ends(self) -> tuple[int, ...]:
        return tuple(len(entries) + 1 for entries in self.channels)

    def append(self, channel: int, epoch: int, batches: tuple[ChannelBatch, ...]) -> None:
        entries = self.channels[channel]
        for each in batches:
            assert each.llsn_begin == len(entries) + 1, "entries are dense"
            assert epoch > self.epoch, f"an entry of epoch {epoch} behind its group commit"
            assert not entries or epoch >= entries[-1].epoch, "epochs never fall"
            for llsn in range(each.llsn_begin, each.llsn_end):
                entries.append(Entry(llsn, epoch, bytes(each.data)))

    def flush(self, channel: int) -> None:
        self.flushed[channel] = len(self.channels[channel])

    def cut(self, channel: int, llsn_end: int) -> None:
        assert llsn_end > self.ends[channel], "what is recorded is never cut"
        del self.channels[channel][llsn_end - 1 :]
        self.flushed[channel] = min(self.flushed[channel], llsn_end - 1)

    def record(self, epoch: int) -> None:
        assert epoch > self.epoch, "epochs that are recorded grow"
        self.epoch = epoch
        for channel, entries in enumerate(self.channels):
            self.ends[channel] = sum(entry.epoch <= epoch for entry in entries)

    def drop_unrecorded(self) -> None:
        for channel, end in enumerate(self.ends):
            del self.channels[channel][end:]

    def committed(self) -> list[list[tuple[int, bytes]]]:
        """What shows when the store is opened again."""
        return [
            [(entry.epoch, entry.data) for entry in entries[:end]]
            for entries, end in zip(self.channels, self.ends, strict=True)
        ]
