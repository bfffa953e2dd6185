"""The entries of a datastore on this machine: log channels, epochs, BLOBs.

It is a log with one topic whose streams are the log channels.  Entries are written as they come;
an epoch is recorded by a cut over all channels, in one frame.  What lies behind the last cut does
not count, and is dropped at the next start.  Blocking and thread-safe.

Invariants, besides those of ``epoch_writer`` and ``unrecorded``:
  Z4  Epochs and the GC boundary never go back.
  Z5  A BLOB goes only when no entry refers to it, recorded or not, and nobody holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.core.session.epochs import BOUNDARY_END
from tidelog.core.session.output import ChannelBatch
from tidelog.datastore.blob_garbage import referred_blobs
from tidelog.datastore.channel_tail import WaitingBatch
from tidelog.datastore.epoch_requests import (
    NO_TIME,
    ActionRequest,
    EpochRequest,
    FlushRequest,
    RecordRequest,
    Timing,
)
from tidelog.datastore.epoch_writer import EpochWriter, drop_at_open
from tidelog.datastore.recorded_state import StoredEntry, find_entry, stored_entries
from tidelog.datastore.unrecorded import Unrecorded
from tidelog.embedded.backlog import Backlog
from tidelog.embedded.commit_queue import CommitQueue
from tidelog.embedded.engine import DATASTORE_TOPIC
from tidelog.embedded.maintenance import Maintenance, Worker
from tidelog.embedded.options import Options
from tidelog.errors import (
    BadOption,
    LogClosed,
    LogError,
    NotALog,
    StorageFailed,
    WrongLog,
)
from tidelog.formats.channel_batch import STAMP_KEY, STAMP_STORAGE
from tidelog.formats.manifest import LOG_ID_BYTES, TopicManifest
from tidelog.interface.figures import CompactionResult
from tidelog.limits import ORDER_NUMBER_END, STREAMS_PER_TOPIC_MAX
from tidelog.storage.blob_store import BlobStore
from tidelog.storage.node_store import NodeStore
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.vfs import Vfs

__all__ = ["DATASTORE_TOPIC", "NO_TIME", "EpochStore", "StoredEntry", "Timing"]


class EpochStore:
    """One open datastore; handles of several threads share it."""

    def __init__(
        self,
        vfs: Vfs,
        path: str,
        options: Options | None = None,
        *,
        create: bool = True,
        configuration_id: str | None = None,
    ) -> None:
        """Open the datastore at ``path``, or make one that goes by ``configuration_id``."""
        self._options: Final = options or Options()
        self._node: Final = _open_node(vfs, path, self._options, create, configuration_id)
        try:
            topic = _find_topic(self._node)
            drop_at_open(self._node, topic)
            self.blobs: Final = BlobStore(self._node.vfs, path)
        except BaseException:
            self._node.close()
            raise
        self._unrecorded = Unrecorded(
            self._node,
            self.blobs,
            len(topic.streams),
            wal_file_bytes=self._options.wal_file_bytes,
        )
        self._backlog = _start_upkeep(self._node, self._options)
        self._writer = EpochWriter(self._node, topic, self._unrecorded, self._backlog)
        self._queue: CommitQueue[EpochRequest] = CommitQueue(self._writer.commit)
        self._setting_boundary = threading.Lock()
        self._collecting = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False

    # -- facts ---------------------------------------------------------------------------------

    @property
    def configuration_id(self) -> str:
        """Which datastore this is; the same on the master and its replicas."""
        return self._node.manifest.log_id.hex()

    @property
    def epoch(self) -> int:
        """The last recorded epoch; 0 before the first."""
        return self._writer.epoch

    @property
    def boundary(self) -> int:
        """The GC boundary; 0 if none was set."""
        return max(self._node.streams[stream].boundary for stream in self._topic.streams)

    @property
    def stamp(self) -> str:
        """What the life of a master that recorded the last epoch left behind; "" if none did."""
        found = find_entry(self._node, self._topic, STAMP_STORAGE, STAMP_KEY)
        return found.value.decode("ascii", "replace") if found is not None else ""

    @property
    def channels(self) -> int:
        return len(self._topic.streams)

    @property
    def is_forked(self) -> bool:
        """Whether this is another process than the one that opened the datastore."""
        return self._node.vfs.is_forked

    def check_owner(self) -> None:
        """LogClosed in a process that was forked from the one that opened the datastore."""
        self._node.vfs.check_owner()

    @property
    def failure(self) -> LogError | None:
        """Why nothing can be written any more; None while all is well."""
        reason = self._node.vfs.failed
        if reason is None and self._backlog.worker is not None:
            error = self._backlog.worker.error
            reason = None if error is None or isinstance(error, LogError) else str(error)
        return None if reason is None else StorageFailed(f"the datastore has stopped: {reason}")

    @property
    def _topic(self) -> TopicManifest:
        return self._writer.topic

    def end_llsn(self, channel: int) -> int:
        """Behind all that was appended to a log channel."""
        return self._unrecorded.tail(channel).end_llsn

    # -- writing -------------------------------------------------------------------------------

    def make_channels(self, count: int) -> None:
        """Have at least so many log channels; durable when this returns."""
        if not 1 <= count <= STREAMS_PER_TOPIC_MAX:
            raise BadOption(
                f"a datastore has 1 to {STREAMS_PER_TOPIC_MAX} log channels, not {count}"
            )
        if count > self.channels:
            self._submit(ActionRequest(lambda: self._writer.add_channels(count)))

    def reserve(self, channel: int, size: int) -> None:
        """Keep room for what a channel appends next.

        Busy if it should wait until older epochs are recorded.
        """
        self._unrecorded.reserve(channel, size)

    def append(self, channel: int, epoch: int, batches: Sequence[ChannelBatch]) -> Timing:
        """Take batches in; they are durable after ``flush`` or ``record``.

        Nothing is taken if this raises.  WrongState: they do not continue the channel, or their
        epoch was recorded before.  StaleWrite: a write lies at or below the GC boundary.
        """
        timing = NO_TIME
        while not self.try_append(channel, epoch, batches):
            timing = timing.plus(self._submit(FlushRequest()))
        return timing

    def try_append(self, channel: int, epoch: int, batches: Sequence[ChannelBatch]) -> bool:
        """The same, but False instead of waiting until earlier batches are written."""
        waiting = [WaitingBatch.of(epoch, batch) for batch in batches]
        self._check_open()
        self._node.vfs.check_running()
        return self._unrecorded.take_in(channel, epoch, waiting)

    def flush(self, channel: int) -> Timing:
        """Make durable what was appended to a channel (Z1)."""
        self._check_open()
        if self._unrecorded.tail(channel).is_written:
            return NO_TIME
        return self._submit(FlushRequest())

    def record(self, epoch: int) -> Timing:
        """Make durable all entries of epochs up to this one, and the epoch itself (Z1, Z2)."""
        if not 0 < epoch < ORDER_NUMBER_END:
            raise BadOption(f"{epoch} is no epoch: it is positive and below 2**63")
        return self._submit(RecordRequest(epoch))

    def cut(self, channel: int, llsn_end: int) -> None:
        """The unrecorded entries from ``llsn_end`` on go, durably."""
        self._unrecorded.tail(channel)
        self._submit(ActionRequest(lambda: self._writer.cut_back({channel: llsn_end})))

    def drop_unrecorded(self) -> None:
        """All unrecorded entries go, durably; BLOBs that waited for entries may go, too."""
        self._submit(ActionRequest(self._writer.cut_back_all))
        self.blobs.forget_fresh()

    def set_boundary(self, version: int) -> None:
        """Of each key only the newest write at or below ``version`` is needed, and all above.

        Durable when this returns.  Writes at or below it are refused from now on.
        """
        if not 0 <= version < BOUNDARY_END:
            raise BadOption(f"the GC boundary {version} must be below {BOUNDARY_END}")
        with self._setting_boundary:
            if version < self.boundary:
                raise BadOption(f"the GC boundary is {self.boundary} and does not go back")
            if version > self.boundary:
                self._set_boundary(version)

    def _set_boundary(self, version: int) -> None:
        self._unrecorded.boundary = version
        try:
            self._submit(ActionRequest(lambda: self._writer.write_boundary(version)))
        except LogError as error:
            if error.definite:
                self._unrecorded.boundary = self.boundary
            raise

    def _submit(self, request: EpochRequest) -> Timing:
        self._queue.submit(request, self._options.append_timeout_seconds)
        if request.error is not None:
            raise request.error
        return request.timing

    # -- reading -------------------------------------------------------------------------------

    def entries(self) -> Iterator[StoredEntry]:
        """Of each key the greatest recorded write, unless it was deleted, in no special order."""
        self._check_open()
        return stored_entries(self._node, self._topic)

    def get(self, storage_id: int, key: bytes) -> StoredEntry | None:
        """The greatest recorded write of a key; None if there is none, or it was deleted."""
        self._check_open()
        if storage_id == STAMP_STORAGE:
            return None
        return find_entry(self._node, self._topic, storage_id, key)

    # -- keeping small -------------------------------------------------------------------------

    def compact(self, *, full: bool = False) -> CompactionResult:
        """Snapshot, then rewrite what is mostly dead; then BLOBs go that nothing refers to.

        ``full``: all that has a dead entry, and what is still in the WAL, too.
        """
        self._check_open()
        maintenance = self._backlog.maintenance
        stores = [self._node.streams[stream] for stream in self._topic.streams]
        maintenance.snapshot(stores[0])
        if full:
            self._submit(ActionRequest(self._node.wal.roll))
            maintenance.flush_rolled()
        total = CompactionResult()
        for store in stores:
            total.add(maintenance.major(store, full=full))
        self._delete_garbage()
        return total

    def _delete_garbage(self) -> None:
        """Delete BLOBs that nothing refers to (Z5)."""
        with self._collecting, self._unrecorded.watched() as delete_unreferred:
            candidates = [blob for blob in self.blobs.ids() if not self.blobs.held(blob)]
            kept = referred_blobs(self._node, self._topic) if candidates else ()
            for blob in candidates:
                if blob not in kept:
                    delete_unreferred(blob)

    # -- end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the directory.  What is not recorded will be dropped at the next start."""
        with self._closing:
            if self._closed:
                return
            self._queue.close()
            self.blobs.close()
            self._backlog.stop()
            self._closed = True
            self._node.finish()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the datastore is closed")


