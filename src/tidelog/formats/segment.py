"""Segment files: immutable batches of one stream, with what it takes to find things in them.

  S1  At least one batch; they lie one after the other from offset 64, in ascending LLSN order.
  S2  Key pages follow the batches, the footer follows the pages, the trailer ends the file:
      a file that was not written to its end has no valid trailer.
  S3  The footer repeats number and stream, so that parts of two files never pass for one.
  S4  A footer that is too large to be read back is not written.

Layout (little-endian, every section padded with zeros to a multiple of 8):
  header   64 B: magic, crc of bytes [8:64], number u64, stream u64, log id 16 B, zeros
  footer   96 B of counts and statistics, then the columns
           blocks   first LLSN, end LLSN, offset, term (u64), length, count (u32)
           runs     LLSN begin, GLSN begin, length (u64)
           pages    offset, fence (u64), length, rows (u32)
           special  LLSN, storage, version low, version high (u64), kind, implicit (u8)
  trailer  40 B: footer offset, footer length, file length (u64), footer crc u32, zero u32,
           magic, crc of the 36 bytes before it

Bytes in, values out; no state.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import add, ge, le, lt, or_, sub
from struct import Struct
from typing import Final, Literal, TypeAlias

from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.batch_layout import HEADER_BYTES as BATCH_HEADER_BYTES
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.formats.entry import Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.invariants import check
from tidelog.limits import SEGMENT_FOOTER_BYTES_MAX

HEADER_MAGIC: Final = b"TLS\x01"
FOOTER_MAGIC: Final = b"TLSF"
TRAILER_MAGIC: Final = b"TLSE"
FOOTER_VERSION: Final = 1
HEADER_BYTES: Final = 64
TRAILER_BYTES: Final = 40
LOG_ID_BYTES: Final = 16

_START = Struct("<4sI")
_HEADER = Struct("<4sIQQ16s24s")
_FOOTER = Struct("<4sHHIIIIQQQQQqqQQ")
_TRAILER = Struct("<QQQII4sI")

_Item: TypeAlias = Literal["Q", "I", "B"]
_Format: TypeAlias = tuple[_Item, ...]
_BLOCK_FORMAT: Final[_Format] = ("Q", "Q", "Q", "Q", "I", "I")
_RUN_FORMAT: Final[_Format] = ("Q", "Q", "Q")
RUN_BYTES: Final = 24
_PAGE_FORMAT: Final[_Format] = ("Q", "Q", "I", "I")
_SPECIAL_FORMAT: Final[_Format] = ("Q", "Q", "Q", "Q", "B", "B")
_ITEM_BYTES: Final[dict[_Item, int]] = {"Q": 8, "I": 4, "B": 1}
_LOW_64: Final = (1 << 64) - 1
_SPECIAL_KINDS: Final = {int(kind): kind for kind in (Kind.DELETE_STORAGE, Kind.CONTROL)}


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    number: int
    stream: int
    log_id: bytes


@dataclass(frozen=True, slots=True)
class SegmentTrailer:
    footer_offset: int
    footer_length: int
    footer_crc: int


@dataclass(frozen=True, slots=True)
class SpecialEntry:
    """A DELETE_STORAGE or CONTROL entry: rare, and needed without reading batches."""

    llsn: int
    kind: Kind
    storage_id: int
    version: int
    """The write version; the entry's GLSN if it is implicit."""
    implicit: bool

    @property
    def is_storage_delete(self) -> bool:
        return self.kind is Kind.DELETE_STORAGE


@dataclass(frozen=True, slots=True)
class SegmentStats:
    entries: int = 0
    keyed: int = 0
    """PUT and DELETE entries."""
    data_bytes: int = 0
    """Keys and values."""
    min_timestamp_us: int = 0
    max_timestamp_us: int = 0
    max_version: int = 0
    """The highest write version of PUT, DELETE and DELETE_STORAGE entries."""


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """Where each batch lies; the columns have one item per batch."""

    first_llsn: Sequence[int]
    end_llsn: Sequence[int]
    offset: Sequence[int]
    term: Sequence[int]
    length: Sequence[int]
    count: Sequence[int]

    def __len__(self) -> int:
        return len(self.first_llsn)


