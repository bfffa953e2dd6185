"""Which entries and which files of a node's replicas are to move or to go.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.core.replica.entries import NO_ENTRY, EntryId
from tidelog.core.replica.output import HardState, Write
from tidelog.storage.memtable import Memtable, StoredBatch
from tidelog.storage.node_store import STREAMS_DIRECTORY, NodeStore, stream_directory
from tidelog.storage.replica_apply import part_of
from tidelog.storage.replica_pending import Overlay
from tidelog.storage.stream_store import StreamStore
from tidelog.types import FIRST_LLSN

CARRY_BACKLOG: Final = 2
"""With so many rolled WAL files, entries that wait to be ordered are written again."""


def to_carry(node: NodeStore) -> Iterator[tuple[StreamStore, list[StoredBatch]]]:
    """Streams whose unordered entries keep rolled WAL files back, and all those entries."""
    if node.backlog < CARRY_BACKLOG or node.can_flush():
        return
    for store in list(node.streams.values()):
        tables = store.view.memtables
        held = next((table for table in tables if _is_held(node, table)), None)
        if held is None:
            continue
        begin = max(held.first_llsn, held.runs.llsn_end)
        batches = (stored for table in tables for stored in table.batches)
        waiting = [stored for stored in batches if stored.first_llsn >= begin]
        # One that is ordered in part stays; then it would help nobody to move the rest.
        if waiting and waiting[0].first_llsn < held.end_llsn:
            yield store, waiting


def _is_held(node: NodeStore, table: Memtable) -> bool:
    is_rolled = table.wal_file < node.wal.number
    return is_rolled and bool(table.batches) and table.runs.llsn_end < table.end_llsn


def given_up(store: StreamStore, overlay: Overlay | None = None) -> Write:
    """What makes a replica with damaged files one that is to be filled up.

    ``overlay`` has what was begun before it: the term never falls.
    """
    begun = overlay or Overlay()
    state = begun.hard_state or part_of(store).hard_state
    if state is None:
        return Write(sequence=0, wipe=True)
    had = _had(store, begun) if state.is_complete else state.had
    kept = HardState(state.term, is_complete=False, is_member=state.is_member, had=had)
    return Write(sequence=0, wipe=True, hard_state=kept)


def _had(store: StreamStore, begun: Overlay) -> EntryId | None:
    """The head of the log that is given up, if it is known."""
    if begun.batches:
        return begun.batches[-1].head
    if begun.is_wiped or begun.end is not None:
        return None
    part = part_of(store)
    if store.end_llsn == FIRST_LLSN and not part.is_lost:
        return NO_ENTRY
    return part.head_before(store.end_llsn)


def drop_old_generations(node: NodeStore) -> None:
    """Delete what complete replicas left behind when they began anew.

    What a damaged one left stays until it has been filled up: there may be nothing better.
    """
    parent = f"{node.path}/{STREAMS_DIRECTORY}"
    names = set(node.vfs.list_dir(parent))
    for store in node.streams.values():
        part = part_of(store)
        if not part.is_complete:
            continue
        for generation in range(part.generation):
            name = stream_directory(store.stream, generation)
            if name in names:
                node.empty_directory(f"{parent}/{name}")
