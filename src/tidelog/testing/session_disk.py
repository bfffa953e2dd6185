"""The disk of a simulated machine that holds an epoch store.

Appends wait in memory, by channel, until somebody asks for a sync, or until there are many of
them; what is written becomes durable in groups.

Invariants:
  E1  what was written becomes durable in the order in which it was written
  E2  while one group waits for its sync, what is written meanwhile waits for the next group
  E3  a crash keeps all that was synced, and of what was written a prefix of whole changes; what
      only waited in memory is lost in any case
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from tidelog.core.session.output import ChannelBatch
from tidelog.testing.journal import Happened
from tidelog.testing.session_image import (
    AppendBatches,
    Change,
    CutChannel,
    EpochImage,
    KeepBlob,
    MakeReady,
    RaiseBoundary,
    RecordEpoch,
)
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.world import Process

Done: TypeAlias = Callable[[], None]

WRITTEN_EARLY: Final = 0.1
"""How often an append finds so much waiting that all of it is written out."""


class SessionDisk:
    """What is durable, what the store shows, and the changes in between."""

    __slots__ = (
        "_begun",
        "_chance",
        "_delays",
        "_process",
        "_sometimes",
        "_sync_mean",
        "_sync_min",
        "_waiting",
        "_written",
        "durable",
        "on_recorded",
        "seen",
    )

    def __init__(
        self,
        process: Process,
        delays: Random,
        chance: Random,
        sometimes: Sometimes,
        *,
        sync_min: int,
        sync_mean: int,
    ) -> None:
        self._process = process
        self._delays = delays
        self._chance = chance
        self._sometimes = sometimes
        self._sync_min = sync_min
        self._sync_mean = sync_mean
        self.durable = EpochImage()
        """As a crash would leave it at least."""
        self.seen = EpochImage()
        """As the store shows it."""
        self.on_recorded: Done = lambda: None
        """Called when an epoch was recorded durably."""
        self._waiting: dict[int, list[Change]] = {}
        """In memory, by channel."""
        self._written: list[Change | Done] = []
        self._begun = 0
        """How many of those wait for the sync that runs."""

    # What a store can do.

    def append(self, channel: int, epoch: int, batches: tuple[ChannelBatch, ...]) -> None:
        """Take batches; they need not be durable soon."""
        self._wait(channel, AppendBatches(channel, epoch, batches))
        if self._chance.random() < WRITTEN_EARLY:
            self._write_out(channel)

    def cut(self, channel: int, llsn_end: int) -> None:
        """Let unrecorded entries of a channel go, from an LLSN on."""
        self._wait(channel, CutChannel(channel, llsn_end))

    def flush(self, channel: int, done: Done) -> None:
        """Make a channel durable."""
        self._write_out(channel)
        self._write(done)

    def record(self, epoch: int, done: Done) -> None:
        """Make an epoch durable, with all that belongs to it."""
        for channel in sorted(self._waiting):
            self._write_out(channel)
        self._change(RecordEpoch(epoch))
        self._write(done)

    def set_boundary(self, version: int, done: Done) -> None:
        """Make a boundary durable."""
        self._change(RaiseBoundary(version))
        self._write(done)

    def keep_blob(self, blob: int, data: bytes, done: Done) -> None:
        """Make a BLOB durable."""
        self._change(KeepBlob(blob, data))
        self._write(done)

    def make_ready(self, configuration_id: str, channels: int, done: Done) -> None:
        """Be the store of a configuration, without unrecorded entries."""
        for channel in sorted(self._waiting):
            self._write_out(channel)
        self._change(MakeReady(configuration_id, channels))
        self._write(done)

    def open(self) -> None:
        """Begin a life with what is recorded; the rest is dropped for good."""
        dropped = self.durable.unrecorded()
        if dropped:
            self._sometimes.count(Rare.UNRECORDED_DROPPED, dropped)
        self.durable.drop_unrecorded()
        self.seen = self.durable.copy()

    def create(self, configuration_id: str, channels: int) -> None:
        """Make a store where there is none."""
        self.durable.apply(MakeReady(configuration_id, channels))
        self.seen = self.durable.copy()

    def keep_own_blob(self, blob: int, data: bytes) -> None:
        """Hold a BLOB that somebody on this machine has made durable before."""
        for image in (self.durable, self.seen):
            image.apply(KeepBlob(blob, data))

    def replace(self, image: EpochImage) -> None:
        """Hold a copy of what another machine has recorded, or nothing."""
        self.durable = image.copy()
        self.open()

    # Between memory and the disk.

    def _wait(self, channel: int, change: Change) -> None:
        self.seen.apply(change)
        self._waiting.setdefault(channel, []).append(change)

    def _write_out(self, channel: int) -> None:
        for change in self._waiting.pop(channel, ()):
            self._write(change)

    def _change(self, change: Change) -> None:
        self.seen.apply(change)
        self._write(change)

    def _write(self, what: Change | Done) -> None:
        self._written.append(what)
        if not self._begun:
            # All that is written at this moment is of one group.
            self._begun = -1
            self._process.world.plan(0, self._begin_group, self._process)

    def _begin_group(self) -> None:
        self._begun = len(self._written)
        process = self._process
        process.world.journal.note(Happened.WRITE, process.node, self._begun)
        delay = self._sync_min + int(self._delays.expovariate(1.0) * self._sync_mean)
        process.world.plan(delay, self._end_group, process)

    def _end_group(self) -> None:
        group, self._written = self._written[: self._begun], self._written[self._begun :]
        self._begun = 0
        self._process.world.journal.note(Happened.SYNC, self._process.node, len(group))
        if self._written:
            self._begin_group()
        for what in group:
            if not callable(what):
                self._keep(what)
        life = self._process.incarnation
        for what in group:
            # Whoever is told may end this life.
            if callable(what) and self._process.incarnation == life:
                what()

    def _keep(self, change: Change) -> None:
        self.durable.apply(change)
        if isinstance(change, RecordEpoch):
            self.on_recorded()

    # Ends.

    def lose(self, *, power_lost: bool) -> None:
        """End a life."""
        changes = [what for what in self._written if not callable(what)]
        begun = [what for what in self._written[: max(self._begun, 0)] if not callable(what)]
        kept = self._chance.randint(0 if power_lost else len(begun), len(changes))
        lost = sum(map(len, self._waiting.values())) + len(changes) - kept
        if lost:
            self._sometimes.count(Rare.UNSYNCED_WRITE_LOST, lost)
        if kept:
            self._sometimes.count(Rare.UNSYNCED_WRITE_KEPT, kept)
        # What recovery finds it syncs before it is used.
        for change in changes[:kept]:
            self._keep(change)
        self._waiting, self._written, self._begun = {}, [], 0