@dataclass(frozen=True, slots=True)
class PageColumns:
    """Where each page of the key index lies; ``fence`` is the first hash in it."""

    offset: Sequence[int]
    fence: Sequence[int]
    length: Sequence[int]
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True)
class SegmentFooter:
    number: int
    stream: int
    blocks: BlockColumns
    runs: GlsnRuns
    pages: PageColumns
    specials: tuple[SpecialEntry, ...]
    stats: SegmentStats

    @property
    def first_llsn(self) -> int:
        return self.blocks.first_llsn[0]

    @property
    def end_llsn(self) -> int:
        """One past the last LLSN in the segment."""
        return self.blocks.end_llsn[-1]

    @property
    def blocks_end(self) -> int:
        """The offset behind the last batch."""
        return self.blocks.offset[-1] + self.blocks.length[-1]

    @property
    def pages_end(self) -> int:
        """The offset behind the last key page, where the footer begins."""
        pages = self.pages
        return pages.offset[-1] + pages.length[-1] if len(pages) else self.blocks_end

    def block_for(self, llsn: int) -> int:
        """The number of the first block that ends behind ``llsn``; ``len(blocks)`` if none does."""
        return bisect_right(self.blocks.end_llsn, llsn)

    def blocks_between(self, llsn_begin: int, llsn_end: int) -> range:
        """The numbers of the blocks that overlap ``[llsn_begin, llsn_end)``."""
        begin = self.block_for(llsn_begin)
        return range(begin, max(begin, bisect_left(self.blocks.first_llsn, llsn_end)))

    def pages_between(self, hash_hi_begin: int, hash_hi_end: int) -> range:
        """The numbers of the pages that may hold hashes in ``[hash_hi_begin, hash_hi_end)``."""
        # Rows equal to a fence may begin in the page before it.
        begin = max(bisect_left(self.pages.fence, hash_hi_begin) - 1, 0)
        return range(begin, max(begin, bisect_left(self.pages.fence, hash_hi_end)))


# ---- header


def encode_segment_header(number: int, stream: int, log_id: bytes) -> bytes:
    check(len(log_id) == LOG_ID_BYTES, "a log id has 16 bytes")
    tail = _HEADER.pack(HEADER_MAGIC, 0, number, stream, log_id, b"")[8:]
    return _START.pack(HEADER_MAGIC, crc32c(tail)) + tail


def decode_segment_header(data: Buffer) -> SegmentHeader:
    """The header at the start of ``data``, which may be longer."""
    if len(data) < HEADER_BYTES:
        raise CorruptData(f"segment header: {len(data)} bytes where {HEADER_BYTES} are needed")
    magic, crc, number, stream, log_id, zeros = _HEADER.unpack_from(data)
    if magic[:3] != HEADER_MAGIC[:3]:
        raise CorruptData(f"segment header: magic {magic!r}")
    if crc != crc32c(memoryview(data)[8:HEADER_BYTES]):
        raise CorruptData("segment header: checksum does not match")
    if magic != HEADER_MAGIC or zeros.count(0) != len(zeros):
        raise UnsupportedVersion(f"segment header: unknown version {magic[3]}")
    return SegmentHeader(number=number, stream=stream, log_id=log_id)


# ---- footer and trailer


