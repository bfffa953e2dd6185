"""Reading segment files.  ``segment_content`` writes them.

F2  Nothing is handed out that was not checked against its checksum in the same call.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import numpy as np
from pyroaring import BitMap64

from tidelog.errors import CorruptData
from tidelog.formats.batch import Batch, decode_batch
from tidelog.formats.key_index import (
    KeyHit,
    KeyPage,
    KeyRows,
    build_rows,
    concat_rows,
    is_sorted,
    no_rows,
    rows_of_pages,
)
from tidelog.formats.segment import (
    HEADER_BYTES,
    TRAILER_BYTES,
    SegmentFooter,
    SegmentHeader,
    decode_footer,
    decode_segment_header,
    decode_trailer,
)
from tidelog.storage.segment_content import covers
from tidelog.storage.vfs import File, Vfs

IO_BYTES: Final = 1 << 20
"""The most that one read takes unless a single batch is larger."""
_TAIL_BYTES: Final = 64 << 10  # Read first when a file is opened; most footers fit.


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    entries: int
    bytes: int


class SegmentReader:
    """One open segment file.  Any number of threads may use it at once."""

    __slots__ = ("_file", "footer", "header", "path", "size_bytes")

    def __init__(
        self, file: File, path: str, header: SegmentHeader, footer: SegmentFooter, size: int
    ) -> None:
        self._file: Final = file
        self.path: Final = path
        self.header: Final = header
        self.footer: Final = footer
        self.size_bytes: Final = size

    @classmethod
    def open(cls, vfs: Vfs, path: str) -> SegmentReader:
        """Open a file and check its header, trailer and footer."""
        file = vfs.open(path)
        try:
            with _naming(path):
                size = file.size()
                header = decode_segment_header(file.read_at(0, HEADER_BYTES))
                footer = _read_footer(file, size)
                if (header.number, header.stream) != (footer.number, footer.stream):
                    raise CorruptData("S3: header and footer are of different segments")
        except BaseException:
            file.close()
            raise
        return cls(file, path, header, footer, size)

    @property
    def number(self) -> int:
        return self.footer.number

    @property
    def stream(self) -> int:
        return self.footer.stream

    @property
    def log_id(self) -> bytes:
        return self.header.log_id

    def close(self) -> None:
        self._file.close()

    def read_blocks(self, llsn_begin: int, llsn_end: int) -> Iterator[Batch]:
        """The batches that overlap ``[llsn_begin, llsn_end)``, each verified, in order."""
        return self._read(self.footer.blocks_between(llsn_begin, llsn_end))

    def find_key(self, hash_hi: int, hash_lo: int) -> list[KeyHit]:
        """All rows of a key, oldest version first; versions are always filled in."""
        hits: list[KeyHit] = []
        glsn_of = self.footer.runs.glsn_of
        for number in self.footer.pages_between(hash_hi, hash_hi + 1):
            page = self._read_page(number)
            found = page.find(hash_hi, hash_lo)
            if page.implicit:
                found = [hit._replace(version=glsn_of(hit.llsn)) for hit in found]
            hits += found
        return hits

    def key_rows(self, hash_hi_begin: int, hash_hi_end: int) -> KeyRows:
        """The rows with hashes in ``[hash_hi_begin, hash_hi_end)``, sorted, versions filled in."""
        parts: list[KeyRows] = []
        implicit = False
        for numbers in self._neighbours(self.footer.pages_between(hash_hi_begin, hash_hi_end)):
            rows, implicit = self._read_rows(numbers)
            parts.append(rows.between(hash_hi_begin, hash_hi_end))
        rows = concat_rows(parts)
        # K3: what holds for one page holds for the whole segment.
        return rows.with_versions(self.footer.runs.glsns(rows.llsn)) if implicit else rows

    def llsns(self) -> BitMap64:
        """The LLSNs that are here."""
        blocks = self.footer.blocks
        found = BitMap64()
        begin = end = 0
        for number, (first, last, count) in enumerate(
            zip(blocks.first_llsn, blocks.end_llsn, blocks.count, strict=True)
        ):
            if last - first != count:
                (batch,) = self._read(range(number, number + 1))
                found.update(array("Q", batch.llsns()))
            elif first == end:
                end = last
            else:
                found.add_range(begin, end)
                begin, end = first, last
        found.add_range(begin, end)
        return found

    def verify(self, seed: int | None = None) -> SegmentCheck:
        """Read everything and compare it with the footer; with ``seed`` the hashes of keys too."""
        footer = self.footer
        batches = self._covered(self._read(range(len(footer.blocks))))
        rows, special, stats = build_rows(batches, footer.runs, seed or 0)
        rows = rows if rows is not None else no_rows()
        with _naming(self.path):
            if stats != footer.stats or tuple(special) != footer.specials:
                raise CorruptData("the entries are not the ones that the footer counts")
            stored = self.key_rows(0, 1 << 64)
            if not is_sorted(stored):
                raise CorruptData("K1: the key index is not sorted")
            if seed is None:
                rows, stored = _by_llsn(rows), _by_llsn(stored)
            if not rows.equals(stored):
                raise CorruptData("the key index is not that of the entries")
        return SegmentCheck(entries=stats.entries, bytes=self.size_bytes)

    def _covered(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if not covers(self.footer.runs, batch):
                raise CorruptData(f"{self.path}: entries from {batch.first_llsn} have no GLSN")
            yield batch

    def _read(self, numbers: range) -> Iterator[Batch]:
        """The blocks of these numbers, neighbours in one read."""
        lengths, offsets = self.footer.blocks.length, self.footer.blocks.offset
        begin = numbers.start
        while begin < numbers.stop:
            end, size = begin + 1, lengths[begin]
            while end < numbers.stop and size + lengths[end] <= IO_BYTES:
                size += lengths[end]
                end += 1
            with _naming(self.path):
                data = memoryview(_read_exactly(self._file, offsets[begin], size))
                batches = [
                    self._decode(data[offsets[number] - offsets[begin] :], number)
                    for number in range(begin, end)
                ]
            yield from batches
            begin = end

    def _decode(self, data: memoryview, number: int) -> Batch:
        blocks = self.footer.blocks
        batch = decode_batch(data[: blocks.length[number]])
        found = (batch.first_llsn, batch.end_llsn, batch.term, batch.length, batch.count)
        columns = (blocks.first_llsn, blocks.end_llsn, blocks.term, blocks.length, blocks.count)
        if batch.stream != self.stream or found != tuple(column[number] for column in columns):
            raise CorruptData(f"block {number} is not the one that the footer describes")
        return batch

    def _neighbours(self, numbers: range) -> Iterator[range]:
        """The pages of these numbers in ranges that one read takes."""
        lengths, offsets = self.footer.pages.length, self.footer.pages.offset
        begin = numbers.start
        for number in numbers:
            end = offsets[number] + lengths[number]
            follows = number + 1 < numbers.stop and offsets[number + 1] == end
            if not follows or end + lengths[number + 1] - offsets[begin] > IO_BYTES:
                yield range(begin, number + 1)
                begin = number + 1

    def _read_rows(self, numbers: range) -> tuple[KeyRows, bool]:
        """The rows of neighbouring pages, and whether their versions are implicit."""
        pages, first = self.footer.pages, numbers.start
        lengths = pages.length[first : numbers.stop]
        with _naming(self.path):
            data = _read_exactly(self._file, pages.offset[first], sum(lengths))
            rows, implicit = rows_of_pages(
                data, lengths, number=first, first_llsn=self.footer.first_llsn
            )
            counts = pages.rows[first : numbers.stop]
            begins = list(accumulate(counts, initial=0))
            fences = rows.hash_hi[begins[:-1]].tolist() if begins[-1] == len(rows) else None
            if fences != list(pages.fence[first : numbers.stop]):
                raise CorruptData(f"key pages from {first} on are not those of the footer")
        return rows, implicit

    def _read_page(self, number: int) -> KeyPage:
        pages = self.footer.pages
        with _naming(self.path):
            data = _read_exactly(self._file, pages.offset[number], pages.length[number])
            page = KeyPage.decode(data, number=number, first_llsn=self.footer.first_llsn)
            if page.count != pages.rows[number] or page.hash_hi[0] != pages.fence[number]:
                raise CorruptData(f"key page {number} is not the one that the footer describes")
        return page


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Put the file's name into what is found wrong with it."""
    try:
        yield
    except CorruptData as error:  # Or a kind of it.
        raise type(error)(f"{path}: {error}") from error


def _read_footer(file: File, size: int) -> SegmentFooter:
    tail_begin = max(size - _TAIL_BYTES, 0)
    tail = _read_exactly(file, tail_begin, size - tail_begin)
    trailer = decode_trailer(tail[-TRAILER_BYTES:], size)
    begin, length = trailer.footer_offset, trailer.footer_length
    if begin < tail_begin:
        return decode_footer(_read_exactly(file, begin, length), trailer)
    return decode_footer(tail[begin - tail_begin : -TRAILER_BYTES], trailer)


def _read_exactly(file: File, offset: int, length: int) -> bytes:
    data = file.read_at(offset, length)
    if len(data) != length:
        raise CorruptData(f"{len(data)} bytes at offset {offset} where {length} should be")
    return data


def _by_llsn(rows: KeyRows) -> KeyRows:
    """The rows in log order, without their hashes."""
    zeros = np.zeros(len(rows), dtype=np.uint64)
    return replace(rows[np.argsort(rows.llsn)], hash_hi=zeros, hash_lo=zeros)
