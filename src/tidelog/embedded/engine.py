"""The running parts of an embedded log, wired together: store, order, commits, maintenance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from tidelog.core.order.commands import AddStreams, CreateTopic, NewStream
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.state import OrderState, StreamOrder, TopicOrder
from tidelog.embedded.audience import Audience
from tidelog.embedded.backlog import Backlog
from tidelog.embedded.commit_queue import CommitQueue, Request
from tidelog.embedded.committer import Committer
from tidelog.embedded.cut_ends import CutEnds
from tidelog.embedded.maintenance import Maintenance, Worker
from tidelog.embedded.options import Options
from tidelog.embedded.requests import AdminRequest
from tidelog.embedded.staging import Staging
from tidelog.errors import (
    BadOption,
    Busy,
    DeadlineExceeded,
    LogClosed,
    NotALog,
    TopicExists,
    UnknownTopic,
)
from tidelog.formats.manifest import TopicManifest
from tidelog.invariants import check
from tidelog.limits import STREAMS_MAX, STREAMS_PER_TOPIC_MAX, TOPIC_NAME_CHARS_MAX, TOPICS_MAX
from tidelog.storage.node_store import NodeStore
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import Vfs
from tidelog.types import Glsn, Llsn, NodeId, StreamId, Term, TopicId, Version

INTERNAL_PREFIX = "~"
"""Topics whose names begin with it are the log's own."""

DATASTORE_TOPIC: Final = "~datastore"
"""A directory that has this topic belongs to a datastore, which alone knows how to write it."""

THIS_NODE: Final = NodeId(1)
"""Where the only replica of every log stream is."""

_LOOK_SECONDS: Final = 0.1
"""Only one of several threads that wait for a request is woken; the others look."""


