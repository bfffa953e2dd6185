"""What a Raft node keeps on its disk: hard state, snapshot, and the entries behind it.

Directory:
  LOCK                 held while the store is open
  <number>.log         the file with the highest number is the log; others are leftovers
  <index>.snapshot     the one that the log names is the snapshot; others are leftovers

A new log file is made when the store is opened, when there is a new snapshot, and when the file
is full.  It begins with all that the node has stored, so files before it are not needed:
  1  a new snapshot, if there is one: write it under another name, sync it, rename it, sync the
     directory.  Nothing names it yet.
  2  the new log file, under another name: header, base, zeros; sync it.  ``prepare`` may have
     filled it already.
  3  rename it and sync the directory.  With its name it is the log: the snapshot and all writes
     so far, synced or not, are in force together.
  4  delete the other log files and snapshots.  A crash may bring them back; the next open
     deletes them again.
A crash before 3 leaves the file before, which has all that was synced, and its snapshot.

So no process writes into a file that another one left.  A torn tail is never written over: it
goes with its file.  And what an open returns is durable, though the last process may have died
before it synced it, or because a sync failed.

Invariants:
  R1  What ``sync`` covered is there after every crash, and nothing that was not written.
  R2  A write is there as a whole or not at all, and never without those before it.
  R3  A failed sync is final.  So is any error after a new file has its name: from there on, what
      is written to the file before would be lost.
  R4  Only the node and the group that a directory was made for can open it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from tidelog.core.raft.entries import NO_INDEX, Snapshot, Stored
from tidelog.core.raft.output import Write
from tidelog.errors import BadOption, DiskFull, LogClosed, LogError
from tidelog.formats.raft_log import Base, Change, FileHeader, SnapshotReference
from tidelog.invariants import check
from tidelog.limits import (
    KIB,
    RAFT_LOG_FILE_BYTES_MAX,
    RAFT_LOG_ROOM_BYTES_DEFAULT,
    RAFT_LOG_ROOM_BYTES_MIN,
)
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_directory import take_lock
from tidelog.storage.raft_image import RaftImage
from tidelog.storage.raft_log_file import RaftLogFile, begin_spare, make_log_file
from tidelog.storage.raft_recovery import (
    Found,
    begin_directory,
    check_directory,
    delete_leftovers,
    read_directory,
    write_snapshot,
)
from tidelog.storage.raft_spare import SpareLogFile
from tidelog.storage.vfs import Lock, Vfs
from tidelog.types import NodeId

QUICK_BYTES_MAX = 64 * KIB
ENTRY_BYTES = 64
"""What an entry takes besides its data, about."""
UNPREPARED_SHARE = 8
"""The next file is prepared once this part of the current one is in use: an idle node writes
nothing, and a busy one has it before this one is full, or its frames are many."""


def _about_bytes(write: Write) -> int:
    return ENTRY_BYTES + sum([len(entry.data) + ENTRY_BYTES for entry in write.entries])


def _random_salt() -> int:
    return secrets.randbits(64)


class RaftStore:
    """The disk of one Raft node.  One thread at a time may use it; see ``prepare``."""

    def __init__(
        self,
        vfs: FailStopVfs,
        directory: str,
        lock: Lock,
        found: Found,
        *,
        node: NodeId,
        group: bytes,
        room_bytes: int,
        new_salt: Callable[[], int],
    ) -> None:
        self._vfs = vfs
        self._directory = directory
        self._lock = lock
        self._node = node
        self._group = group
        self._room_bytes = room_bytes
        self._new_salt = new_salt
        self._number = found.number
        self._image = found.image
        self._reference = found.reference
        self._log: RaftLogFile | None = None
        self._spare: SpareLogFile | None = None
        self._may_prepare = True
        self._written_sequence = 0
        self.cut_torn_tail = found.torn
        """Whether the last process stopped inside a write, which was cut off."""

    @classmethod
    def open(
        cls,
        vfs: Vfs,
        directory: str,
        *,
        node: NodeId,
        group: bytes,
        first: Snapshot | None,
        room_bytes: int = RAFT_LOG_ROOM_BYTES_DEFAULT,
        new_salt: Callable[[], int] = _random_salt,
    ) -> tuple[RaftStore, Stored]:
        """The store in ``directory``, and what is in it.

        With ``first`` a directory that is new or empty becomes the store of a node that has
        stored nothing but this snapshot (index 0; a node that is to join a group has no voters
        in it).  A store that exists ignores it.  Give it only to a node that never ran: a voter
        that lost its disk and begins anew has forgotten its votes.
        """
        if not RAFT_LOG_ROOM_BYTES_MIN <= room_bytes <= RAFT_LOG_FILE_BYTES_MAX // 4:
            raise BadOption(f"room of {room_bytes} bytes in a Raft log file")
        check(first is None or first.head.index == NO_INDEX, "a first snapshot has index 0")
        disk = FailStopVfs(vfs)
        check_directory(disk, directory, create=first is not None)
        lock = take_lock(disk, directory)
        try:
            found = read_directory(disk, directory, node=node, group=group)
            if found is None:
                found = begin_directory(disk, directory, first)
            stored = found.stored()
            store = cls(
                disk,
                directory,
                lock,
                found,
                node=node,
                group=group,
                room_bytes=room_bytes,
                new_salt=new_salt,
            )
            store._begin_file(found.image, found.reference)
        except BaseException:
            lock.release()
            raise
        return store, stored

    def write(self, write: Write) -> None:
        """Put one write behind those before it; ``sync`` makes it durable.

        One with a snapshot, and one that fills the file, is durable at once and takes several
        syncs.  After DiskFull or Busy nothing has changed, and it may be tried again.
        """
        log = self._running()
        check(write.sequence > self._written_sequence, "writes come in the order of their numbers")
        flaw = self._image.flaw_in(write)
        check(flaw is None, flaw or "")
        if write.snapshot is None and log.append(Change(write.hard_state, write.entries)):
            self._image.apply(write)
        else:
            self._rewrite(write)
        self._written_sequence = write.sequence

    def is_quick(self, writes: Sequence[Write]) -> bool:
        """Whether these writes and a sync take no longer than a few small ones to one file do."""
        size = sum([_about_bytes(write) for write in writes])
        return (
            size <= QUICK_BYTES_MAX
            and self._running().has_room(size + QUICK_BYTES_MAX)
            and all(write.snapshot is None for write in writes)
        )

    def needs_preparing(self) -> bool:
        """Whether the next log file should be prepared by now, and is not."""
        log = self._log
        if log is None or not self._can_prepare:
            return False
        return UNPREPARED_SHARE * log.used_bytes >= self._room_bytes

    @property
    def _can_prepare(self) -> bool:
        return self._may_prepare and (self._spare is None or not self._spare.is_whole)

    def prepare(self) -> None:
        """Do a piece of the next log file, so that no write has to wait for it later.

        Another thread may meanwhile ``write`` and ``sync`` what ``is_quick``, and nothing else.
        If the disk is full, the file is made when it is needed.
        """
        self._running()
        if not self._can_prepare:
            return
        spare = self._spare
        try:
            if spare is None:
                self._spare = spare = begin_spare(
                    self._vfs, self._directory, self._number + 1, room_bytes=self._room_bytes
                )
            spare.fill()
        except DiskFull:
            self._may_prepare = False
            self._drop_spare()

    def sync(self) -> None:
        """Make all writes so far durable.  StorageFailed is final: open the store again."""
        self._running().sync()

    def close(self) -> None:
        """Make all writes durable, unless the store has failed, and release files and lock."""
        log, self._log = self._log, None
        try:
            if log is not None and self._vfs.failed is None:
                log.end()
        finally:
            self._drop_spare()
            if log is not None:
                log.close()
            self._lock.release()

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.drop()

    def _running(self) -> RaftLogFile:
        if self._log is None:
            raise LogClosed(f"the Raft log in {self._directory} is closed")
        self._vfs.check_running()
        return self._log

    def _rewrite(self, write: Write) -> None:
        """Take a write into a new file, as a part of its base."""
        image = self._image.copy()
        image.apply(write)
        reference = self._reference
        if write.snapshot is not None:
            reference = write_snapshot(self._vfs, self._directory, write.snapshot)
        self._begin_file(image, reference)

    def _begin_file(self, image: RaftImage, reference: SnapshotReference) -> None:
        """Steps 2 to 4.  An error before the file has its name leaves everything as it was."""
        base = Base(image.hard_state, reference, tuple(image.entries))
        blank = FileHeader(self._number + 1, self._new_salt(), self._group, self._node, 0)
        spare, self._spare, self._may_prepare = self._spare, None, True
        header, offset = make_log_file(
            self._vfs, self._directory, base, blank, room_bytes=self._room_bytes, spare=spare
        )
        try:
            delete_leftovers(self._vfs, self._directory, header.number, reference)
            log = RaftLogFile(self._vfs, self._directory, header, offset)
        except LogError as error:
            raise self._vfs.stop(f"a Raft log file could not be replaced: {error}") from error
        if self._log is not None:
            self._log.close()
        self._log, self._number = log, header.number
        self._image, self._reference = image, reference
