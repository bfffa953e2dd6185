"""What a topic of an embedded log shows: its facts, records, keys and places."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from sys import maxsize
from time import monotonic
from typing import TYPE_CHECKING

from tidelog.embedded.engine import Engine
from tidelog.embedded.explain import explain_key
from tidelog.embedded.named_positions import position_of
from tidelog.embedded.pages import read_pages
from tidelog.embedded.positions import find_end, find_time, position
from tidelog.embedded.reader import read_one, read_range
from tidelog.embedded.stats import topic_stats
from tidelog.errors import BadOption, LogClosed, OutOfRange
from tidelog.formats.entry import Kind, check_key
from tidelog.formats.key_rows import hash_key
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.figures import TopicStats
from tidelog.interface.positions import NamedPosition, Position
from tidelog.interface.records import Record
from tidelog.interface.routing import chosen_stream, stream_of_key

if TYPE_CHECKING:
    import pyarrow as pa


class ReadableTopic:
    """The part of a topic's handle that changes nothing.  All calls are thread-safe."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.topic_id = engine.find_topic(name).topic

    @property
    def name(self) -> str:
        return self._manifest.name

    @property
    def versions(self) -> str:
        """``"log"``: GLSNs are the write versions of keys; ``"explicit"``: writers give them."""
        return self._manifest.versions

    @property
    def key_streams(self) -> int:
        """How many of the first log streams take keys; those added later take none."""
        return self._manifest.key_streams

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the topic's log streams."""
        return self._manifest.streams

    @property
    def open_streams(self) -> tuple[int, ...]:
        """All of them: a log in one process seals none."""
        return self._manifest.streams

    @property
    def _manifest(self) -> TopicManifest:
        return self._engine.node.topics[self.topic_id]

    @property
    def high_watermark(self) -> int:
        """The last GLSN that was issued; 0 before the first append."""
        return self._engine.high_watermark(self.topic_id)

    @property
    def first_available(self) -> int:
        """The first GLSN that was not trimmed."""
        return self._engine.first_available(self._manifest)

    # -- reading ------------------------------------------------------------------------------

    def read(
        self, from_glsn: int | None = None, to_glsn: int | None = None, *, limit: int | None = None
    ) -> Iterator[Record]:
        """Records from ``from_glsn`` up to, not including, ``to_glsn``, in total order.

        The defaults are the first available record and the end of the topic as it is now.
        """
        begin, end = self._range(from_glsn, to_glsn)
        if limit is not None and limit < 0:
            raise BadOption(f"limit is {limit}, but must not be negative")
        found = read_range(self._engine, self._manifest, begin, end)
        return found if limit is None else islice(found, min(limit, maxsize))

    def read_arrow(
        self,
        from_glsn: int | None = None,
        to_glsn: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        streams: Sequence[int] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The entries of a range as Arrow record batches, in total order.

        ``columns`` picks columns and their order, ``streams`` log streams.
        """
        from tidelog.interface.arrow import arrow_schema, record_batches  # noqa: PLC0415

        arrow_schema(columns)
        begin, end = self._range(from_glsn, to_glsn)
        pages = read_pages(self._engine, self._manifest, begin, end, streams)
        return record_batches(pages, columns)

    def _range(self, from_glsn: int | None, to_glsn: int | None) -> tuple[int, int]:
        begin = self.first_available if from_glsn is None else from_glsn
        end = self.high_watermark + 1 if to_glsn is None else to_glsn
        if begin < 1:
            raise OutOfRange(f"GLSNs start at 1, not {begin}")
        return begin, end

    def subscribe(
        self, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        """Records from ``from_glsn`` (default: what comes next) on, waiting for new ones.

        Ends when nothing new came for ``timeout`` seconds, or when the log is closed.
        """
        return self._follow(from_glsn, timeout, None)

    def subscribe_to(
        self, stream: int, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        """The records of one log stream from ``from_glsn`` (default: what comes next) on.

        Like ``subscribe``; ``timeout`` is for records of this log stream.
        """
        return self._follow(from_glsn, timeout, stream)

    def _follow(
        self, from_glsn: int | None, timeout: float | None, stream: int | None
    ) -> Generator[Record, None, None]:
        if stream is not None:
            chosen_stream(self._manifest, stream, b"")
        position = self.high_watermark + 1 if from_glsn is None else from_glsn
        if position < 1:
            raise OutOfRange(f"GLSNs start at 1, not {position}")
        since = monotonic()
        while True:
            end = self.high_watermark + 1
            if position < end:
                try:
                    for record in read_range(self._engine, self._manifest, position, end, stream):
                        yield record
                        since = monotonic()
                except LogClosed:
                    return
                position = end
                continue
            left = None if timeout is None else max(since + timeout - monotonic(), 0.0)
            if not self._engine.wait_beyond(self.topic_id, position, left):
                return
            if self._engine.closed:
                return

    def get(self, key: bytes, *, storage_id: int = 0) -> Record | None:
        """The newest record of a key; None if there is none or it was deleted."""
        check_key(key, storage_id)
        self._engine.check_open()
        node = self._engine.node
        store = node.streams[stream_of_key(self._manifest, key)]
        hashed = hash_key(storage_id, key, node.manifest.hash_seed)
        deadline = monotonic() + self._engine.options.append_timeout_seconds
        while True:
            found = store.find_key(storage_id, key, hashed)
            if found is None or found.kind is not Kind.PUT:
                return None
            record = read_one(store, found.llsn)
            # Compaction may have moved on between the two looks; then there is a newer write.
            if record is not None or monotonic() > deadline:
                return record

    # -- places -------------------------------------------------------------------------------

    def position(self) -> Position:
        """The GLSN that comes next, with the first and the last one that there are."""
        return position(self._engine, self._manifest)

    def find_end(
        self,
        glsn_begin: int,
        *,
        records_max: int = 0,
        bytes_max: int = 0,
        wait: float = 0.0,
        reader: str = "",
    ) -> Position:
        """Where to end a read from ``glsn_begin``: at a cut, within the bounds (0: none).

        Waits up to ``wait`` seconds if there is nothing to read yet.  A cut that is larger than
        the bounds is not split; only far back, where cuts are no longer known, is one.
        ``reader``: under which name the figures of the log show how far the caller has come.
        """
        if wait > 0:
            self._engine.wait_beyond(self.topic_id, glsn_begin, wait)
        found = find_end(
            self._engine, self._manifest, glsn_begin, records_max=records_max, bytes_max=bytes_max
        )
        self._engine.audience.note(self.name, reader, glsn_begin)
        return found

    def find_time(self, timestamp_us: int) -> Position:
        """The first place from which on no entry is older than ``timestamp_us``."""
        return find_time(self._engine, self._manifest, timestamp_us)

    def position_of(self, name: str) -> NamedPosition:
        """The position that was stored under a name; its revision is 0 if there is none."""
        return position_of(self._engine, self._manifest, name)

    def explain(self, key: bytes, *, storage_id: int = 0) -> list[str]:
        """For every stored write of a key, whether it is kept and why."""
        check_key(key, storage_id)
        self._engine.check_open()
        return explain_key(self._engine, self._manifest, key, storage_id)

    def stats(self) -> TopicStats:
        return topic_stats(self._engine, self._manifest)
