"""The application of a simulated master: log sessions on each channel, epochs, boundaries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.core.session.output import ChannelBatch
from tidelog.testing.session_image import STAMPS
from tidelog.testing.session_ledger import OpenLogSession
from tidelog.testing.sometimes import Rare
from tidelog.testing.world import Action

if TYPE_CHECKING:
    from tidelog.testing.session_machine import SessionMachine
    from tidelog.testing.session_master import MasterShell

SKIPS: Final = (1, 1, 1, 1, 2, 7)
"""How far an epoch is from the one before."""
ABORTED: Final = 0.15
WITH_BLOB: Final = 0.08


class Application:
    """What one life of a master is used for."""

    __slots__ = (
        "_draws",
        "_ends",
        "_is_started",
        "_machine",
        "_open",
        "_shell",
        "_waits",
        "_written",
        "is_closing",
    )

    def __init__(self, machine: SessionMachine, shell: MasterShell) -> None:
        self._machine = machine
        self._shell = shell
        self._draws = machine.cluster.chance.stream("application", machine.cluster.lives)
        self._ends = list(machine.disk.seen.ends())
        self._open: dict[int, OpenLogSession] = {}
        self._waits: dict[int, bool] = {}
        """Channels whose user waits until all is done there."""
        self._is_started = False
        self.is_closing = False
        self._written = 0

    @property
    def is_usable(self) -> bool:
        core = self._shell.core
        return core.is_open and core.failure is None and not self.is_closing

    def settle(self) -> None:
        """Begin when the sessions are open; go on where somebody waited."""
        if not self.is_usable:
            return
        if not self._is_started:
            self._is_started = True
            self._machine.cluster.on_session_open(self._shell)
            self._pause(self._machine.cluster.epoch_length, self._switch)
            for channel in range(STAMPS + 1, len(self._ends)):
                self._pause(self._machine.cluster.pace, partial(self._use, channel))
        for channel in [channel for channel, waits in self._waits.items() if waits]:
            if self._shell.core.is_idle(channel):
                self._waits[channel] = False
                self._pause(self._machine.cluster.pace, partial(self._use, channel))

    def _pause(self, mean: int, action: Action) -> None:
        self._machine.after(1 + int(self._draws.expovariate(1.0) * mean), action)

    # Epochs and boundaries.

    def _switch(self) -> None:
        core, cluster = self._shell.core, self._machine.cluster
        if not self.is_usable:
            return
        if self._draws.random() < 0.05:
            boundary = max(cluster.boundary, self._machine.disk.seen.boundary)
            cluster.boundary = boundary + self._draws.choice((0, 1, 5))
            core.set_boundary(cluster.boundary)
        last = max(core.epoch, self._machine.disk.seen.epoch)
        is_first = core.epoch == 0
        # A master that was given up may have an epoch of its own among the next ones.
        core.switch(last + (1 if cluster.operators.unused else self._draws.choice(SKIPS)))
        if is_first:
            self._write_stamp()
        self._pause(cluster.epoch_length, self._switch)
        self._shell.settle()

    def _write_stamp(self) -> None:
        """Whatever this life records says that it was this one."""
        ledger, begin = self._shell.ledger, self._ends[STAMPS]
        batch = ChannelBatch(begin, begin + 1, b"life %d" % ledger.number)
        epoch = self._shell.core.begin(STAMPS)
        ledger.begin(STAMPS, epoch, begin)
        ledger.write(STAMPS, (batch,))
        ledger.end(STAMPS)
        self._shell.core.write(STAMPS, (batch,), end=True)

    def close(self) -> None:
        """End all log sessions, then the session."""
        if not self.is_usable or not self._is_started:
            return
        for channel in list(self._open):
            self._end(channel, is_aborted=self._draws.random() < 0.5)
        self.is_closing = True
        self._shell.core.close()
        self._shell.settle()

    # Log sessions.

    def _use(self, channel: int) -> None:
        """Take the next step on a channel."""
        if not self.is_usable:
            return
        draws = self._draws
        session = self._open.get(channel)
        if session is None:
            if self._shell.core.epoch:
                self._begin(channel)
        elif draws.random() < ABORTED:
            self._end(channel, is_aborted=True)
        elif draws.random() < 0.4:
            self._end(channel, is_aborted=False)
        else:
            self._write(channel, is_end=False)
        if draws.random() < 0.5:
            self._waits[channel] = True
        else:
            self._pause(self._machine.cluster.pace, partial(self._use, channel))
        self._shell.settle()

    def _begin(self, channel: int) -> None:
        epoch = self._shell.core.begin(channel)
        self._open[channel] = self._shell.ledger.begin(channel, epoch, self._ends[channel])

    def _write(self, channel: int, *, is_end: bool) -> None:
        batches = tuple(self._batch(channel) for _ in range(self._draws.choice((0, 1, 1, 2))))
        self._shell.ledger.write(channel, batches)
        self._shell.core.write(channel, batches, end=is_end)

    def _end(self, channel: int, *, is_aborted: bool) -> None:
        session = self._open.pop(channel)
        if is_aborted:
            if session.batches:
                self._machine.cluster.sometimes.count(Rare.ABORTED_WITH_ENTRIES)
            self._ends[channel] = session.llsn_begin
            self._shell.ledger.abort(channel)
            self._shell.core.abort(channel)
        else:
            self._write(channel, is_end=True)
            self._shell.ledger.end(channel)

    def _batch(self, channel: int) -> ChannelBatch:
        """Entries that no other batch has; what they say is nothing to either core."""
        self._written += 1
        begin = self._ends[channel]
        end = self._ends[channel] = begin + self._draws.choice((1, 1, 3))
        data = b"%d/%d/%d" % (self._shell.ledger.number, channel, self._written)
        blobs: tuple[int, ...] = ()
        if self._draws.random() < WITH_BLOB:
            blobs = (self._new_blob(data),)
        return ChannelBatch(begin, end, data, blobs)

    def _new_blob(self, data: bytes) -> int:
        """Register a BLOB; it is durable here before entries refer to it."""
        blob = self._machine.cluster.new_blob()
        content = data[: blob % 12]
        self._machine.disk.keep_own_blob(blob, content)
        self._shell.ledger.blobs[blob] = content
        return blob