def encode_footer(footer: SegmentFooter) -> bytes:
    """Footer and trailer: all that follows the key pages."""
    stats, special = footer.stats, footer.specials
    head = _FOOTER.pack(
        FOOTER_MAGIC,
        FOOTER_VERSION,
        0,
        len(footer.blocks),
        len(footer.runs),
        len(footer.pages),
        len(special),
        footer.number,
        footer.stream,
        stats.entries,
        stats.keyed,
        stats.data_bytes,
        stats.min_timestamp_us,
        stats.max_timestamp_us,
        stats.max_version & _LOW_64,
        stats.max_version >> 64,
    )
    blocks, pages = footer.blocks, footer.pages
    parts = [head]
    _add_columns(
        parts,
        _BLOCK_FORMAT,
        (blocks.first_llsn, blocks.end_llsn, blocks.offset, blocks.term),
        (blocks.length, blocks.count),
    )
    parts.extend(footer.runs.columns())
    _add_columns(parts, _PAGE_FORMAT, (pages.offset, pages.fence), (pages.length, pages.rows))
    _add_columns(
        parts,
        _SPECIAL_FORMAT,
        ([s.llsn for s in special], [s.storage_id for s in special]),
        ([s.version & _LOW_64 for s in special], [s.version >> 64 for s in special]),
        ([s.kind for s in special], [s.implicit for s in special]),
    )
    body = b"".join(parts)
    check(len(body) <= SEGMENT_FOOTER_BYTES_MAX, "S4: the footer is too large to be read back")
    offset = footer.pages_end
    length = offset + len(body) + TRAILER_BYTES
    tail = _TRAILER.pack(offset, len(body), length, crc32c(body), 0, TRAILER_MAGIC, 0)[:-4]
    return body + tail + crc32c(tail).to_bytes(4, "little")


def _add_columns(parts: list[bytes], formats: _Format, *groups: tuple[Sequence[int], ...]) -> None:
    columns = [column for group in groups for column in group]
    for code, column in zip(formats, columns, strict=True):
        section = array(code, column).tobytes()
        parts += (section, bytes(-len(section) & 7))


def decode_trailer(data: Buffer, file_length: int) -> SegmentTrailer:
    """The trailer: the last 40 bytes of a file of ``file_length`` bytes."""
    if len(data) != TRAILER_BYTES or file_length < HEADER_BYTES + _FOOTER.size + TRAILER_BYTES:
        raise CorruptData(f"segment trailer: the file has only {file_length} bytes")
    offset, length, total, footer_crc, zero, magic, crc = _TRAILER.unpack(data)
    if magic != TRAILER_MAGIC:
        raise CorruptData(f"segment trailer: magic {magic!r}; the file is not complete")
    if crc != crc32c(memoryview(data)[: TRAILER_BYTES - 4]):
        raise CorruptData("segment trailer: checksum does not match")
    if total != file_length:
        raise CorruptData(f"segment trailer: {total} bytes were written, {file_length} are here")
    if zero or offset < HEADER_BYTES or offset + length + TRAILER_BYTES != total:
        raise CorruptData("segment trailer: the footer is not where it should be")
    if length > SEGMENT_FOOTER_BYTES_MAX:
        raise CorruptData(f"segment trailer: a footer of {length} bytes")
    return SegmentTrailer(offset, length, footer_crc)


def decode_footer(data: bytes, trailer: SegmentTrailer) -> SegmentFooter:
    """The footer, checked against its trailer and itself.  Its columns are views of ``data``."""
    if len(data) != trailer.footer_length or crc32c(data) != trailer.footer_crc:
        raise CorruptData("segment footer: checksum does not match")
    if len(data) < _FOOTER.size:
        raise CorruptData(f"segment footer: {len(data)} bytes")
    magic, version, zero, *counts_and_stats = _FOOTER.unpack_from(data)
    blocks, runs, pages, special, number, stream, *stats = counts_and_stats
    if magic != FOOTER_MAGIC:
        raise CorruptData(f"segment footer: magic {magic!r}")
    if version != FOOTER_VERSION or zero:
        raise UnsupportedVersion(f"segment footer: unknown version {version}")
    layout = [
        (code, count)
        for formats, count in (
            (_BLOCK_FORMAT, blocks),
            (_RUN_FORMAT, runs),
            (_PAGE_FORMAT, pages),
            (_SPECIAL_FORMAT, special),
        )
        for code in formats
    ]
    columns = _split_columns(memoryview(data), layout)
    entries, keyed, data_bytes, min_timestamp, max_timestamp, version_low, version_high = stats
    footer = SegmentFooter(
        number=number,
        stream=stream,
        blocks=BlockColumns(*columns[:6]),
        runs=GlsnRuns.from_columns(*columns[6:9]),
        pages=PageColumns(*columns[9:13]),
        specials=_decode_special(columns[13:]),
        stats=SegmentStats(
            entries,
            keyed,
            data_bytes,
            min_timestamp,
            max_timestamp,
            version_low | version_high << 64,
        ),
    )
    _check_blocks(footer)
    _check_pages(footer, trailer)
    return footer


