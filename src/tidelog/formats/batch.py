"""A columnar batch as an immutable view of its bytes.  No state.

``decode_batch`` takes any bytes and either gives a ``Batch`` or raises ``CorruptData``; nothing is
copied.  Columns are handed out as typed memoryviews, which Arrow and NumPy wrap without a loop.
All names of ``batch_encode`` that others need can be imported from here.

  B1  the header's CRC covers all of the header behind it, the body's CRC among it
  B2  a column that is the same for all entries is left out; the header holds its value
  B3  every section starts at a multiple of 8 and is padded to one with zeros
  B4  offsets start at 0, ascend and end where their bytes end; the sections fill the body
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import Final, NamedTuple

from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.batch_encode import (
    BatchBody,
    encode_entries,
    encode_puts,
    encode_values,
    seal_batch,
)
from tidelog.formats.batch_layout import (
    FIXED,
    HAS_LLSNS,
    HEADER,
    HEADER_BYTES,
    KIND_OF,
    KNOWN_FLAGS,
    REWRITTEN,
    SPARSE_SPAN_END,
    VARIABLE,
    BadColumn,
    Column,
    Columns,
    Header,
    Part,
    add_moved,
    add_section,
    add_slices,
    check_columns,
    check_end,
    check_header,
    check_magic,
    read_columns,
    runs_of,
)
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import WITH_KEY, Entry, Kind
from tidelog.invariants import check

__all__ = [
    "HEADER_BYTES",
    "REWRITTEN",
    "SPARSE_SPAN_END",
    "Batch",
    "BatchBody",
    "Column",
    "decode_batch",
    "encode_entries",
    "encode_puts",
    "encode_values",
    "seal_batch",
]


class Fields(NamedTuple):
    """What entries hold, field by field."""

    kinds: Iterable[Kind]
    keys: Iterable[bytes]
    values: Iterable[bytes]
    storage_ids: Iterable[int]
    versions: Sequence[int] | None
    """None when GLSNs are the versions."""
    timestamps: Iterable[int]
    blobs: Iterable[tuple[int, ...]]


class Batch:
    """Entries of one log stream and one term.  Never changes; made by ``decode_batch``."""

    __slots__ = (
        "_columns",
        "_kind",
        "_storage_id",
        "_timestamp_us",
        "count",
        "data",
        "dense",
        "end_llsn",
        "first_llsn",
        "flags",
        "length",
        "producer",
        "rewritten",
        "sequence",
        "stream",
        "term",
    )

    def __init__(self, data: memoryview, header: Header, columns: Columns) -> None:
        self.data: Final = data
        self.length: Final = len(data)
        (
            _, _, _, _,
            count, flags, kind, _,
            stream, term, first_llsn, end_llsn,
            timestamp_us, storage_id, producer, sequence,
        ) = header  # fmt: skip
        self.count: Final = count
        self.flags: Final = flags
        self.stream: Final = stream
        self.term: Final = term
        self.first_llsn: Final = first_llsn
        self.end_llsn: Final = end_llsn
        self.producer: Final = producer
        self.sequence: Final = sequence
        self.rewritten: Final = flags & REWRITTEN != 0
        self.dense: Final = flags & HAS_LLSNS == 0
        self._kind: Final = kind
        self._timestamp_us: Final = timestamp_us
        self._storage_id: Final = storage_id
        self._columns: Final = columns

    def check_body(self) -> None:
        """CorruptData unless the body is still what it was when its checksum was made."""
        if crc32c(self.data[HEADER_BYTES:]) != HEADER.unpack_from(self.data)[2]:
            raise CorruptData(
                f"batch at LLSN {self.first_llsn}: the body does not match its checksum"
            )

    def column(self, column: Column) -> memoryview | None:
        """A section, typed; None when it was left out and all entries share one value."""
        return self._columns[column]

    def llsn_at(self, i: int) -> int:
        """The LLSN of entry ``i``."""
        self._check_index(i)
        column = self._columns[0]
        return self.first_llsn + (i if column is None else int(column[i]))

    def llsns(self) -> Sequence[int]:
        """The LLSNs of all entries."""
        column = self._columns[0]
        if column is None:
            return range(self.first_llsn, self.end_llsn)
        first = self.first_llsn
        return [first + distance for distance in column.tolist()]

    def position(self, llsn: int) -> int:
        """The index of the first entry at or after ``llsn``; ``count`` when there is none."""
        distance = llsn - self.first_llsn
        column = self._columns[0]
        if column is None:
            return min(max(distance, 0), self.count)
        return bisect_left(column, distance)

    @property
    def is_keyed(self) -> bool:
        """Whether the batch holds a PUT or DELETE."""
        column = self._columns[1]
        if column is None:
            return self._kind in WITH_KEY
        return not WITH_KEY.isdisjoint(column.tobytes())

    def kinds(self) -> bytes:
        """The kinds of all entries, one byte each."""
        column = self._columns[1]
        return bytes((self._kind,)) * self.count if column is None else column.tobytes()

    def kind_at(self, i: int) -> Kind:
        """The kind of entry ``i``."""
        self._check_index(i)
        column = self._columns[1]
        return KIND_OF[self._kind if column is None else int(column[i])]

    def timestamp_at(self, i: int) -> int:
        """The timestamp of entry ``i`` in microseconds."""
        self._check_index(i)
        column = self._columns[2]
        return self._timestamp_us if column is None else int(column[i])

    def storage_id_at(self, i: int) -> int:
        """The storage id of entry ``i``."""
        self._check_index(i)
        column = self._columns[3]
        return self._storage_id if column is None else int(column[i])

    def version_at(self, i: int) -> int | None:
        """The write version of entry ``i``; None when its GLSN is its version."""
        self._check_index(i)
        low, high = self._columns[4], self._columns[5]
        if low is None or high is None:
            return None
        return int(low[i]) | int(high[i]) << 64

    def key_at(self, i: int) -> bytes:
        """The key of entry ``i``; empty when it has none."""
        return self._bytes_at(6, i)

    def value_at(self, i: int) -> bytes:
        """The value of entry ``i``."""
        return self._bytes_at(8, i)

    def blobs_at(self, i: int) -> tuple[int, ...]:
        """The ids of the BLOBs that entry ``i`` refers to."""
        self._check_index(i)
        offsets, ids = self._columns[10], self._columns[11]
        if offsets is None or ids is None:
            return ()
        return tuple(ids[offsets[i] : offsets[i + 1]].tolist())

    def keys(self) -> list[bytes]:
        """The keys of all entries; empty ones where there is no key."""
        return list(self._slices(6, 0, self.count))

    def values(self) -> list[bytes]:
        """The values of all entries."""
        return list(self._slices(8, 0, self.count))

    def entry_bytes(self, i: int) -> int:
        """Bytes of the key and the value of entry ``i``."""
        self._check_index(i)
        keys, values = self._columns[6], self._columns[8]
        size = 0 if keys is None else int(keys[i + 1] - keys[i])
        return size if values is None else size + int(values[i + 1] - values[i])

    def entry(self, i: int) -> Entry:
        """Entry ``i``."""
        return Entry(
            self.kind_at(i),
            self.value_at(i),
            self.key_at(i),
            self.storage_id_at(i),
            self.version_at(i),
            self.timestamp_at(i),
            self.blobs_at(i),
        )

    def entries(self, begin: int = 0, end: int | None = None) -> list[Entry]:
        """Entries ``[begin, end)``, in one pass."""
        end = self.count if end is None else end
        fields = self.fields(begin, end)
        return list(
            map(
                Entry,
                fields.kinds,
                fields.values,
                fields.keys,
                fields.storage_ids,
                repeat(None, end - begin) if fields.versions is None else fields.versions,
                fields.timestamps,
                fields.blobs,
            )
        )

    def fields(self, begin: int, end: int) -> Fields:
        """The fields of the entries ``[begin, end)``, each to be looked at once."""
        check(0 <= begin <= end <= self.count, "a range lies inside its batch")
        count = end - begin
        kinds, times, storages, low, high = self._columns[1:6]
        return Fields(
            kinds=repeat(KIND_OF[self._kind], count)
            if kinds is None
            else map(KIND_OF.__getitem__, kinds[begin:end]),
            keys=self._slices(6, begin, end),
            values=self._slices(8, begin, end),
            storage_ids=repeat(self._storage_id, count)
            if storages is None
            else storages[begin:end],
            versions=None
            if low is None or high is None
            else [a | b << 64 for a, b in zip(low[begin:end], high[begin:end], strict=True)],
            timestamps=repeat(self._timestamp_us, count) if times is None else times[begin:end],
            blobs=self._blob_slices(begin, end),
        )

    def select(self, positions: Sequence[int]) -> bytes:
        """A new batch with the entries at these ascending positions, which keep their LLSNs.

        It is sparse unless the LLSNs are neighbours.  Producer and sequence describe an append
        as a whole, so they are kept only if all entries are.
        """
        runs = runs_of(positions, self.count)
        if runs == [(0, self.count)]:
            return bytes(self.data)
        parts: list[Part] = []
        first_llsn, flags, size = self._select_llsns(positions, parts)
        for _, column, _, _ in FIXED[1:]:
            view = self._columns[column]
            if view is not None:
                raw, width = view.cast("B"), view.itemsize
                slices = [raw[begin * width : end * width] for begin, end in runs]
                size = add_slices(parts, slices, size)
        for _, column, _, _, _ in VARIABLE:
            offsets, items = self._columns[column], self._columns[column + 1]
            if offsets is not None and items is not None:
                size = add_moved(parts, offsets, items, runs, size)
        data = b"".join(parts)
        check(len(data) == size, "B4: the sections fill the body")
        body = BatchBody(
            data,
            len(positions),
            flags,
            self._kind,
            self._storage_id,
            self._timestamp_us,
            crc32c(data),
        )
        return seal_batch(body, stream=self.stream, term=self.term, first_llsn=first_llsn) + data

    def _select_llsns(self, positions: Sequence[int], parts: list[Part]) -> tuple[int, int, int]:
        """Add the LLSNS column of a selection if it needs one: first LLSN, flags, size so far."""
        column = self._columns[0]
        distances = positions if column is None else [column[i] for i in positions]
        first = distances[0]
        if distances[-1] - first + 1 == len(distances):
            return self.first_llsn + first, self.flags & ~HAS_LLSNS, 0
        moved = array("I", [distance - first for distance in distances])
        return self.first_llsn + first, self.flags | HAS_LLSNS, add_section(parts, moved, 0)

    def _check_index(self, i: int) -> None:
        if not 0 <= i < self.count:
            raise IndexError(f"entry {i} of a batch of {self.count}")

    def _bytes_at(self, column: int, i: int) -> bytes:
        self._check_index(i)
        offsets, items = self._columns[column], self._columns[column + 1]
        if offsets is None or items is None:
            return b""
        return items[offsets[i] : offsets[i + 1]].tobytes()

    def _slices(self, column: int, begin: int, end: int) -> Iterable[bytes]:
        offsets, items = self._columns[column], self._columns[column + 1]
        if offsets is None or items is None:
            return repeat(b"", end - begin)
        places = offsets[begin : end + 1].tolist()
        # One copy first: slices of bytes cost half as much as slices of a memoryview.
        base = places[0]
        if base:
            places = [place - base for place in places]
        raw = items[base : base + places[-1]].tobytes()
        return [raw[a:b] for a, b in pairwise(places)]

    def _blob_slices(self, begin: int, end: int) -> Iterable[tuple[int, ...]]:
        offsets, ids = self._columns[10], self._columns[11]
        if offsets is None or ids is None:
            return repeat((), end - begin)
        return [tuple(ids[a:b].tolist()) for a, b in pairwise(offsets[begin : end + 1].tolist())]


def decode_batch(data: bytes | memoryview, offset: int = 0, *, verify: bool = True) -> Batch:
    """The batch that begins at ``offset``; more bytes may follow it.

    The header's CRC and the sizes of all sections are always checked.  ``verify=False`` leaves
    out the body's CRC and B4 inside the columns, for bytes that were verified before.
    """
    view = memoryview(data)
    available = len(view) - offset
    if offset < 0 or available < HEADER_BYTES:
        raise CorruptData(f"batch at {offset}: {available} bytes are too few for its header")
    header: Header = HEADER.unpack_from(view, offset)
    check_magic(header, view, offset)
    body_crc, body_length, count, flags = header[2:6]
    if flags & ~KNOWN_FLAGS or header[7]:
        raise UnsupportedVersion(f"batch at {offset}: flags {flags:#x}, reserved {header[7]}")
    check_header(header, offset)
    if body_length > available - HEADER_BYTES:
        raise CorruptData(
            f"batch at {offset}: its body of {body_length} bytes is cut after "
            f"{available - HEADER_BYTES}"
        )
    whole = view[offset : offset + HEADER_BYTES + body_length]
    body = whole[HEADER_BYTES:]
    if verify and crc32c(body) != body_crc:
        raise CorruptData(f"batch at {offset}: the body does not match its checksum")
    try:
        columns = read_columns(body, flags, count, verify)
        check_end(header, columns[0])
        if verify:
            check_columns(flags, header[6], columns)
    except BadColumn as error:
        raise CorruptData(f"batch at {offset}: {error}") from None
    return Batch(whole, header, columns)
