"""``tidelog.Datastore``: entries of an application, in epochs, on this machine and its replicas.

S1  calls come in their order: channels and listeners, ``ready``, the rest, ``close``; any other
    call is refused and changes nothing
S2  ``ready`` does all of its work or leaves nothing behind, and may be called again then
S3  ``close`` returns in bounded time, whatever a replica or another thread does
S4  each life of a master leaves a random stamp in its first epoch: two sides with the same last
    epoch and the same stamp have the same history
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import Final, Self

from tidelog.core.session.epochs import BOUNDARY_END
from tidelog.core.session.master import Master
from tidelog.core.session.output import CONTROL, Durability
from tidelog.datastore.blob_pool import BlobPool, BlobUsers
from tidelog.datastore.endpoints import find_replicas
from tidelog.datastore.epoch_store import EpochStore, StoredEntry
from tidelog.datastore.group_commit import GroupCommitter, Listener
from tidelog.datastore.lanes import Lanes
from tidelog.datastore.log_channel import LogChannel, Wiring
from tidelog.datastore.metrics import Gauges, render_metrics
from tidelog.datastore.options import DatastoreOptions, Sending
from tidelog.datastore.replicas import Replicas
from tidelog.datastore.spans import SpanFigures, Spans
from tidelog.datastore.write_version import WriteVersion
from tidelog.errors import BadEntry, BadOption, LogClosed, LogError, WrongState
from tidelog.formats.channel_batch import STAMP_KEY, STAMP_STORAGE, encode_channel_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.figures import CompactionResult
from tidelog.limits import STREAMS_PER_TOPIC_MAX
from tidelog.net.security import ClientSecurity
from tidelog.storage.blob_reader import BlobReader
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import Vfs

OWN_CHANNEL: Final = 0
"""The log channel of the datastore itself; those of the application come behind it."""
CHANNELS_MAX: Final = STREAMS_PER_TOPIC_MAX - 1


class State(Enum):
    """Where a datastore is in its life."""

    NEW = "not ready"
    READY = "ready"
    CLOSED = "closed"


class Datastore:
    """Entries with keys, versions and epochs, and a copy of them on each replica.

    Channels are made first; ``ready`` then recovers what is there and opens sessions with the
    replicas.  All calls but those of one channel are thread-safe.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        replicas: str | Sequence[str] | None = None,
        options: DatastoreOptions | None = None,
        security: ClientSecurity | None = None,
        vfs: Vfs | None = None,
    ) -> None:
        """``replicas``: their addresses; None: those in TIDELOG_REPLICATION_ENDPOINT."""
        self._path = str(path) if vfs is not None else str(Path(path).absolute())
        self._vfs = vfs or OsVfs()
        self._named_replicas = replicas
        self._options = options or DatastoreOptions()
        self._security = security
        self._state = State.NEW
        self._changing = threading.Lock()
        """Held while the state changes."""
        self._channels: list[LogChannel] = []
        self._listeners: list[Listener] = []
        self._spans = Spans()
        self._running: _Running | None = None

    # -- before it is ready -------------------------------------------------------------------

    def create_channel(self) -> LogChannel:
        """A log channel, for one thread at a time; ``ready`` opens it."""
        with self._changing:
            self._require_new("create channels")
            if len(self._channels) >= CHANNELS_MAX:
                raise BadOption(f"a datastore has at most {CHANNELS_MAX} log channels")
            channel = LogChannel(OWN_CHANNEL + 1 + len(self._channels), self._wiring)
            self._channels.append(channel)
            return channel

    def on_notice(self, listener: Listener) -> None:
        """Call ``listener`` with each ``Notice``, in order, in the group commit's thread."""
        with self._changing:
            self._require_new("name listeners")
            self._listeners.append(listener)

    def ready(self) -> None:
        """Recover what is there and open sessions with all replicas; or raise why not (S2)."""
        with self._changing:
            self._require_new("call ready()")
            if not self._channels:
                raise WrongState("there is no log channel: call create_channel() before ready()")
            endpoints = find_replicas(self._named_replicas)
            security = self._security or ClientSecurity.from_environment()
            replicas = Replicas(endpoints, security, self._options)
            self._running = self._start(replicas)
            self._state = State.READY

    def _start(self, replicas: Replicas) -> _Running:
        store = EpochStore(self._vfs, self._path, self._options.store)
        try:
            channels = 1 + len(self._channels)
            store.make_channels(channels)
            master = Master(
                configuration_id=store.configuration_id,
                epoch=store.epoch,
                stamp=store.stamp,
                ends=[store.end_llsn(number) for number in range(channels)],
                replicas=len(replicas),
                options=self._options.for_master(),
                boundary=store.boundary,
            )
            lanes = Lanes(master, store, replicas, self._spans)
            _open_sessions(lanes, replicas, channels)
        except BaseException:
            replicas.close()
            store.close()
            raise
        return _Running(master, store, replicas, lanes, self._spans, self._listeners, self._options)

    # -- epochs -------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int:
        """The last epoch that was recorded: what a restart would find."""
        return self._run().store.epoch

    @property
    def epoch(self) -> int:
        """The current epoch; 0 before the first switch."""
        return self._run().master.epoch

    def switch_epoch(self, epoch: int) -> None:
        """Begin an epoch; earlier ones are group-committed once their log sessions have ended."""
        running = self._run()
        if not isinstance(epoch, int):
            raise BadOption(f"the epoch is a {type(epoch).__name__}: use an int")
        running.switch(epoch)

    def wait_for(
        self,
        epoch: int,
        durability: Durability = Durability.PROPAGATED,
        timeout: float = 60.0,
    ) -> None:
        """Return when all epochs up to this one are as safe as that.

        DeadlineExceeded after ``timeout`` seconds; ReplicationFailed if it cannot happen any more.
        """
        self._run().lanes.wait_for(epoch, durability, timeout)

    # -- what is stored -----------------------------------------------------------------------

    def entries(self) -> Iterator[StoredEntry]:
        """All keys of all storages as of the last recorded epoch, with their newest values."""
        return self._run().store.entries()

    def get(self, storage_id: int, key: bytes) -> StoredEntry | None:
        """A key as of the last recorded epoch; None if it is not there or was deleted."""
        return self._run().store.get(storage_id, key)

    def set_gc_boundary(self, version: int) -> None:
        """Nobody needs versions of a key that are older than its newest at or below this one.

        New writes must lie above it, those of open log sessions too.
        """
        running = self._run()
        _check_boundary(version)
        running.set_boundary(version, self._channels, self._patience)

    def compact(self, *, full: bool = False) -> CompactionResult:
        """Free what is not needed; each replica does so by itself."""
        return self._run().store.compact(full=full)

    # -- BLOBs --------------------------------------------------------------------------------

    def blob_pool(self) -> BlobPool:
        """Where BLOBs are registered before entries refer to them."""
        return BlobPool(lambda: self._run().store.blobs, self._run().users)

    def open_blob(self, blob: int) -> BlobReader:
        """A BLOB to read from; close it afterwards."""
        blobs = self._run().store.blobs
        if blobs.size(blob) is None:
            raise BadEntry(f"BLOB {blob} does not exist")
        return blobs.open(blob)

    # -- figures ------------------------------------------------------------------------------

    def spans(self) -> tuple[SpanFigures, ...]:
        """How long the steps of commits took so far."""
        return self._spans.table()

    def metrics(self) -> str:
        """Figures for Prometheus."""
        running = self._run()
        gauges = Gauges(
            epoch=running.master.epoch,
            stored=running.master.stored_epoch,
            propagated=running.master.propagated_epoch,
            replicas=len(running.replicas),
            failed=running.lanes.failure is not None,
        )
        return render_metrics(gauges, self._spans)

    # -- end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit what is due, end the sessions and let go of the directory.  Harmless twice.

        Entries of epochs that are not over, and of open log sessions, are dropped.
        """
        running = self._running
        if running is not None and running.store.is_forked:
            return  # All of it belongs to the process that opened it.
        if running is not None and running.is_committing_thread():
            raise WrongState("a listener cannot close the datastore: do it in another thread")
        with self._changing:
            state, self._state = self._state, State.CLOSED
            if state is State.READY and self._running is not None:
                self._running.stop(self._channels, self._options.close_timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside -------------------------------------------------------------------------------

    @property
    def _patience(self) -> float:
        """For a request on the control lane, one that is under way there before it."""
        return 2 * self._options.ack_timeout_seconds + self._options.store.append_timeout_seconds

    def _run(self) -> _Running:
        """What works once it is ready (S1)."""
        running = self._running
        if running is None or self._state is not State.READY:
            if self._state is State.CLOSED:
                raise LogClosed("the datastore is closed")
            raise WrongState("the datastore is not ready: call ready() first")
        running.store.check_owner()  # Connections, too, belong to the process that opened them.
        return running

    def _wiring(self) -> Wiring:
        return self._run().wiring

    def _require_new(self, what: str) -> None:
        if self._state is State.CLOSED:
            raise LogClosed("the datastore is closed")
        if self._state is not State.NEW:
            raise WrongState(f"the datastore is ready: {what} before that, and only then")


class _Running:
    """All that works between ``ready`` and ``close``."""

    def __init__(
        self,
        master: Master,
        store: EpochStore,
        replicas: Replicas,
        lanes: Lanes,
        spans: Spans,
        listeners: list[Listener],
        options: DatastoreOptions,
    ) -> None:
        self.master = master
        self.store = store
        self.replicas = replicas
        self.lanes = lanes
        self.users = BlobUsers()
        immediate = options.sending is Sending.IMMEDIATE
        self.wiring = Wiring(lanes, store, self.users, spans, immediate=immediate)
        self._switching = threading.Lock()
        self._bounding = threading.Lock()
        """Held while the GC boundary is raised, and while the stamp is written above it."""
        self._is_stamped = False
        self._committer = GroupCommitter(lanes, listeners)
        self._committer.start()

    def switch(self, epoch: int) -> None:
        """Begin an epoch; the first one of a master's life gets its stamp (S4)."""
        with self._switching:
            if self._is_stamped:
                self.lanes.change(lambda master: master.switch(epoch))
                return
            with self._bounding:
                self.lanes.change(lambda master: _switch_and_begin(master, epoch))
                self._is_stamped = True
                self._write_stamp(epoch)

    def _write_stamp(self, epoch: int) -> None:
        # Above the GC boundary, and above the stamps of earlier lives: both summands only grow.
        version = max(WriteVersion(epoch), self.store.boundary + epoch)
        stamp = Entry(Kind.PUT, token_hex(16).encode(), STAMP_KEY, STAMP_STORAGE, version)
        llsn = self.store.end_llsn(OWN_CHANNEL)
        batch = encode_channel_batch(OWN_CHANNEL, epoch, llsn, [stamp])
        self.lanes.call(OWN_CHANNEL, lambda master: master.write(OWN_CHANNEL, (batch,), end=True))

    def set_boundary(self, version: int, channels: Sequence[LogChannel], seconds: float) -> None:
        """Raise the GC boundary; refused while an open log session has written below it."""
        with self._bounding:
            before = self.wiring.boundary
            self.wiring.boundary = max(before, version)
            try:
                for channel in channels:
                    if channel.lowest_version <= version:
                        raise WrongState(
                            f"a log session in channel {channel.number} has written version "
                            f"{channel.lowest_version}: end it before the boundary is {version}"
                        )
                self.lanes.set_boundary(version, seconds)
            except LogError as error:
                if error.definite:
                    self.wiring.boundary = before
                raise

    def is_committing_thread(self) -> bool:
        """Whether the caller is the thread that commits: it cannot wait for itself."""
        return self._committer.is_current()

    def stop(self, channels: Sequence[LogChannel], seconds: float) -> None:
        """S3: in order if that is possible in time, else by force."""
        deadline = monotonic() + seconds
        try:
            unused = [channel.wait_unused(max(deadline - monotonic(), 0)) for channel in channels]
            if all(unused):
                self.lanes.end(max(deadline - monotonic(), 0))
        finally:  # Whoever interrupts the wait wants it to end, and the directory to be free.
            self.replicas.shut_down()  # Whoever still waits for a replica is told.
            self._committer.stop(max(deadline - monotonic(), 1))
            self.replicas.close()
            self.store.close()


def _check_boundary(version: int) -> None:
    if not isinstance(version, int):
        raise BadOption(f"the GC boundary is a {type(version).__name__}: use an int")
    if version >= BOUNDARY_END:
        raise BadOption(f"the GC boundary {version} is too high: it must be below {BOUNDARY_END}")


def _open_sessions(lanes: Lanes, replicas: Replicas, channels: int) -> None:
    """A lane connects only when its first request can be sent: the peer waits for that."""
    replicas.open_lane(CONTROL)
    lanes.call(CONTROL, lambda master: master.open())
    for number in range(channels):
        replicas.open_lane(number)
        lanes.call(number, lambda _: None)
    lanes.call(CONTROL, lambda _: None)  # A replica may have told a later GC boundary.


def _switch_and_begin(master: Master, epoch: int) -> None:
    """In one step, so that no other epoch can come between."""
    master.switch(epoch)
    master.begin(OWN_CHANNEL)