class Engine:
    """One open log.  Thread-safe; handles for topics share it."""

    def __init__(
        self, vfs: Vfs, path: str, options: Options, *, create: bool, only_looks: bool = False
    ) -> None:
        """``only_looks``: nothing will be written, so it may be the directory of a datastore."""
        self.options = options
        self.path = path
        stored = StoreOptions(wal_file_bytes=options.wal_file_bytes, create=create)
        self.node: NodeStore = open_node_store(vfs, path, stored)
        if not only_looks:
            _refuse_datastore(self.node)
        self.order = restore_order(self.node)
        self.audience = Audience()
        self.maintenance = Maintenance(self.node, options.compaction, options.snapshot_bytes)
        worker = Worker(self.maintenance, options.tick_seconds) if options.background else None
        self._backlog = Backlog(self.maintenance, worker, options.append_timeout_seconds)
        self._backlog.after_order()
        self._committer = Committer(self.node, self.order, before=self._backlog.before_frame)
        self._queue: CommitQueue[Request] = CommitQueue(self._commit)
        self._ordered = threading.Condition()
        self._waiting = 0
        self._listeners: dict[int, Callable[[], None]] = {}
        self._unsettled: list[Request] = []
        self._closing = threading.Lock()
        self._closed = False
        self.storing_position = threading.Lock()
        """Held by who stores a named position."""
        self.staging = Staging(self)
        try:
            self.staging.recover()
        except BaseException:
            self.close()
            raise

    # -- writing ------------------------------------------------------------------------------

    def submit(self, request: Request, timeout: float | None = None) -> None:
        """Commit a request and wait for it; raises what became of it."""
        self.node.vfs.check_owner()
        seconds = self.options.append_timeout_seconds if timeout is None else timeout
        self._queue.submit(request, seconds)
        if request.error is not None:
            raise request.error

    def settle(self, request: Request, timeout: float | None = None) -> None:
        """The same, for who holds a lock over a look and what is written by it.

        What is being written at its deadline may show at any time; whoever comes next looks only
        once it has (``await_settled``).
        """
        try:
            self.submit(request, timeout)
        except DeadlineExceeded:
            self._unsettled.append(request)
            raise

    def await_settled(self) -> None:
        """Wait until all that ``settle`` gave up shows, or never will; Busy if that takes long."""
        deadline = monotonic() + self.options.append_timeout_seconds
        for request in list(self._unsettled):
            while not request.done:
                left = deadline - monotonic()
                if left <= 0:
                    raise Busy("what was asked for before is still being written: try again later")
                request.wait(min(left, _LOOK_SECONDS))
            with suppress(ValueError):  # Another thread was faster.
                self._unsettled.remove(request)

    def post(self, request: Request) -> bool:
        """Queue a request whose ``wake`` is told of its end; True: call ``lead`` in a thread."""
        self.node.vfs.check_owner()
        return self._queue.post(request)

    def lead(self) -> None:
        self._queue.lead()

    def check_caller(self) -> None:
        """Raise in a callback of an append, which must not wait for another one."""
        self._queue.check_caller()

    def _commit(self, requests: list[Request]) -> None:
        self._backlog.check_worker()
        try:
            self._committer.commit(requests)
        finally:
            self._tell_listeners()

    def _tell_listeners(self) -> None:
        # Who waits has counted itself in before it looks at the high watermark.
        if self._waiting:
            with self._ordered:
                self._ordered.notify_all()
        for listener in list(self._listeners.values()):
            listener()

    def roll(self) -> None:
        """Begin a new WAL file, so that what the current one holds can go into segments."""
        self.submit(AdminRequest(self.node.wal.roll))

    def drop_trimmed(self, store: StreamStore) -> None:
        """Delete the segments in which all was trimmed; if there is a worker, it does so soon."""
        if self._backlog.worker is None:
            self.maintenance.minor(store)
        else:
            self._backlog.worker.drop_trimmed(store)

    # -- waiting for order --------------------------------------------------------------------

    def high_watermark(self, topic: int) -> int:
        """The last GLSN of a topic that is durable; 0 before the first."""
        return self._committer.high_watermarks.get(topic, 0)

    def first_available(self, topic: TopicManifest) -> int:
        """The first GLSN of a topic that was not trimmed."""
        return max(self.node.streams[stream].trim_glsn_end for stream in topic.streams)

    def cut_ends(self, topic: int) -> CutEnds:
        """Where the latest cuts of a topic ended."""
        return self._committer.cut_ends.get(topic) or CutEnds(1)

    def wait_beyond(self, topic: int, glsn: int, seconds: float | None) -> bool:
        """Wait until something at or above ``glsn`` is ordered; False at the deadline."""
        if self.node.vfs.is_forked:
            return False  # Nobody would ever tell.
        with self._ordered:
            self._waiting += 1
            try:
                return self._ordered.wait_for(
                    lambda: self._closed or self.high_watermark(topic) >= glsn, timeout=seconds
                )
            finally:
                self._waiting -= 1

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after each commit, in the committing thread; returns how to stop it."""
        key = id(listener)
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    # -- topics -------------------------------------------------------------------------------

    def find_topic(self, name: str) -> TopicManifest:
        for topic in self.node.topics.values():
            if topic.name == name:
                return topic
        raise UnknownTopic(f"there is no topic {name!r}; known: {self.topic_names()}")

    def has_topic(self, name: str) -> bool:
        return any(topic.name == name for topic in self.node.topics.values())

    def topic_names(self) -> list[str]:
        """The topics that users made."""
        names = sorted(topic.name for topic in self.node.topics.values())
        return [name for name in names if not name.startswith(INTERNAL_PREFIX)]

    def internal_topic(self, name: str) -> TopicManifest:
        """A topic of the log itself, made when it is first needed."""
        check(name.startswith(INTERNAL_PREFIX), "internal topics are told by their names")
        if not self.has_topic(name):
            with suppress(TopicExists):  # Another thread was faster.
                self.submit(AdminRequest(lambda: self._create_topic(name, 1, "log")))
        return self.find_topic(name)

    def create_topic(self, name: str, *, streams: int, versions: str) -> TopicManifest:
        if name.startswith(INTERNAL_PREFIX):
            raise BadOption(f"names that begin with {INTERNAL_PREFIX!r} are internal: not {name!r}")
        check_topic(name, streams, versions)
        self.submit(AdminRequest(lambda: self._create_topic(name, streams, versions)))
        return self.find_topic(name)

    def _create_topic(self, name: str, streams: int, versions: str) -> None:
        if any(topic.name == name for topic in self.node.topics.values()):
            raise TopicExists(f"there is a topic {name!r} already")
        if len(self.node.topics) >= TOPICS_MAX:
            raise BadOption(f"a log has at most {TOPICS_MAX} topics")
        self._check_room(streams)
        topic = self.node.add_topic(name, streams=streams, versions=versions)
        added = _new_streams(topic.streams)
        self.order.step(CreateTopic(topic=TopicId(topic.topic), streams=added, name=name))

    def add_streams(self, name: str, count: int) -> TopicManifest:
        self.submit(AdminRequest(lambda: self._add_streams(name, count)))
        return self.find_topic(name)

    def _add_streams(self, name: str, count: int) -> None:
        known = self.find_topic(name)
        if count < 1:
            raise BadOption(f"at least one log stream is added, not {count}")
        check_topic(name, len(known.streams) + count, known.versions)
        self._check_room(count)
        topic = self.node.add_streams(known.topic, count)
        added = _new_streams(topic.streams[len(known.streams) :])
        self.order.step(AddStreams(topic=TopicId(topic.topic), streams=added))

    def _check_room(self, streams: int) -> None:
        if len(self.node.streams) + streams > STREAMS_MAX:
            raise BadOption(f"a log has at most {STREAMS_MAX} log streams")

    # -- end ----------------------------------------------------------------------------------

    def check_open(self) -> None:
        self.node.vfs.check_owner()
        if self._closed:
            raise LogClosed("the log is closed")

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Finish what is queued, note how far the WAL is durable, let go of the directory."""
        if self.node.vfs.is_forked:
            self._closed = True
            return  # All of it belongs to the process that opened it.
        with self._closing:
            if self._closed:
                return
            self._queue.close()
            self._backlog.stop()
            self._closed = True
            self._tell_listeners()
            self.node.finish()


