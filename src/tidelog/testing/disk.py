"""A disk in memory that crashes, fails and forgets on demand, the same way each time.

``SimDisk`` holds the state and the faults; ``SimDisk.vfs`` hands out the ``Vfs`` that the product
uses.  Contract, besides that of ``Vfs``:

  S1  ``File.sync`` makes the bytes and the length of its inode durable, not its name.
  S2  ``sync_dir`` makes the names of that one directory durable, in the order of their changes.
      A rename between directories is one effect: a sync of either makes it durable.
  S3  A crash keeps, loses or tears each effect that was not synced, whatever happened to others.
  S4  After a failed ``sync`` the pending writes of that inode are gone for good, while readers
      still see them and the next sync succeeds.  After a failed ``sync_dir`` the pending names
      may survive a crash or not, and the next sync succeeds without making them durable.
  S5  The name of a lock file is durable at once; the lock itself ends with the crash.
  S6  After a crash every call raises ``SimulatedCrash``, except ``close`` and ``release``.

Calls are atomic, also between threads.  Paths may be spelled with or without the first ``/``.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from typing import Final

from tidelog.testing.disk_effects import (
    Choice,
    Choices,
    Effect,
    Op,
    crash_outcomes,
    outcome_count,
)
from tidelog.testing.disk_faults import (
    Fault,
    FaultPlan,
    PathPredicate,
    SimulatedCrash,
    disk_error,
)
from tidelog.testing.disk_file import FileNode
from tidelog.testing.disk_survival import describe, fingerprint, pending, survive
from tidelog.testing.disk_tree import ROOT, DirNode, Tree
from tidelog.testing.disk_vfs import SimVfs

__all__ = [
    "Choice",
    "Choices",
    "Effect",
    "Op",
    "SimDisk",
    "SimVfs",
    "SimulatedCrash",
    "crash_outcomes",
    "outcome_count",
]

UNLIMITED_BYTES: Final = 1 << 40
"""What a disk without a stated capacity claims to hold."""


class SimDisk:
    """The simulated disk, as tests arrange and inspect it."""

    __slots__ = ("capacity_bytes", "faults", "locks", "mutex", "tree")

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        """Bytes of all files that have a name may not grow beyond this; None: no limit."""
        self.tree = Tree()
        self.faults = FaultPlan()
        self.locks: set[int] = set()
        self.mutex = threading.Lock()

    def vfs(self) -> SimVfs:
        """A view of this disk for the product; any number of them may be used."""
        return SimVfs(self)

    # Crashes.

    @property
    def operations(self) -> int:
        """How many calls so far could have changed something: the crash points."""
        return self.faults.operations

    @property
    def last_call(self) -> tuple[Op, str] | None:
        """The last of the counted calls, and its path."""
        return self.faults.last_call

    @property
    def crashed(self) -> bool:
        """Whether a call met the crash."""
        return self.faults.crashed

    def crash_after(self, calls: int, *, cut: bool = False) -> None:
        """Go down with the ``calls``-th counted call from now (1 = the next one).

        That call is carried out and returns, and whatever is called next raises.  With ``cut``
        it raises itself: its effect is pending, and a sync did not take place.
        """
        self.faults.arm_crash(calls, cut=cut)

    def crash_no_more(self) -> None:
        """Take back a ``crash_after`` that was not met yet."""
        self.faults.disarm()

    def pending_effects(self) -> list[Effect]:
        """What a crash may take away now, in the order of the calls."""
        with self.mutex:
            return [describe(index, item) for index, item in enumerate(pending(self.tree))]

    def after_crash(self, kept: Sequence[Choice] | Choice = Choice.LOST) -> SimDisk:
        """An independent disk as the next start finds it; this one stays as it is.

        ``kept`` says what became of each of ``pending_effects()``; one choice stands for all.
        Capacity is the same; there are no faults and no locks.
        """
        with self.mutex:
            items = pending(self.tree)
            choices = (kept,) * len(items) if isinstance(kept, Choice) else kept
            disk = SimDisk(capacity_bytes=self.capacity_bytes)
            disk.tree = survive(self.tree, items, choices)
            return disk

    def copy(self) -> SimDisk:
        """An independent disk in the same state, pending effects included.

        This is what a process finds that starts after another one was killed, without a power
        loss: there are no locks.  Ignored syncs stay ignored; no other fault is copied.
        """
        with self.mutex:
            disk = SimDisk(capacity_bytes=self.capacity_bytes)
            disk.tree = self.tree.copy()
            disk.faults = self.faults.for_copy()
            return disk

    def fingerprint(self) -> int:
        """Equal for equal disks at rest (as ``after_crash`` returns them), in one process."""
        with self.mutex:
            return fingerprint(self.tree)

    # Faults.

    def fail(
        self,
        operation: Op,
        path_suffix: str,
        error: int,
        *,
        times: int = 1,
        after: int = 0,
        partial: bool = False,
    ) -> None:
        """Let calls fail with ``error`` (an errno) whose path ends with ``path_suffix``.

        The first ``after`` such calls pass, the next ``times`` fail.  A failed call changes
        nothing, but see S4; with ``partial`` the first part of a failed write is written.
        A rename or a link matches by either of its names.
        """
        self.faults.add(Fault(operation, path_suffix, error, times, after, partial))

    def ignore_sync(self, predicate: PathPredicate) -> None:
        """Let ``File.sync`` of these paths return without making anything durable."""
        self.faults.ignore_sync(predicate)

    def ignore_sync_dir(self, predicate: PathPredicate) -> None:
        """Let ``sync_dir`` of these paths return without making anything durable."""
        self.faults.ignore_sync_dir(predicate)

    def flip_bit(self, path: str, byte: int, bit: int) -> None:
        """Bit rot: flip one bit of a file, wherever that byte is kept."""
        with self.mutex:
            self._file(path).flip_bit(byte, bit)

    def truncate(self, path: str, length: int) -> None:
        """Cut a file off at ``length``, durably."""
        with self.mutex:
            self._file(path).truncate(length)

    # Inspection.

    def files(self) -> dict[str, bytes]:
        """All files as readers see them, by path (with the first ``/``), sorted."""
        found: dict[str, bytes] = {}
        with self.mutex:
            todo = [("", self.tree.directory(ROOT))]
            while todo:
                prefix, directory = todo.pop()
                for name, number in directory.entries.items():
                    node = self.tree.nodes[number]
                    if isinstance(node, DirNode):
                        todo.append((f"{prefix}/{name}", node))
                    elif isinstance(node, FileNode):
                        found[f"{prefix}/{name}"] = node.read(0, node.size())
        return dict(sorted(found.items()))

    def free_bytes(self) -> int:
        """Room left for files that have a name."""
        total = UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes
        nodes = self.tree.nodes.values()
        used = sum(n.size() for n in nodes if isinstance(n, FileNode) and n.links > 0)
        return max(0, total - used)

    def _file(self, path: str) -> FileNode:
        node = self.tree.walk(path).node
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if not isinstance(node, FileNode):
            raise disk_error(errno.EISDIR, path)
        return node
