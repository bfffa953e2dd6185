"""What one WAL file holds of one log stream, in memory.

A memtable is appended to by the committing thread only; any thread may read.  Lists
only grow in place; whatever shrinks them (``truncated``) makes a new memtable, so a
reader that holds one never sees it change under it.

Invariants:
  M1  Batches ascend and do not overlap; ``end_llsn`` is one past the last entry.
  M2  ``runs`` covers exactly the ordered entries; entries beyond are unordered.
  M3  Batches and GLSNs that are there never change, so what was found in the first few batches
      stays true of them.  A snapshot hashes and sorts keys; the flush after it need not again.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from pyroaring import BitMap64

from tidelog.formats.batch import Batch, decode_batch
from tidelog.formats.batch_layout import may_concern_keys
from tidelog.formats.entry import Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_rows import KeyRows
from tidelog.formats.segment import SpecialEntry
from tidelog.invariants import check


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """An encoded batch in memory, with its place."""

    first_llsn: int
    end_llsn: int
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def may_concern_keys(self) -> bool:
        """False if it certainly holds nothing but APPEND or CONTROL entries."""
        return may_concern_keys(self.data)

    def view(self) -> Batch:
        """The batch to read from; its checksum was verified or made by us."""
        return decode_batch(self.data, verify=False)


class TableContent(NamedTuple):
    """The key rows of ordered batches, sorted, their special entries, and the LLSNs they hold."""

    rows: KeyRows
    specials: tuple[SpecialEntry, ...]
    present: BitMap64


class KeyedWrite(msgspec.Struct, frozen=True, gc=False):
    """The place of one PUT or DELETE (or DELETE_STORAGE) in the order of writes."""

    version: int
    llsn: int
    kind: Kind


@dataclass(slots=True)
class Memtable:
    wal_file: int
    batches: list[StoredBatch] = field(default_factory=list)
    runs: GlsnRuns = field(default_factory=GlsnRuns)
    size: int = 0
    stream_end: int = 0
    """Where the stream ended when the WAL went on to the next file, if not behind the batches:
    later files say what was truncated of this one."""
    _starts: list[int] = field(default_factory=list)
    _puts: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """Last LLSN of the PUTs whose versions are their GLSNs: the greatest, for both grow."""
    _writes: dict[tuple[int, bytes], KeyedWrite] = field(default_factory=dict)
    """The greatest of all other writes."""
    _storage_deletes: dict[int, KeyedWrite] = field(default_factory=dict)
    _indexed: int = 0
    """How many batches are indexed by key: that is done when it is first asked for."""
    _indexing: threading.Lock = field(default_factory=threading.Lock)

    _content: tuple[int, TableContent] | None = None
    """What was found in so many batches."""

    @property
    def first_llsn(self) -> int:
        return self.batches[0].first_llsn

    @property
    def end_llsn(self) -> int:
        return self.batches[-1].end_llsn

    def note_content(self, batches: int, content: TableContent) -> None:
        """Keep what the first ``batches`` hold, all of them ordered, for who looks next."""
        self._content = batches, content

    def content_of(self, batches: int) -> TableContent | None:
        """What is known of exactly so many batches (M3)."""
        known = self._content
        return known[1] if known is not None and known[0] == batches else None

    def add(self, batch: StoredBatch) -> None:
        if self.batches:
            check(batch.first_llsn >= self.end_llsn, "M1: batches of a memtable must ascend")
        self.stream_end = 0
        self._content = None  # It is true no more of all batches, and takes memory.
        self.batches.append(batch)
        self._starts.append(batch.first_llsn)
        self.size += batch.size

    def batches_between(self, begin: int, end: int) -> Iterator[StoredBatch]:
        """Batches that overlap ``[begin, end)``, ascending."""
        position = max(bisect_right(self._starts, begin) - 1, 0)
        while position < len(self._starts):
            batch = self.batches[position]
            if batch.first_llsn >= end:
                return
            if batch.end_llsn > begin:
                yield batch
            position += 1

    def truncated(self, llsn_end: int) -> Memtable:
        """A memtable without the entries at and above ``llsn_end``."""
        shorter = Memtable(self.wal_file)
        for batch in self.batches:
            if batch.end_llsn <= llsn_end:
                shorter.add(batch)
                continue
            if batch.first_llsn < llsn_end:
                shorter.add(_cut(batch, llsn_end))
            break
        if shorter.batches:
            for begin, glsn, length in self.runs.slices(0, llsn_end):
                shorter.runs.append(begin, glsn, length)
        return shorter

    def ended_at(self, llsn_end: int, wal_file: int) -> Memtable:
        """This memtable as a frame in ``wal_file`` leaves it that truncates at ``llsn_end``.

        When the WAL is replayed from a later file on, that file must find the end that it goes on
        from, be it that of entries which it truncates.
        """
        table = self
        if table.batches and table.end_llsn > llsn_end:
            end = table.stream_end or table.end_llsn
            table = table.truncated(llsn_end)
            table.stream_end = end
        # Memtables without such entries stay the ones that the worker may be flushing.
        if table.wal_file == wal_file:
            table.stream_end = 0 if table.batches and table.end_llsn == llsn_end else llsn_end
        return table

    # -- keys --------------------------------------------------------------------

    def find_key(self, storage_id: int, key: bytes) -> KeyedWrite | None:
        """The greatest ordered write of a key in this memtable."""
        self._index_keys()
        place = (storage_id, key)
        other, llsn = self._writes.get(place), self._puts.get(place)
        if llsn is None:
            return other
        return greater(other, KeyedWrite(self.runs.glsn_of(llsn), llsn, Kind.PUT))

    def storage_delete(self, storage_id: int) -> KeyedWrite | None:
        self._index_keys()
        return self._storage_deletes.get(storage_id)

    def _index_keys(self) -> None:
        with self._indexing:
            self._index_new_batches()

    def _index_new_batches(self) -> None:
        while self._indexed < len(self.batches):
            stored = self.batches[self._indexed]
            if stored.end_llsn > self.runs.llsn_end:
                return  # Unordered entries have no version yet.
            if stored.may_concern_keys:
                self._index_batch(stored.view())
            self._indexed += 1

    def _index_batch(self, batch: Batch) -> None:
        if batch.version_at(0) is None and batch.kinds().count(Kind.PUT) == batch.count:
            fields = batch.fields(0, batch.count)
            places = zip(fields.storage_ids, fields.keys, strict=True)
            self._puts.update(zip(places, batch.llsns(), strict=True))
            return
        for position, entry in enumerate(batch.entries()):
            llsn = batch.llsn_at(position)
            version = entry.write_version
            if version is None:
                version = self.runs.glsn_of(llsn)
            write = KeyedWrite(version, llsn, entry.kind)
            if entry.kind in (Kind.PUT, Kind.DELETE):
                place = (entry.storage_id, entry.key)
                self._writes[place] = greater(self._writes.get(place), write) or write
            elif entry.kind is Kind.DELETE_STORAGE:
                known = self._storage_deletes.get(entry.storage_id)
                self._storage_deletes[entry.storage_id] = greater(known, write) or write


def greater(known: KeyedWrite | None, found: KeyedWrite | None) -> KeyedWrite | None:
    """The later of two writes of a key, in the order of (version, LLSN)."""
    if known is None or found is None:
        return known or found
    return found if (found.version, found.llsn) > (known.version, known.llsn) else known


def _cut(stored: StoredBatch, llsn_end: int) -> StoredBatch:
    batch = stored.view()
    kept = batch.select(range(batch.position(llsn_end)))
    view = decode_batch(kept, verify=False)
    return StoredBatch(view.first_llsn, view.end_llsn, kept)
