"""Batches as replicas exchange them, and as they are stored.  No state.

Whoever stores a batch gives it its place: stream, term, LLSN, producer and sequence are in its
header.  So all replicas hold the same bytes.  A control batch is stored as one CONTROL entry.
A batch that brings its place, as a leader sends it, is stored as the bytes that came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.core.replica.entries import Batch
from tidelog.errors import CorruptData
from tidelog.formats.batch import Batch as StoredView
from tidelog.formats.batch import BatchBody, decode_batch, encode_entries, seal_batch
from tidelog.formats.batch_layout import HAS_LLSNS, HEADER, HEADER_BYTES
from tidelog.formats.entry import Entry, Kind
from tidelog.storage.memtable import StoredBatch
from tidelog.types import Llsn, ProducerId, StreamId, Term

_CONTROL_BODY = encode_entries([Entry(Kind.CONTROL)])


def flaw_in_data(batch: Batch) -> str | None:
    """Say why a batch of a peer or a client cannot be stored; None if it can."""
    if batch.is_control:
        return None if batch.count == 1 and not batch.data else "a control batch with data"
    try:
        found = decode_batch(batch.data)
    except CorruptData as error:
        return str(error)
    if found.length != len(batch.data) or found.count != batch.count or not found.dense:
        return f"a batch of {batch.count} entries brings {found.count}"
    return "a CONTROL entry of somebody else" if Kind.CONTROL in found.kinds() else None


def sealed(stream: StreamId, batch: Batch) -> StoredBatch:
    """A batch as it is stored: its bytes, with the place that it has."""
    body = _CONTROL_BODY if batch.is_control else _body_of(batch.data)
    if body.count != batch.count or body.flags & HAS_LLSNS:
        raise CorruptData(f"stream {stream}: a batch of {batch.count} brings {body.count} entries")
    header = seal_batch(
        body,
        stream=stream,
        term=batch.term,
        first_llsn=batch.llsn_begin,
        producer=batch.producer,
        sequence=batch.sequence,
    )
    has_place = batch.data.startswith(header)
    data = batch.data if has_place else b"".join((header, body.data))
    return StoredBatch(batch.llsn_begin, batch.llsn_end, data)


def _body_of(data: bytes) -> BatchBody:
    """The body of a sealed batch; nothing is checked that its reader will check."""
    if len(data) < HEADER_BYTES:
        raise CorruptData(f"a batch of {len(data)} bytes")
    _, _, crc, length, count, flags, kind, _, _, _, _, _, timestamp_us, storage_id, _, _ = (
        HEADER.unpack_from(data)
    )
    if length != len(data) - HEADER_BYTES:
        raise CorruptData(f"a batch with a body of {length} bytes has {len(data)}")
    body = memoryview(data)[HEADER_BYTES:]
    return BatchBody(body, count, flags, kind, storage_id, timestamp_us, crc)


def as_stored(stored: StoredBatch) -> Batch:
    """A whole batch of a memtable as replicas exchange it; only its header is looked at."""
    header = HEADER.unpack_from(stored.data)
    kind, term, producer, sequence = header[6], header[9], header[14], header[15]
    place = (Term(term), Llsn(stored.first_llsn), header[4])
    if kind == Kind.CONTROL:
        return Batch(*place, b"", is_control=True)
    return Batch(*place, stored.data, ProducerId(producer), sequence)


def served(view: StoredView, begin: int, end: int) -> Iterator[Batch]:
    """Entries of a stored batch as replicas exchange them: no holes, control entries apart."""
    kinds = view.kinds()
    if begin == 0 and end == view.count and view.dense and Kind.CONTROL not in kinds:
        yield _batch(view, _bytes_of(view), view.first_llsn, view.count, whole=True)
        return
    llsns = view.llsns()
    for first, last in _unbroken(kinds, llsns, begin, end):
        if kinds[first] == Kind.CONTROL:
            yield Batch(Term(view.term), Llsn(llsns[first]), 1, b"", is_control=True)
            continue
        whole = first == 0 and last == view.count
        data = _bytes_of(view) if whole else view.select(range(first, last))
        yield _batch(view, data, llsns[first], last - first, whole=whole)


def _bytes_of(view: StoredView) -> bytes:
    """The bytes of a whole batch; not copied where they lie alone in memory."""
    whole = view.data.obj
    return whole if isinstance(whole, bytes) and len(whole) == view.length else bytes(view.data)


def _unbroken(
    kinds: bytes, llsns: Sequence[int], begin: int, end: int
) -> Iterator[tuple[int, int]]:
    """Ranges of positions whose LLSNs are neighbours; each control entry is one by itself."""
    first = begin
    for place in range(begin + 1, end):
        is_apart = Kind.CONTROL in (kinds[place], kinds[place - 1])
        if is_apart or llsns[place] != llsns[place - 1] + 1:
            yield first, place
            first = place
    if begin < end:
        yield first, end


def _batch(view: StoredView, data: bytes, llsn: int, count: int, *, whole: bool) -> Batch:
    """Producer and sequence belong to an append as a whole."""
    return Batch(
        term=Term(view.term),
        llsn_begin=Llsn(llsn),
        count=count,
        data=data,
        producer=ProducerId(view.producer if whole else 0),
        sequence=view.sequence if whole else 0,
    )
