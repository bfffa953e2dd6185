"""A Raft node's writes on their way to its disk, in groups, as a writer thread carries them out.

Invariants:
  Q1  writes reach the store in the order of their sequence numbers
  Q2  while one group waits for its sync, what comes in waits for the next group
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tidelog.core.raft.entries import Snapshot, Stored
from tidelog.core.raft.output import Write
from tidelog.limits import RAFT_LOG_ROOM_BYTES_MIN
from tidelog.storage.raft_store import RaftStore
from tidelog.testing.faults import Plan
from tidelog.testing.journal import Happened
from tidelog.testing.machine_disk import MachineDisk
from tidelog.testing.raft_witness import RaftWitness
from tidelog.testing.world import Process

DIRECTORY: Final = "/raft"
GROUP: Final = b"a simulated group"[:16]


class RaftDisk:
    """The store of one life of a node, and the queue before it."""

    __slots__ = (
        "_delays",
        "_disk",
        "_is_syncing",
        "_plan",
        "_process",
        "_queue",
        "_store",
        "_witness",
        "_written",
    )

    def __init__(
        self,
        process: Process,
        disk: MachineDisk,
        witness: RaftWitness,
        plan: Plan,
        delays: Random,
        written: Callable[[int], None],
    ) -> None:
        self._process = process
        self._disk = disk
        self._witness = witness
        self._plan = plan
        self._delays = delays
        self._written = written
        self._queue: list[Write] = []
        self._is_syncing = False
        self._store: RaftStore

    def open(self, first: Snapshot | None) -> Stored:
        """Begin a life: read what is on the disk."""
        self._queue.clear()
        self._is_syncing = False
        self._store, stored = RaftStore.open(
            self._disk.vfs(),
            DIRECTORY,
            node=self._process.node,
            group=GROUP,
            first=first,
            room_bytes=RAFT_LOG_ROOM_BYTES_MIN,
            new_salt=lambda: self._delays.getrandbits(64),
        )
        self._witness.opened(stored)
        return stored

    def add(self, write: Write) -> None:
        """Take a write; ``written`` is called when it is durable."""
        self._queue.append(write)
        if not self._is_syncing:
            self._begin_group()

    def _begin_group(self) -> None:
        self._is_syncing = True
        group, self._queue = self._queue, []
        for write in group:
            self._witness.writing(write)
            self._store.write(write)
        last = group[-1].sequence
        self._process.world.journal.note(Happened.WRITE, self._process.node, last, len(group))
        delay = self._plan.sync_min + int(self._delays.expovariate(1.0) * self._plan.sync_mean)
        self._process.world.plan(delay, lambda: self._end_group(last), self._process)

    def _end_group(self, last: int) -> None:
        self._store.sync()
        self._witness.synced()
        self._process.world.journal.note(Happened.SYNC, self._process.node, last)
        self._is_syncing = False
        self._store.prepare()
        if self._queue:
            self._begin_group()
        self._written(last)
