"""A log channel: one writer's way into a datastore, one log session after the other.

C1  what was refused was not added; the log session stays as it was
C2  at most ``SESSION_BUFFER_BYTES`` and one entry pile up in memory
C3  one thread at a time uses a channel; a second one is told
C4  nothing is sent that the store would not take: no write at or below the GC boundary, none
    that finds no room
C5  a BLOB that an entry of the open log session refers to stays until that has ended
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Final

from tidelog.core.session.output import ChannelBatch
from tidelog.datastore.blob_pool import BlobUsers
from tidelog.datastore.epoch_store import EpochStore
from tidelog.datastore.lanes import Lanes
from tidelog.datastore.spans import Spans
from tidelog.errors import BadEntry, LogError, StaleWrite, WrongState
from tidelog.formats.channel_batch import STAMP_STORAGE, encode_channel_batch
from tidelog.formats.entry import Entry, Kind, check_entry
from tidelog.limits import SESSION_BUFFER_BYTES, WRITE_VERSION_END

_ENTRY_BYTES: Final = 64
"""What an entry takes besides its key, its value and its BLOBs, about."""
_BLOB_BYTES: Final = 8


class Wiring:
    """What a channel needs of its datastore once that is ready."""

    __slots__ = ("boundary", "immediate", "lanes", "spans", "store", "users")

    def __init__(
        self,
        lanes: Lanes,
        store: EpochStore,
        users: BlobUsers,
        spans: Spans,
        *,
        immediate: bool,
    ) -> None:
        self.lanes = lanes
        self.store = store
        self.users = users
        self.spans = spans
        self.immediate = immediate
        self.boundary = store.boundary
        """Writes at or below it are refused; ahead of the store's while that is being set."""


