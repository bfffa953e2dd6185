"""The disk of a storage node: all its replicas over one WAL.

The event loop begins writes; ``sync`` makes what was begun durable in one frame with one fsync, and
applies it to the streams after that: in a thread, or in the event loop if that is quick.  The event
loop reads, too, and does not wait for the disk (``replica_reader``).

Invariants:
  D1  writes become durable in the order in which they were begun, each whole or not at all
  D2  a stream shows what is durable; ``reader`` shows all that was begun
  D3  the directories of streams and generations are durable before a frame needs them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.output import Store, Write
from tidelog.core.replica.state import Stored, flaw_in_stored
from tidelog.errors import CorruptData, NotALog, WrongCluster
from tidelog.formats.manifest import TopicManifest
from tidelog.limits import KIB
from tidelog.storage.node_store import NodeStore
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.replica_apply import Applier, part_of
from tidelog.storage.replica_digest import digest_of
from tidelog.storage.replica_files import (
    CARRY_BACKLOG,
    drop_old_generations,
    given_up,
    to_carry,
)
from tidelog.storage.replica_frame import ReplicaFrame
from tidelog.storage.replica_pending import BegunWrite, Pending
from tidelog.storage.replica_reader import Answers, ReplicaReader
from tidelog.storage.vfs import Vfs
from tidelog.types import Llsn, StreamId, TopicId

UNKNOWN_TOPIC = "unknown-topic-{}"
QUICK_BYTES_MAX = 128 * KIB
"""What is written and synced about as fast as a thread is woken up for it."""
QUICK_BATCHES_MAX = 4
"""Where more come together, more are on their way: the event loop has better things to do."""


class ReplicaDisk:
    """All replicas of a storage node over one NodeStore."""

    def __init__(self, node: NodeStore) -> None:
        """Over a node's store that was opened before; see ``open``."""
        self.node = node
        self._pending = Pending()
        self._answers = Answers()
        self._applier = Applier(node)
        self._readers: dict[StreamId, ReplicaReader] = {}
        self._known: tuple[TopicManifest, ...] = ()
        self._durable = 0
        self._base_file = 0
        self.damaged: dict[StreamId, str] = {}
        """Streams whose files were damaged at the start: their replicas are to be filled up."""
        self._give_up_damaged()
        drop_old_generations(node)

    @classmethod
    def open(
        cls, vfs: Vfs, path: str, *, cluster_id: bytes, wal_file_bytes: int, create: bool = True
    ) -> ReplicaDisk:
        """Open the node's directory, or make one; WrongCluster if it is another cluster's.

        CorruptData if the WAL or the manifest is damaged: then nobody can say what the node
        promised, and it has to be wiped and to join anew.
        """
        options = StoreOptions(wal_file_bytes, create, cluster_id, replicas=True)
        try:
            node = open_node_store(vfs, path, options)
        except CorruptData as error:
            raise CorruptData(
                f"{error}; nobody can say any more what this node promised: "
                "wipe its directory and let it join the cluster as a new node"
            ) from error
        try:
            if node.manifest.log_id != cluster_id:
                raise WrongCluster(
                    f"{path} is of the cluster {node.manifest.log_id.hex()}, not {cluster_id.hex()}"
                )
            if any(store.replica is None for store in node.streams.values()):
                raise NotALog(f"{path} holds a log of its own, not replicas of a cluster")
            return cls(node)
        except BaseException:
            node.close()
            raise

    def close(self) -> None:
        """Let go of the directory; what was not synced is lost.  No thread may be in here."""
        self.node.finish()

    # --- event loop ---

    def set_topics(self, topics: Sequence[TopicManifest]) -> None:
        """Topics of the cluster as the view says; before the first write of their streams."""
        if tuple(topics) == self._known:
            return
        self._known = tuple(topics)
        told = {topic.topic: topic for topic in topics}
        names = {topic.name for topic in topics}
        here = {store.topic for store in list(self.node.streams.values())}
        kept = {
            number: topic
            for number, topic in self.node.topics.items()
            if number in here and number not in told and topic.name not in names
        }
        self.node.topics = {**told, **kept}
        for store in list(self.node.streams.values()):
            topic = self.node.topics.get(store.topic)
            if topic is not None:
                store.log_versions = topic.versions == "log"

    def set_fetching(
        self, run: Callable[[Callable[[], None]], None], fetched: Callable[[StreamId], None]
    ) -> None:
        """``run`` has a function called in another thread; ``fetched`` is called there, after."""
        self._answers.run, self._answers.fetched = run, fetched

    def streams(self) -> tuple[StreamId, ...]:
        """The streams that have a hard state, in order."""
        return tuple(
            StreamId(stream)
            for stream, store in sorted(self.node.streams.items())
            if store.replica is not None and store.replica.hard_state is not None
        )

    def stored(self, stream: StreamId) -> Stored:
        """What a replica that starts is told; nothing may be begun that is not durable."""
        store = self.node.streams.get(stream)
        if store is None or part_of(store).hard_state is None:
            return Stored()
        part = part_of(store)
        ordered_end = store.context.llsn_end
        index = min(max(part.filled_index, store.snapshot.index), ordered_end - 1)
        found = Stored(
            hard_state=part.hard_state,
            first=Llsn(store.trim_llsn_end),
            end=Llsn(store.end_llsn),
            terms=part.terms,
            context=store.context,
            snapshot_index=Llsn(index),
            producers=store.producers.freeze(),
        )
        if not part.is_complete and flaw_in_stored(found) is not None:
            return Stored(hard_state=part.hard_state, is_sound=False)
        return found

    def reader(self, stream: StreamId) -> Store:
        """What a replica may read: all that was begun; the same object for a stream each time."""
        reader = self._readers.get(stream)
        if reader is None:
            reader = ReplicaReader(self.node, stream, self._pending, self._answers)
            self._readers[stream] = reader
        return reader

    def begin(self, stream: StreamId, topic: TopicId, write: Write) -> int:
        """Queue a write; returns its number, one sequence for all streams."""
        number = self._pending.begin(stream, topic, write)
        if cuts(write):
            self._answers.forget(stream)
        return number

    def set_boundary(self, stream: StreamId, version: int) -> int:
        """Queue a GC boundary of a stream that is here; it only rises.  Returns its number."""
        topic = TopicId(self.node.streams[stream].topic)
        return self._pending.begin(stream, topic, None, version)

    def give_up(self, stream: StreamId) -> int:
        """Queue that a replica with damaged files begins anew, not complete; returns the number.

        Nothing of it may be begun after; once it is durable, make a new replica of ``stored``.
        """
        store = self.node.streams[stream]
        self._answers.damage.pop(stream, None)
        write = given_up(store, self._pending.overlay(stream))
        return self.begin(stream, TopicId(store.topic), write)

    @property
    def has_begun(self) -> bool:
        """Whether ``sync`` has something to write."""
        return len(self._pending) > 0

    @property
    def is_urgent(self) -> bool:
        """Whether something was begun that cannot wait for more."""
        return self._pending.is_urgent

    @property
    def last_begun(self) -> int:
        """The number of the last write that was begun."""
        return self._pending.last

    @property
    def is_backlogged(self) -> bool:
        """Whether so much waits for the segment writer that appends should be refused (Busy)."""
        return self.node.backlog_is_full

    def durable_context(self, stream: StreamId) -> CommitContext:
        """The last cut of a stream that is durable."""
        store = self.node.streams.get(stream)
        return NONE if store is None else store.context

    def settled_index(self, stream: StreamId) -> Llsn:
        """Up to here entries are in segments, or were left out of them: who appended is unknown."""
        store = self.node.streams.get(stream)
        if store is None:
            return Llsn(0)
        view = store.view
        in_memory = next((table.first_llsn for table in view.memtables if table.batches), None)
        end = min(store.ordered_end, in_memory or store.ordered_end)
        return Llsn(end - 1)

    def batch_begin(self, stream: StreamId, llsn: Llsn) -> Llsn:
        """Where the stored batch of an entry begins, or the next one if the entry is gone.

        Reads files: not for the event loop.
        """
        store = self.node.streams[stream]
        for piece in store.read(llsn, store.ordered_end):
            return Llsn(max(piece.batch.first_llsn, store.trim_llsn_end))
        return Llsn(store.ordered_end)

    def damage(self, stream: StreamId) -> str:
        """What is wrong with the files of a stream, found by a read; empty if nothing is."""
        return self._answers.damage.get(stream, "")

    # --- whoever syncs: one thread at a time ---

    def sync_quickly(self) -> int | None:
        """The same as ``sync`` if that takes one small write and one fsync; else None, not begun.

        For the event loop: no file or directory is made, and no lock is waited for.
        """
        if not self._is_quick() or not self.node.applying.acquire(blocking=False):
            return None
        try:
            return self.sync()
        finally:
            self.node.applying.release()

    def _is_quick(self) -> bool:
        group = self._pending.group()
        size = sum([begun.size for begun in group])
        batches = sum([len(begun.write.batches) for begun in group if begun.write is not None])
        return (
            size <= QUICK_BYTES_MAX
            and batches <= QUICK_BATCHES_MAX
            and self.node.backlog < CARRY_BACKLOG
            and self.node.wal.is_filled(size + KIB)
            and all(map(self._is_plain, group))
        )

    def _is_plain(self, begun: BegunWrite) -> bool:
        """Whether a write only adds to a stream that is here."""
        write = begun.write
        return begun.stream in self.node.streams and (
            write is None
            or not (cuts(write) or write.filled is not None or write.trim_to is not None)
        )

    def sync(self) -> int:
        """Make what was begun durable; returns the last number that is.

        What does not fit into one frame waits for the next call.  DiskFull: all is as it was, and
        the writes still wait.  StorageFailed is final.
        """
        group = self._pending.group()
        if group:
            self.node.vfs.check_running()
            self._carry_over()
            self._make_streams(group)
            frame = ReplicaFrame(self._applier)
            frame.add_all(group)
            for stream, generation in frame.generations:
                self.node.make_generation(stream, generation)  # D3
            self._write(frame)
            self._durable = group[-1].number
            for begun in group:
                if begun.write is not None and cuts(begun.write):
                    self._answers.forget(begun.stream)
            self._pending.done(self._durable)
        return self._durable

    def _carry_over(self) -> None:
        """Keep a stream that cannot be ordered from keeping WAL files of all others back."""
        for store, batches in to_carry(self.node):
            frame = ReplicaFrame(self._applier)
            frame.carry(store, batches)
            self._write(frame)

    def roll(self) -> None:
        """Go on in the next WAL file, so that all that is ordered by now can be flushed."""
        self.node.wal.roll()

    def _write(self, frame: ReplicaFrame) -> None:
        self.node.reserve_bytes(frame.size)
        try:
            self.node.write_records(frame.records, lambda: self._apply(frame))
        except BaseException as error:
            # The WAL is ahead of the streams: nothing may follow.
            if self.node.vfs.failed is None:
                self.node.vfs.stop(f"a commit was torn away: {error!r}")
            raise

    def _apply(self, frame: ReplicaFrame) -> None:
        wal_file = self.node.wal.number
        if wal_file != self._base_file:
            self._applier.note_bases(wal_file)
            self._base_file = wal_file
        frame.apply(wal_file)
        if self._applier.abandoned:
            self.node.abandoned.extend(self._applier.abandoned)
            self._applier.abandoned.clear()

    def _make_streams(self, group: Iterable[BegunWrite]) -> None:
        """Have a store for each stream that something is written of (D3)."""
        known = self.node.streams
        new = {begun.stream: begun.topic for begun in group if begun.stream not in known}
        if new:
            self.node.add_replicas(
                [(stream, self._topic(topic, stream)) for stream, topic in new.items()]
            )

    def _topic(self, topic: TopicId, stream: StreamId) -> TopicManifest:
        """A topic that nobody named yet is held so that nothing of it is ever dead."""
        found = self.node.topics.get(topic)
        return found or TopicManifest(
            topic=topic,
            name=UNKNOWN_TOPIC.format(topic),
            streams=(stream,),
            key_streams=1,
            versions="explicit",
        )

    # --- any thread ---

    def digest(self, stream: StreamId, llsn_begin: Llsn, llsn_end: Llsn) -> bytes:
        """A digest of the ordered entries in a range, equal on equal replicas.  Reads files.

        OutOfRange unless the range lies above what compaction may have touched, and is ordered.
        """
        return digest_of(self.node.streams[stream], llsn_begin, llsn_end)

    # --- the start ---

    def _give_up_damaged(self) -> None:
        """Replicas whose files are damaged begin anew, as ones that are not complete."""
        damaged = [store for store in self.node.streams.values() if part_of(store).damage]
        for store in damaged:
            part = part_of(store)
            self.damaged[StreamId(store.stream)] = part.damage
            self.begin(StreamId(store.stream), TopicId(store.topic), given_up(store))
        while self.has_begun:
            self.sync()
        # Their files stay for now: there may be nothing better left anywhere.
        self.node.abandoned.clear()


def cuts(write: Write) -> bool:
    """Whether a write takes entries away that may have been read before."""
    return write.drop or write.wipe or write.truncate_to is not None
