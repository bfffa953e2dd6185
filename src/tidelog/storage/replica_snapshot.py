"""The snapshot of a replica that was filled up: what it was sent is live, what is left out is dead.

No state.
"""

from __future__ import annotations

from contextlib import suppress

from pyroaring import BitMap64

from tidelog.core.compaction.live import check_dead_stays_dead
from tidelog.errors import DiskFull
from tidelog.formats.snapshot import Snapshot
from tidelog.storage.snapshot_store import SnapshotState
from tidelog.storage.stream_store import StreamStore


def install_filled(store: StreamStore) -> None:
    """Let the live indexes be the entries that are here, up to where dead ones were left out.

    On a full disk the snapshot is known, but not written: the next start finds it out again.
    """
    with store.snapshots.publishing:  # N4
        _install(store)


def _install(store: StreamStore) -> None:
    part, previous = store.replica, store.snapshot
    if part is None or part.filled_index <= previous.index:
        return
    deletes = part.filled_deletes
    live = present_up_to(store, part.filled_index) - previous.dead()
    check_dead_stays_dead(previous.live, previous.index, live)
    snapshot = Snapshot(
        term=store.term,
        index=part.filled_index,
        state=store.state(),
        live_count=len(live),
        deletes=deletes,
    )
    with store.lock:
        store.snapshot = SnapshotState(snapshot.term, snapshot.index, live, deletes)
    with suppress(DiskFull):
        store.snapshots.write(snapshot, live)


def present_up_to(store: StreamStore, index: int) -> BitMap64:
    """The LLSNs up to an index that are stored and not trimmed."""
    present = BitMap64()
    with store.pins.pinned():  # The worker compacts meanwhile.
        view = store.view
        for segment in view.segments:
            with store.opened.lease(segment.path) as reader:
                llsns = reader.llsns()
            llsns &= BitMap64(range(segment.first_llsn, segment.end_llsn))
            present |= llsns
    for table in view.memtables:
        for stored in table.batches:
            present.add_range(stored.first_llsn, stored.end_llsn)
    present &= BitMap64(range(store.trim_llsn_end, index + 1))
    return present
