"""Writes to a log and keeps a journal: what was attempted before each call, what came of it after.

``Journal.attempted`` holds ``Attempt``s.  ``Journal.acknowledged`` holds a ``Written`` for each
entry whose append returned, and every other attempt itself once it returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import tidelog
from tidelog import Entry, Kind, Log, Options, Record
from tidelog.core.compaction.plan import Strategy
from tidelog.embedded.requests import AppendRequest
from tidelog.embedded.rewrite import rewrite_oldest
from tidelog.formats.batch import decode_batch, seal_batch
from tidelog.interface.appends import AppendOptions
from tidelog.limits import WAL_FILE_BYTES_MIN
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import Vfs
from tidelog.testing.crash import Journal

PATH = "/log"
OPTIONS = Options(
    background=False,
    wal_file_bytes=WAL_FILE_BYTES_MIN,
    compaction=Strategy(minors=None, dead_ratio=None, idle_ticks=None),
)
"""Small files, and no maintenance but what a roll of the WAL or a scenario asks for."""


class Wish(NamedTuple):
    """An entry on its way into the log; a version of None means its GLSN."""

    stream: int
    kind: Kind
    key: bytes
    value: bytes
    storage_id: int
    version: int | None
    rewritten: bool


class Written(NamedTuple):
    """An entry whose append was acknowledged, with its place."""

    glsn: int
    llsn: int
    stream: int
    kind: Kind
    key: bytes
    value: bytes
    storage_id: int
    version: int
    rewritten: bool

    @property
    def order(self) -> tuple[int, int]:
        """The place among the writes of its key."""
        return self.version, self.llsn


@dataclass(frozen=True, slots=True)
class FrameAttempt:
    """One group commit: all of it is there after a crash, or nothing."""

    wishes: tuple[Wish, ...]
    producer: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class TrimAttempt:
    glsn_end: int


@dataclass(frozen=True, slots=True)
class BoundaryAttempt:
    version: int


@dataclass(frozen=True, slots=True)
class TopicAttempt:
    """A new topic, or more streams for a known one."""

    name: str
    streams: int


Attempt: TypeAlias = FrameAttempt | TrimAttempt | BoundaryAttempt | TopicAttempt


def open_log(vfs: Vfs, *, streams: int = 1, versions: str = "log") -> Log:
    return tidelog.open(PATH, streams=streams, versions=versions, options=OPTIONS, vfs=vfs)


class Scribe:
    """All that scenarios do to a log."""

    def __init__(self, log: Log, journal: Journal) -> None:
        self.log = log
        self.journal = journal

    @property
    def stores(self) -> list[StreamStore]:
        streams = self.log.engine.node.streams
        return [streams[stream] for stream in self.log.streams]

    # -- entries --------------------------------------------------------------------------

    def append(
        self, *values: bytes, stream: int = 1, producer: str = "", sequence: int = 0
    ) -> None:
        request = self.appending(*values, stream=stream, producer=producer, sequence=sequence)
        self.commit(request, producer=producer, sequence=sequence)

    def put(self, *items: tuple[bytes, bytes]) -> None:
        """Set keys in one append."""
        self.commit(self.putting(*items))

    def delete(self, key: bytes) -> None:
        self.commit(self.deleting(key))

    def write(self, *entries: Entry) -> None:
        self.commit(AppendRequest(self.log._appends.write(entries, {})))

    def delete_storage(self, storage_id: int, version: int | None = None) -> None:
        self.commit(AppendRequest(self.log._appends.delete_storage(storage_id, version, {})))

    def appending(
        self, *values: bytes, stream: int = 1, producer: str = "", sequence: int = 0
    ) -> AppendRequest:
        options: AppendOptions = {}
        if producer:
            options = {"producer": producer, "sequence": sequence}
        return AppendRequest(self.log._appends.append_batch(values, stream, options))

    def putting(self, *items: tuple[bytes, bytes]) -> AppendRequest:
        return AppendRequest(self.log._appends.put_batch(items, 0, {}))

    def deleting(self, key: bytes) -> AppendRequest:
        return AppendRequest(self.log._appends.write([Entry(Kind.DELETE, b"", key)], {}))

    def commit(self, *requests: AppendRequest, producer: str = "", sequence: int = 0) -> None:
        """Commit requests as one group: they share a frame of the WAL."""
        wishes = tuple(wish for request in requests for wish in wishes_of(request))
        self.journal.attempted.append(FrameAttempt(wishes, producer, sequence))
        for position, request in enumerate(requests):
            assert self.log.engine.post(request) == (position == 0)
        self.log.engine.lead()
        for request in requests:
            assert request.done
            if request.error is not None:
                raise request.error
        for request in requests:
            self.journal.acknowledged.extend(written_by(request))

    # -- everything else ------------------------------------------------------------------

    def trim(self, glsn_end: int) -> None:
        attempt = TrimAttempt(glsn_end)
        self.journal.attempted.append(attempt)
        assert self.log.trim(glsn_end) == glsn_end
        self.journal.acknowledged.append(attempt)

    def set_gc_boundary(self, version: int) -> None:
        attempt = BoundaryAttempt(version)
        self.journal.attempted.append(attempt)
        self.log.set_gc_boundary(version)
        self.journal.acknowledged.append(attempt)

    def create_topic(self, name: str, streams: int) -> None:
        attempt = TopicAttempt(name, streams)
        self.journal.attempted.append(attempt)
        self.log.create_topic(name, streams=streams)
        self.journal.acknowledged.append(attempt)

    def add_streams(self, count: int) -> None:
        attempt = TopicAttempt(self.log.name, len(self.log.streams) + count)
        self.journal.attempted.append(attempt)
        self.log.add_streams(self.log.name, count)
        self.journal.acknowledged.append(attempt)

    def rewrite(self, copies: Sequence[Written]) -> None:
        """Phase 4, which is expected to make these copies."""
        wishes = tuple(
            Wish(w.stream, w.kind, w.key, w.value, w.storage_id, w.version, True) for w in copies
        )
        self.journal.attempted.append(FrameAttempt(wishes))
        end = self.log.high_watermark + 1
        topic = self.log.engine.find_topic(self.log.name)
        assert rewrite_oldest(self.log.engine, topic, len(copies)) == len(copies)
        copies = written_in(self.log)
        self.journal.acknowledged.extend(copy for copy in copies if copy.glsn >= end)

    def roll(self) -> None:
        """Begin a new WAL file, whatever room the old one has."""
        self.log.engine.node.wal.roll()

    def flush(self) -> None:
        """Roll, and move what was written so far into segments, without a snapshot."""
        self.roll()
        assert self.log.engine.node.flush_oldest()

    def snapshot(self) -> None:
        """Snapshot every stream, without the minor compaction that follows it in a log."""
        for store in self.stores:
            store.take_snapshot()

    def minor(self) -> int:
        return sum(self.log.engine.maintenance.minor(store).deleted for store in self.stores)

    def major(self, *, full: bool = False) -> int:
        """Major compaction; returns how many segments were rewritten."""
        results = [self.log.engine.maintenance.major(s, full=full) for s in self.stores]
        assert not any(result.failures for result in results), results
        return sum(result.rewritten for result in results)

    def written(self) -> list[Written]:
        return [item for item in self.journal.acknowledged if isinstance(item, Written)]


def written_in(log: Log) -> list[Written]:
    """All that can be read."""
    return [
        Written(
            r.glsn, r.llsn, r.stream, r.kind, r.key, r.value, r.storage_id, r.write_version,
            r.rewritten,
        )
        for r in log.read()
    ]  # fmt: skip


def record_of(written: Written) -> Record:
    return Record(
        written.glsn, written.llsn, written.stream, written.kind, written.key, written.value,
        written.storage_id, written.version, 0,
    )  # fmt: skip


def wishes_of(request: AppendRequest) -> Iterable[Wish]:
    """The entries of a request, as its encoded batches hold them."""
    for part in request.append.parts:
        header = seal_batch(part.body, stream=part.stream, term=1, first_llsn=1)
        for entry in decode_batch(header + part.body.data).entries():
            yield Wish(
                part.stream, entry.kind, entry.key, entry.value, entry.storage_id,
                entry.write_version, False,
            )  # fmt: skip


def written_by(request: AppendRequest) -> Iterable[Written]:
    wishes = iter(list(wishes_of(request)))
    for receipt in request.receipts:
        for offset in range(receipt.count):
            yield placed(next(wishes), receipt.glsn + offset, receipt.llsn + offset)
    assert next(wishes, None) is None


def placed(wish: Wish, glsn: int, llsn: int) -> Written:
    version = glsn if wish.version is None else wish.version
    return Written(
        glsn, llsn, wish.stream, wish.kind, wish.key, wish.value, wish.storage_id, version,
        wish.rewritten,
    )  # fmt: skip