def _refuse_datastore(node: NodeStore) -> None:
    if any(topic.name == DATASTORE_TOPIC for topic in node.topics.values()):
        node.close()
        raise NotALog(
            f"{node.path} holds a datastore: open it with tidelog.Datastore, or serve it with "
            "`tidelog replica`"
        )


def restore_order(node: NodeStore) -> OrderMachine:
    """The order layer's state, which the streams' commit contexts tell."""
    watermarks = dict.fromkeys(node.topics, 0)
    version = 0
    streams: list[StreamOrder] = []
    for stream, store in sorted(node.streams.items()):
        context = store.context
        version = max(version, context.version)
        watermarks[store.topic] = max(watermarks[store.topic], context.high_watermark)
        streams.append(
            StreamOrder.settled(
                TopicId(store.topic),
                StreamId(stream),
                THIS_NODE,
                term=Term(store.term),
                version=Version(context.version),
                glsn_end=Glsn(context.glsn_end),
                llsn_end=Llsn(context.llsn_end),
            )
        )
    topics = [
        TopicOrder(
            TopicId(topic.topic),
            tuple(StreamId(stream) for stream in topic.streams),
            topic.name,
            high_watermark=Glsn(watermarks[topic.topic]),
        )
        for _, topic in sorted(node.topics.items())
    ]
    return OrderMachine.restore(OrderState(Version(version), tuple(topics), tuple(streams)))


def _new_streams(numbers: Sequence[int]) -> tuple[NewStream, ...]:
    return tuple([NewStream(StreamId(number), (THIS_NODE,)) for number in numbers])


def check_topic(name: str, streams: int, versions: str) -> None:
    """BadOption unless there may be such a topic."""
    if not name or len(name) > TOPIC_NAME_CHARS_MAX or not name.isprintable():
        raise BadOption(
            f"a topic's name has 1 to {TOPIC_NAME_CHARS_MAX} printable characters, not {name!r}"
        )
    if not 1 <= streams <= STREAMS_PER_TOPIC_MAX:
        raise BadOption(f"a topic has 1 to {STREAMS_PER_TOPIC_MAX} log streams, not {streams}")
    if versions not in ("log", "explicit"):
        raise BadOption(f"versions is 'log' or 'explicit', not {versions!r}")
