"""Whether all that a stream should have stored is in one of its sources."""

from __future__ import annotations

from pyroaring import BitMap64

from tidelog.storage.segments import Segment
from tidelog.storage.stream_store import StreamStore


def first_missing(store: StreamStore) -> int | None:
    """The first LLSN that should be stored and is in no source; None if all is there.

    Above the snapshot every entry must be there; up to it, every live one.
    """
    view, snapshot = store.view, store.snapshot
    nothing = BitMap64()
    position = store.trim_llsn_end
    for segment in view.segments:
        missing = snapshot.missing_from(nothing, position, segment.first_llsn)
        if missing is None:
            missing = _missing_inside(store, segment)
        if missing is not None:
            return missing
        position = max(position, segment.end_llsn)
    for table in view.memtables:
        if table.batches:
            missing = snapshot.missing_from(nothing, position, table.first_llsn)
            if missing is not None:
                return missing
            position = max(position, table.end_llsn)
    return snapshot.missing_from(nothing, position, store.end_llsn)


def missing_in_memory(store: StreamStore) -> int | None:
    """The same within the memtables, which have holes only where sparse batches made them."""
    present = BitMap64()
    for table in store.view.memtables:
        for stored in table.batches:
            present.update(stored.view().llsns())
    begin = max(store.trim_llsn_end, present.min() if present else store.end_llsn)
    return store.snapshot.missing_from(present, begin, store.end_llsn)


def _missing_inside(store: StreamStore, segment: Segment) -> int | None:
    """Counting is enough when the numbers agree; only otherwise the entries are looked at."""
    begin = max(segment.first_llsn, store.trim_llsn_end)
    needed = store.snapshot.live_count(begin, max(begin, segment.end_llsn))
    if segment.entries >= needed and segment.end_llsn == segment.file_end_llsn:
        return None
    with store.opened.lease(segment.path) as reader:
        return store.snapshot.missing_from(reader.llsns(), begin, segment.end_llsn)
