"""Record batches to the parts of appends: routed, cut and encoded, with no loop over rows.

A row without a kind is a PUT if it has a key, else an APPEND.

  A1  rows of a chunk that go to one stream keep their order in it
  A2  a chunk holds at most one part for each stream, so it becomes durable as a whole
  A3  a DELETE_STORAGE goes to every log stream that may hold keys
  A4  a batch has write versions for all entries or for none: where they are explicit, APPEND
      entries, which have none, are in chunks of their own
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from tidelog.errors import BadEntry
from tidelog.formats.batch_columns import encode_columns
from tidelog.formats.entry import Kind
from tidelog.interface.appends import Part
from tidelog.interface.arrow_fields import EntryRows
from tidelog.limits import BATCH_ENTRIES_MAX, MIB

CHUNK_BYTES: Final = 4 * MIB


class Shaped(Protocol):
    """What rows need to know of their topic; every handle of a topic knows it."""

    @property
    def name(self) -> str: ...

    @property
    def versions(self) -> str: ...

    @property
    def streams(self) -> tuple[int, ...]: ...

    @property
    def key_streams(self) -> int: ...


class ArrowAppends:
    """Makes chunks of parts from record batches, for one topic as it is now."""

    def __init__(self, topic: Shaped, *, home: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        """``home`` is the log stream that entries without keys go to.

        It may be newer than what ``topic`` knows.
        """
        self._name = topic.name
        self._explicit = topic.versions == "explicit"
        self._key_streams = np.array(topic.streams[: topic.key_streams], np.int64)
        self._home = home
        self._streams: list[int] = self._key_streams.tolist()
        if home not in self._streams:
            self._streams.append(home)
        self._chunk_bytes = chunk_bytes

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[Part]]:
        """Parts that belong together, about ``chunk_bytes`` in each list."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if waiting and size + batch.nbytes > self._chunk_bytes:
                yield from self._encode(waiting)
                waiting, size = [], 0
            waiting.append(batch)
            size += batch.nbytes
        if waiting:
            yield from self._encode(waiting)

    def _encode(self, batches: Sequence[pa.RecordBatch]) -> Iterator[list[Part]]:
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        self._check_versions(whole)
        rows = EntryRows.of(whole, versions=self._explicit)
        for group in self._groups(rows):
            # A bit of room, so that what was gathered for one chunk is not cut into two.
            for begin, end in cuts(group.sizes(), self._chunk_bytes + self._chunk_bytes // 4):
                yield self._parts(group.between(begin, end))

    def _check_versions(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        # Beside a GLSN the version is one that a log gave, and this one will give its own.
        if self._explicit or "write_version" not in names or "glsn" in names:
            return
        if batch.column("write_version").null_count < batch.num_rows:
            raise BadEntry(
                f"topic {self._name!r} takes GLSNs as write versions: leave the column "
                "write_version out, or create the topic with versions='explicit'"
            )

    def _groups(self, rows: EntryRows) -> list[EntryRows]:
        """The rows, apart where they must not share a batch (A4)."""
        if rows.versions is None:
            return [rows]
        appends = rows.kinds == int(Kind.APPEND)
        if not appends.any():
            return [rows]
        others = rows.take(np.flatnonzero(~appends))
        return [rows.take(np.flatnonzero(appends)).without_versions(), others]

    def _parts(self, rows: EntryRows) -> list[Part]:
        streams = self._route(rows)
        everywhere = rows.kinds == int(Kind.DELETE_STORAGE)
        if (streams == streams[0]).all() and not (everywhere.any() and len(self._key_streams) > 1):
            return [_part(int(streams[0]), rows)]
        parts = []
        for stream in self._streams:
            mine = streams == stream
            if stream in self._key_streams:
                mine |= everywhere
            if mine.any():
                parts.append(_part(stream, rows.take(np.flatnonzero(mine))))
        return parts

    def _route(self, rows: EntryRows) -> NDArray[np.int64]:
        """The stream of each row: by its key, as in ``routing``, or the home of those without."""
        streams = np.full(rows.count, self._home, np.int64)
        streams[rows.kinds == int(Kind.DELETE_STORAGE)] = self._key_streams[0]
        keyed = rows.keyed()
        if len(self._key_streams) == 1 or rows.keys is None:
            streams[keyed] = self._key_streams[0]
            return streams
        digests = map(xxh3_64_intdigest, rows.keys.to_pylist())
        hashes = np.fromiter(digests, np.uint64, rows.count)[keyed]
        streams[keyed] = self._key_streams[hashes % np.uint64(len(self._key_streams))]
        return streams


def cuts(sizes: NDArray[np.int64], bytes_max: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that have about ``bytes_max`` bytes, and fit into a batch."""
    ends = np.cumsum(sizes)
    begin, base = 0, 0
    while begin < len(ends):
        end = int(np.searchsorted(ends, base + bytes_max, side="right"))
        end = min(max(end, begin + 1), begin + BATCH_ENTRIES_MAX)
        yield begin, end
        begin, base = end, int(ends[end - 1])


def _part(stream: int, rows: EntryRows) -> Part:
    columns = rows.columns()
    return Part(stream, encode_columns(columns), columns.version_min())
