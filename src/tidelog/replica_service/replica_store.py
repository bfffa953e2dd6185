"""The datastore of a replica, which is made when the first session begins.

Carries out what the session core wants of the disk.  Methods that wait for it belong into threads.

R1  the parts of a BLOB are visible under its name only once all of them are durable
R2  a BLOB whose rest will not come leaves nothing behind
R3  the directory is locked from ``open`` on, while it is empty too: it has one service
"""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter_ns
from typing import assert_never

from tidelog.core.session.output import (
    Commit,
    DropBlob,
    Prepare,
    SetBoundary,
    StoreOutput,
    Write,
    WriteBlob,
)
from tidelog.datastore.epoch_store import NO_TIME, EpochStore, Timing
from tidelog.embedded.options import Options
from tidelog.errors import LogClosed, LogError, NotALog, WrongLog
from tidelog.storage.blob_store import BlobWriter
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_creation import check_only_leftovers
from tidelog.storage.log_directory import check_way, parent_of, take_lock
from tidelog.storage.node_store import MANIFEST_NAME
from tidelog.storage.vfs import Lock, Vfs


class ReplicaStore:
    """Calls for one channel come one after the other; those for several may come at once."""

    def __init__(self, vfs: Vfs, path: str, options: Options | None = None) -> None:
        self._vfs = vfs
        self._path = path
        self._options = options
        self._store: EpochStore | None = None
        self._lock: Lock | None = None
        """Of the directory, while there is no store that has its own."""
        self._writers: dict[tuple[int, int], BlobWriter] = {}
        """Channel and BLOB → its parts so far."""

    @property
    def store(self) -> EpochStore | None:
        """None while the replica is empty."""
        return self._store

    @property
    def stamp(self) -> str:
        """Which life of a master recorded the last epoch; "" if none did."""
        return "" if self._store is None else self._store.stamp

    @property
    def failure(self) -> LogError | None:
        """Why nothing can be written any more; None while all is well."""
        return None if self._store is None else self._store.failure

    def open(self) -> None:
        """Open what is there; an empty replica only gets its directory.

        NotALog or CorruptData if there is something else, be it a store that lost its manifest.
        LogLocked if another process has the directory (R3).
        """
        disk = FailStopVfs(self._vfs)
        check_way(disk, self._path)
        if disk.stat(parent_of(self._path)) is None:
            raise NotALog(f"there is no directory {parent_of(self._path)}: create it first")
        disk.make_dir(self._path)
        self._take_lock()
        try:
            if self._vfs.stat(f"{self._path}/{MANIFEST_NAME}") is None:
                check_only_leftovers(FailStopVfs(self._vfs), self._path)
            else:
                self._store = self._make_store(create=False)
        except BaseException:
            self._let_go()
            raise

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._let_go()

    def has_blob(self, blob: int) -> bool:
        """Whether a BLOB is there, complete."""
        return self._store is not None and self._store.blobs.size(blob) is not None

    # -- what the core wants ------------------------------------------------------------------

    def prepare(self, wanted: Prepare) -> tuple[int, ...]:
        """Make the store fit for a new session; returns where each of its channels ends."""
        if self._store is None:
            self._store = self._make_store(create=True, configuration_id=wanted.configuration_id)
        store = self._store
        if store.configuration_id != wanted.configuration_id:
            # It was made for a session that could not begin all the same.
            raise WrongLog(f"the replica holds the data of {store.configuration_id}")
        store.drop_unrecorded()
        store.make_channels(max(wanted.channels, 1))
        return tuple(store.end_llsn(channel) for channel in range(wanted.channels))

    def carry_out(self, output: StoreOutput | DropBlob) -> Timing:
        """Do it; returns how long writing and syncing took."""
        match output:
            case Write():
                return self._write(output)
            case Commit():
                return self._opened().record(output.epoch)
            case SetBoundary():
                self._opened().set_boundary(output.version)
                return NO_TIME
            case WriteBlob():
                return self._write_blob(output)
            case DropBlob():
                self._drop_blob(output)
                return NO_TIME
            case Prepare():
                self.prepare(output)
                return NO_TIME
        assert_never(output)

    def append_at_once(self, write: Write) -> Timing | None:
        """Take entries in that need not be durable yet; None if that would have to wait."""
        taken = self._opened().try_append(write.channel, write.epoch, write.batches)
        return NO_TIME if taken else None

    def compact(self) -> list[str]:
        """Let go of what the boundary makes needless, as far as that is worth while.

        Returns what did not work.
        """
        return self._opened().compact().failures

    def _make_store(self, *, create: bool, configuration_id: str | None = None) -> EpochStore:
        """The store, which takes the lock over; without one the lock stays here."""
        self._let_go()
        try:
            return EpochStore(
                self._vfs,
                self._path,
                self._options,
                create=create,
                configuration_id=configuration_id,
            )
        except BaseException:
            with suppress(LogError):  # Who was quicker has it, and is told of in the first error.
                self._take_lock()
            raise

    def _take_lock(self) -> None:
        self._lock = take_lock(FailStopVfs(self._vfs), self._path)

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _opened(self) -> EpochStore:
        if self._store is None:
            raise LogClosed("the replica is empty: begin a session first")
        return self._store

    def _write(self, write: Write) -> Timing:
        store = self._opened()
        appended = flushed = NO_TIME
        if write.batches:
            appended = store.append(write.channel, write.epoch, write.batches)
        if write.cut_to is not None:
            store.cut(write.channel, write.cut_to)
        if write.flush:
            flushed = store.flush(write.channel)
        return appended.plus(flushed)

    # -- BLOBs --------------------------------------------------------------------------------

    def _write_blob(self, part: WriteBlob) -> Timing:
        place = part.channel, part.blob
        began = perf_counter_ns()
        if part.offset == 0:
            self._writers[place] = self._opened().blobs.begin(part.blob, part.size)
        writer = self._writers[place]
        if part.data:
            writer.write(part.offset, part.data)
        written = perf_counter_ns()
        if part.offset + len(part.data) < part.size:
            return Timing((written - began) // 1000, 0)
        writer.finish()
        del self._writers[place]
        return Timing((written - began) // 1000, (perf_counter_ns() - written) // 1000)

    def _drop_blob(self, dropped: DropBlob) -> None:
        writer = self._writers.pop((dropped.channel, dropped.blob), None)
        if writer is not None:
            writer.discard()