class LogChannel:
    """Made by ``Datastore.create_channel``; takes entries once the datastore is ready.

    Entries belong to a log session, and a log session to the epoch in which it begins.
    """

    def __init__(self, number: int, wiring: Callable[[], Wiring]) -> None:
        self._number = number
        self._wiring = wiring
        self._in_use = threading.Lock()
        self._epoch = 0
        """Of the open log session; 0 if there is none."""
        self._llsn = 0
        """Where the next entry goes."""
        self._entries: list[Entry] = []
        self._bytes = 0
        self._blobs: list[int] = []
        self._lowest = WRITE_VERSION_END
        """The lowest write version in the open log session."""

    @property
    def number(self) -> int:
        """Channels of an application are counted from 1."""
        return self._number

    @property
    def epoch(self) -> int:
        """The epoch of the open log session; 0 if there is none."""
        return self._epoch

    def begin_session(self) -> int:
        """Begin a log session in the current epoch, which is returned."""
        wiring = self._claim()
        try:
            if self._epoch:
                raise WrongState("a log session is open in this channel: end or abort it first")
            number = self._number
            self._epoch = wiring.lanes.change(lambda master: master.begin(number))
            self._llsn = wiring.store.end_llsn(number)
            return self._epoch
        finally:
            self._in_use.release()

    def add_entry(
        self,
        storage_id: int,
        key: bytes,
        value: bytes,
        write_version: int,
        blobs: Sequence[int] = (),
    ) -> None:
        """Write a key; of several writes the one with the highest write version counts."""
        entry = Entry(Kind.PUT, value, key, storage_id, write_version, 0, tuple(blobs))
        self._add(entry)

    def remove_entry(self, storage_id: int, key: bytes, write_version: int) -> None:
        """Delete a key: writes of it with lower versions do not count any more."""
        self._add(Entry(Kind.DELETE, b"", key, storage_id, write_version))

    def remove_storage(self, storage_id: int, write_version: int) -> None:
        """Delete all keys of a storage that were written with lower versions."""
        self._add(Entry(Kind.DELETE_STORAGE, b"", b"", storage_id, write_version))

    def end_session(self) -> None:
        """End the log session: its entries are durable here and on every replica then.

        They count only once their epoch was group-committed (``Datastore.wait_for``).
        """
        wiring = self._claim()
        try:
            self._require_session()
            begin = perf_counter_ns()
            batches = self._seal(wiring)
            try:
                self._write(wiring, batches, end=True)
            finally:
                wiring.store.blobs.unpin(self._blobs)
                self._close_session()
            wiring.spans.session_end.add(perf_counter_ns() - begin)
        finally:
            self._in_use.release()

    def abort_session(self) -> None:
        """End the log session without its entries.  After a failure there is nothing to do."""
        wiring = self._claim()
        try:
            self._require_session()
            number, blobs = self._number, self._blobs
            self._close_session()
            self._give_back(wiring, blobs)
            if wiring.lanes.failure is None:
                wiring.lanes.call(number, lambda master: master.abort(number))
        finally:
            self._in_use.release()

    @contextmanager
    def session(self) -> Iterator[LogChannel]:
        """A log session that ends with the block, or is aborted if either raises."""
        self.begin_session()
        try:
            yield self
            self.end_session()
        except BaseException:
            self._abort_after_error()
            raise

    @property
    def lowest_version(self) -> int:
        """The lowest write version in the open log session, or one that is too high for any."""
        return self._lowest

    def wait_unused(self, seconds: float) -> bool:
        """Wait until no thread is in a call of this channel, and keep all out from then on."""
        return self._in_use.acquire(timeout=seconds)

    # -- inside -------------------------------------------------------------------------------

    def _claim(self) -> Wiring:
        """C3; whoever claimed the channel releases ``_in_use``."""
        if not self._in_use.acquire(blocking=False):
            self._wiring()  # Closed, perhaps: then this is what to tell.
            raise WrongState(
                f"log channel {self._number} is used by another thread at this moment: "
                "give each thread a channel of its own"
            )
        try:
            return self._wiring()
        except BaseException:
            self._in_use.release()
            raise

    def _require_session(self) -> None:
        if not self._epoch:
            raise WrongState("no log session is open in this channel: call begin_session() first")

    def _add(self, entry: Entry) -> None:
        wiring = self._claim()
        try:
            self._require_session()
            _check(entry)
            held = len(self._blobs)
            self._hold(wiring, entry.blobs)
            try:
                self._take_in(wiring, entry)
            except LogError:
                self._give_back(wiring, self._blobs[held:])  # C1
                del self._blobs[held:]
                raise
        finally:
            self._in_use.release()

    def _take_in(self, wiring: Wiring, entry: Entry) -> None:
        _check_blobs(wiring, entry.blobs)
        self._check_version(wiring, entry)
        self._entries.append(entry)
        self._bytes += _size_of(entry)
        if wiring.immediate or self._bytes >= SESSION_BUFFER_BYTES:
            self._send_ahead(wiring)

    def _hold(self, wiring: Wiring, blobs: Sequence[int]) -> None:
        """C5; before it is looked whether they are there, so that they stay if they are."""
        if blobs:
            wiring.users.take(blobs)
            wiring.store.blobs.pin(blobs)
            self._blobs.extend(blobs)

    def _give_back(self, wiring: Wiring, blobs: Sequence[int]) -> None:
        """No entry took these after all."""
        wiring.users.give_back(blobs)
        wiring.store.blobs.unpin(blobs)

    def _check_version(self, wiring: Wiring, entry: Entry) -> None:
        """C4: the version is noted, then the boundary read.  Whoever raises the boundary does it
        the other way round, so that at least one of the two sees the other.
        """
        version = entry.write_version or 0
        before = self._lowest
        self._lowest = min(before, version)
        if 0 < wiring.boundary >= version:
            self._lowest = before
            raise StaleWrite(
                f"write version {version} is not above the GC boundary {wiring.boundary}: "
                "write with a newer version"
            )

    def _send_ahead(self, wiring: Wiring) -> None:
        """Hand on what piled up; the log session goes on."""
        try:
            batches = self._seal(wiring)
        except LogError:
            entry = self._entries.pop()  # C1
            self._bytes -= _size_of(entry)
            raise
        self._write(wiring, batches, end=False)

    def _seal(self, wiring: Wiring) -> tuple[ChannelBatch, ...]:
        """What piled up, as a batch; Busy if the store wants older epochs to be recorded first."""
        if not self._entries:
            return ()
        batch = encode_channel_batch(self._number, self._epoch, self._llsn, self._entries)
        wiring.store.reserve(self._number, len(batch.data))
        return (batch,)

    def _write(self, wiring: Wiring, batches: tuple[ChannelBatch, ...], *, end: bool) -> None:
        if batches:
            self._llsn = batches[-1].llsn_end
            self._entries, self._bytes = [], 0
        number = self._number
        wiring.lanes.call(number, lambda master: master.write(number, batches, end=end))

    def _close_session(self) -> None:
        self._epoch = 0
        self._entries, self._bytes, self._blobs = [], 0, []
        self._lowest = WRITE_VERSION_END

    def _abort_after_error(self) -> None:
        if self._epoch:
            try:
                self.abort_session()
            except LogError:
                pass  # The error that led here tells more.


def _size_of(entry: Entry) -> int:
    return len(entry.key) + len(entry.value) + _BLOB_BYTES * len(entry.blobs) + _ENTRY_BYTES


def _check(entry: Entry) -> None:
    """C1."""
    if entry.write_version is None:
        raise BadEntry("an entry of a log channel needs a write version")
    if entry.storage_id == STAMP_STORAGE:
        raise BadEntry(f"storage {STAMP_STORAGE} is the datastore's own: use another one")
    check_entry(entry)


def _check_blobs(wiring: Wiring, blobs: tuple[int, ...]) -> None:
    for blob in blobs:
        if wiring.store.blobs.size(blob) is None:
            raise BadEntry(f"BLOB {blob} does not exist: register it in a BlobPool first")