def _split_columns(view: memoryview, layout: list[tuple[_Item, int]]) -> list[memoryview]:
    columns: list[memoryview] = []
    offset = _FOOTER.size
    for code, count in layout:
        size = count * _ITEM_BYTES[code]
        end = offset + size
        if end > len(view):
            raise CorruptData("segment footer: shorter than its columns")
        columns.append(view[offset:end].cast(code))
        offset = end + (-size & 7)
    if offset != len(view):
        raise CorruptData("segment footer: longer than its columns")
    return columns


def _decode_special(columns: list[memoryview]) -> tuple[SpecialEntry, ...]:
    llsns, storages, lows, highs, kinds, implicits = columns
    if not _SPECIAL_KINDS.keys() >= set(kinds) or not {0, 1} >= set(implicits):
        raise CorruptData("segment footer: a special entry of unknown kind")
    if not all(map(lt, llsns, llsns[1:])):
        raise CorruptData("segment footer: special entries are not in order")
    return tuple(
        SpecialEntry(llsn, _SPECIAL_KINDS[kind], storage, low | high << 64, implicit == 1)
        for llsn, storage, low, high, kind, implicit in zip(
            llsns, storages, lows, highs, kinds, implicits, strict=True
        )
    )


def _check_blocks(footer: SegmentFooter) -> None:
    """S1, at C speed: a footer may describe very many small batches."""
    blocks, specials = footer.blocks, footer.specials
    first, end, offset, length = blocks.first_llsn, blocks.end_llsn, blocks.offset, blocks.length
    sound = (
        len(blocks) > 0
        and first[0] >= 1
        and all(map(lt, first, end))
        and all(map(le, end, islice(first, 1, None)))
        and offset[0] == HEADER_BYTES
        and list(map(add, offset, length)) == [*islice(offset, 1, None), footer.blocks_end]
        and min(length) >= BATCH_HEADER_BYTES
        and reduce(or_, length) & 7 == 0
        and min(blocks.count) >= 1
        and all(map(ge, map(sub, end, first), blocks.count))
        and sum(blocks.count) == footer.stats.entries
        and (not specials or first[0] <= specials[0].llsn <= specials[-1].llsn < end[-1])
    )
    if not sound:
        raise CorruptData("segment footer: its blocks do not fit together (S1)")


def _check_pages(footer: SegmentFooter, trailer: SegmentTrailer) -> None:
    """S2: pages follow the blocks, and the footer follows the pages."""
    pages = footer.pages
    sound = footer.pages_end == trailer.footer_offset
    sound &= sum(pages.rows) == footer.stats.keyed <= footer.stats.entries
    if len(pages):
        ends = list(map(add, pages.offset, pages.length))
        sound &= pages.offset[0] == footer.blocks_end
        sound &= ends[:-1] == list(islice(pages.offset, 1, None))
        sound &= all(map(le, pages.fence, islice(pages.fence, 1, None)))
        sound &= min(pages.rows) >= 1
    if not sound:
        raise CorruptData("segment footer: its key pages do not fit together (S2)")