def _start_upkeep(node: NodeStore, options: Options) -> Backlog:
    maintenance = Maintenance(node, options.compaction, options.snapshot_bytes)
    worker = Worker(maintenance, options.tick_seconds) if options.background else None
    backlog = Backlog(maintenance, worker, options.append_timeout_seconds)
    backlog.after_order()
    return backlog


def _open_node(
    vfs: Vfs, path: str, options: Options, create: bool, configuration_id: str | None
) -> NodeStore:
    log_id = _log_id(configuration_id)
    node = open_node_store(vfs, path, StoreOptions(options.wal_file_bytes, create, log_id))
    if log_id is not None and node.manifest.log_id != log_id:
        found = node.manifest.log_id.hex()
        node.close()
        raise WrongLog(f"{path} holds the datastore {found}, not {configuration_id}")
    return node


def _log_id(configuration_id: str | None) -> bytes | None:
    if configuration_id is None:
        return None
    try:
        log_id = bytes.fromhex(configuration_id)
    except ValueError:
        log_id = b""
    if len(log_id) != LOG_ID_BYTES or log_id.hex() != configuration_id:
        raise BadOption(
            f"{configuration_id!r} is no configuration id: it has 32 hex digits, in small letters"
        )
    return log_id


def _find_topic(node: NodeStore) -> TopicManifest:
    """The topic of a datastore; it is made where a crash came between it and the manifest."""
    for topic in node.topics.values():
        if topic.name == DATASTORE_TOPIC:
            return topic
    if node.topics:
        raise NotALog(f"{node.path} holds a log, not a datastore: open it with tidelog.open")
    return node.add_topic(DATASTORE_TOPIC, streams=1, versions="explicit", key_streams=0)
