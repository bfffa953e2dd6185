"""The same log for asyncio: the same names, awaited.

Appends are queued from the event loop and committed in one thread, so that however many are under
way, they share frames.  Whatever may touch the disk for long runs in another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar, Unpack

from tidelog.embedded.async_appender import AsyncAppender
from tidelog.embedded.commits import LoopCommits
from tidelog.embedded.engine import Engine
from tidelog.embedded.log import DEFAULT_TOPIC, Log, open_log
from tidelog.embedded.opening import Opening
from tidelog.embedded.options import Options
from tidelog.embedded.reader import read_range
from tidelog.embedded.topic import Topic, companion
from tidelog.errors import LogClosed
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.appends import Append, AppendOptions, Appends, Part
from tidelog.interface.blobs.async_calls import AsyncBlobCalls, AsyncTopicBlobs
from tidelog.interface.figures import CompactionResult, LogStats, PlanOutcome, TopicStats
from tidelog.interface.positions import NamedPosition, Position, Published
from tidelog.interface.records import Receipt, Record
from tidelog.interface.routing import chosen_stream
from tidelog.limits import MIB

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_PAGE: Final = 1000
"""Records that one trip to a reading thread brings."""


class AsyncTopic(AsyncBlobCalls):
    """A topic for asyncio.  An append returns when it is durable and ordered."""

    def __init__(self, topic: Topic, engine: Engine, commits: LoopCommits) -> None:
        self._topic = topic
        self._engine = engine
        self._commits = commits
        self._appends = Appends(lambda: self._manifest)

    @property
    def _manifest(self) -> TopicManifest:
        return self._engine.node.topics[self._topic.topic_id]

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def versions(self) -> str:
        return self._topic.versions

    @property
    def key_streams(self) -> int:
        """How many of the first log streams take keys; those added later take none."""
        return self._topic.key_streams

    @property
    def streams(self) -> tuple[int, ...]:
        return self._topic.streams

    @property
    def open_streams(self) -> tuple[int, ...]:
        return self._topic.open_streams

    @property
    def high_watermark(self) -> int:
        return self._topic.high_watermark

    @property
    def first_available(self) -> int:
        return self._topic.first_available

    async def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        append = self._appends.append(value, key, stream, options, blobs)
        return (await self._commit(append, options))[0]

    async def append_batch(
        self,
        values: Sequence[bytes],
        *,
        stream: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        append = self._appends.append_batch(values, stream, options)
        return (await self._commit(append, options))[0]

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        blobs: tuple[int, ...] = (),
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        entry = Entry(Kind.PUT, value, key, storage_id, write_version, 0, blobs)
        return (await self._commit(self._appends.write([entry], options), options))[0]

    async def put_batch(
        self,
        items: Iterable[tuple[bytes, bytes]],
        *,
        storage_id: int = 0,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        return await self._commit(self._appends.put_batch(items, storage_id, options), options)

    async def delete(
        self,
        key: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return (await self._commit(self._appends.write([entry], options), options))[0]

    async def delete_storage(
        self,
        storage_id: int,
        *,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        append = self._appends.delete_storage(storage_id, write_version, options)
        return await self._commit(append, options)

    async def write(
        self, entries: Sequence[Entry], **options: Unpack[AppendOptions]
    ) -> tuple[Receipt, ...]:
        return await self._commit(self._appends.write(entries, options), options)

    def appender(self, *, bytes_max: int = 8 * MIB) -> AsyncAppender:
        """Append many entries without waiting for each: see ``AsyncAppenderHandle``."""
        return AsyncAppender(self._commits, self._appends, bytes_max)

    async def _commit(self, append: Append, options: AppendOptions) -> tuple[Receipt, ...]:
        return await self._commits.commit(append, options.get("timeout"))

    async def read(
        self, from_glsn: int | None = None, to_glsn: int | None = None, *, limit: int | None = None
    ) -> AsyncGenerator[Record, None]:
        """Records in total order; see ``Topic.read``."""
        records = await asyncio.to_thread(self._topic.read, from_glsn, to_glsn, limit=limit)
        async for record in _pages(records):
            yield record

    async def read_arrow(
        self,
        from_glsn: int | None = None,
        to_glsn: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        streams: Sequence[int] = (),
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """The entries as Arrow record batches, in total order; see ``Topic.read_arrow``."""
        batches = await _thread(
            lambda: self._topic.read_arrow(from_glsn, to_glsn, columns=columns, streams=streams)
        )
        while (batch := await _thread(lambda: next(batches, None))) is not None:
            yield batch

    async def subscribe(
        self, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> AsyncGenerator[Record, None]:
        """Records from ``from_glsn`` on, waiting for new ones; see ``Topic.subscribe``."""
        async for record in self._follow(from_glsn, timeout, None):
            yield record

    async def subscribe_to(
        self, stream: int, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> AsyncGenerator[Record, None]:
        """The records of one log stream, waiting for new ones; see ``Topic.subscribe_to``."""
        chosen_stream(self._manifest, stream, b"")
        async for record in self._follow(from_glsn, timeout, stream):
            yield record

    async def _follow(
        self, from_glsn: int | None, timeout: float | None, stream: int | None
    ) -> AsyncGenerator[Record, None]:
        position = self.high_watermark + 1 if from_glsn is None else from_glsn
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        since = loop.time()
        stop = self._engine.listen(lambda: _set_soon(loop, changed))
        try:
            while not self._engine.closed:
                changed.clear()
                end = self.high_watermark + 1
                if position < end:
                    read = partial(read_range, self._engine, self._manifest, position, end, stream)
                    try:
                        async for record in _pages(await asyncio.to_thread(read)):
                            yield record
                            since = loop.time()
                    except LogClosed:
                        return
                    position = end
                    continue
                left = None if timeout is None else max(since + timeout - loop.time(), 0.0)
                try:
                    await asyncio.wait_for(changed.wait(), left)
                except TimeoutError:
                    return
        finally:
            stop()

    async def get(self, key: bytes, *, storage_id: int = 0) -> Record | None:
        return await asyncio.to_thread(self._topic.get, key, storage_id=storage_id)

    async def position(self) -> Position:
        return await asyncio.to_thread(self._topic.position)

    async def find_end(
        self,
        glsn_begin: int,
        *,
        records_max: int = 0,
        bytes_max: int = 0,
        wait: float = 0.0,
        reader: str = "",
    ) -> Position:
        return await _thread(
            lambda: self._topic.find_end(
                glsn_begin,
                records_max=records_max,
                bytes_max=bytes_max,
                wait=wait,
                reader=reader,
            )
        )

    async def find_time(self, timestamp_us: int) -> Position:
        return await asyncio.to_thread(self._topic.find_time, timestamp_us)

    async def position_of(self, name: str) -> NamedPosition:
        return await asyncio.to_thread(self._topic.position_of, name)

    async def store_position(self, name: str, glsn: int, *, expected: int) -> NamedPosition:
        return await asyncio.to_thread(self._topic.store_position, name, glsn, expected=expected)

    async def stage(self, parts: Sequence[Part]) -> int:
        return await asyncio.to_thread(self._topic.stage, parts)

    async def publish(self, writer: str, batch: int, stages: Sequence[int]) -> Published:
        return await asyncio.to_thread(self._topic.publish, writer, batch, stages)

    async def discard(self, stages: Sequence[int]) -> None:
        await asyncio.to_thread(self._topic.discard, stages)

    def _topic_blobs(self) -> AsyncTopicBlobs:
        return AsyncTopicBlobs(self, self._companion)

    async def _companion(self, name: str, streams: int) -> AsyncTopic:
        topic = await asyncio.to_thread(companion, self._engine, name, streams)
        return AsyncTopic(topic, self._engine, self._commits)

    async def trim(self, before_glsn: int, *, timeout: float | None = None) -> int:
        return await asyncio.to_thread(self._topic.trim, before_glsn, timeout=timeout)

    async def set_gc_boundary(self, version: int, *, timeout: float | None = None) -> None:
        await asyncio.to_thread(self._topic.set_gc_boundary, version, timeout=timeout)

    async def snapshot(self) -> None:
        await asyncio.to_thread(self._topic.snapshot)

    async def compact(self, *, full: bool = False) -> CompactionResult:
        return await asyncio.to_thread(self._topic.compact, full=full)

    async def offer_plan(
        self, plan: bytes | memoryview, *, full: bool = False
    ) -> tuple[PlanOutcome, ...]:
        return await asyncio.to_thread(self._topic.offer_plan, plan, full=full)

    async def rewrite(self, *, entries_max: int = 4096) -> int:
        return await asyncio.to_thread(self._topic.rewrite, entries_max=entries_max)

    async def explain(self, key: bytes, *, storage_id: int = 0) -> list[str]:
        return await asyncio.to_thread(self._topic.explain, key, storage_id=storage_id)

    async def stats(self) -> TopicStats:
        return await asyncio.to_thread(self._topic.stats)


class AsyncLog(AsyncTopic):
    """An open log for asyncio: a handle for its first topic, and the way to the others."""

    def __init__(self, log: Log, engine: Engine) -> None:
        super().__init__(log, engine, LoopCommits(engine))
        self._log = log

    async def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log", replicas: int = 0
    ) -> AsyncTopic:
        topic = await _thread(
            lambda: self._log.create_topic(
                name, streams=streams, versions=versions, replicas=replicas
            )
        )
        return AsyncTopic(topic, self._engine, self._commits)

    async def add_streams(self, name: str, count: int) -> AsyncTopic:
        topic = await asyncio.to_thread(self._log.add_streams, name, count)
        return AsyncTopic(topic, self._engine, self._commits)

    async def topic(self, name: str) -> AsyncTopic:
        return AsyncTopic(self._log.topic(name), self._engine, self._commits)

    async def topics(self) -> list[str]:
        return self._log.topics()

    async def log_stats(self) -> LogStats:
        return await asyncio.to_thread(self._log.log_stats)

    async def close(self) -> None:
        await asyncio.shield(asyncio.to_thread(self._close))  # Whoever waits for it or not.

    def _close(self) -> None:
        try:
            self._log.close()
        finally:
            self._commits.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def open_async_log(
    path: str | Path,
    *,
    topic: str = DEFAULT_TOPIC,
    streams: int = 1,
    versions: str = "log",
    create: bool = True,
    options: Options | None = None,
) -> AsyncLog:
    """Open a log for asyncio; the arguments are those of ``tidelog.open``."""
    opening = Opening(
        lambda: open_log(
            path, topic=topic, streams=streams, versions=versions, create=create, options=options
        )
    )
    try:
        log = await asyncio.to_thread(opening.run)
    except asyncio.CancelledError:
        opening.give_up()
        raise
    return AsyncLog(log, log.engine)


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # The loop is gone, and with it whoever waited.
        loop.call_soon_threadsafe(event.set)


async def _thread(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


async def _pages(records: Iterator[Record]) -> AsyncGenerator[Record, None]:
    """Fetch records in a thread, a page at a time."""
    while True:
        page = await _thread(lambda: list(islice(records, _PAGE)))
        for record in page:
            yield record
        if len(page) < _PAGE:
            return
