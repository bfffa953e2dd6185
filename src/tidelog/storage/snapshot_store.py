"""Snapshots of a stream: its state at an index, and beside it the live indexes up to there.

Two files, ``<term>_<index>.snapshot`` and ``<term>_<index>.live``.  The live file is always
written, also when nothing is live, and is written first: a snapshot that is there has had its
live file.  If that file is damaged or missing later it is rebuilt, never taken for "nothing".

Invariants:
  N1  A snapshot at index i is written only when everything up to i is durable.
  N2  An older snapshot is deleted only after a newer one is durable.
  N3  ``SnapshotState`` is one immutable value: whoever uses it reads it once.  So the note of a
      dropped delete is there, on disk and in memory, before anything goes by that snapshot (H4).
  N4  One thread publishes at a time, and only on top of the snapshot that it computed from: what
      a filling has installed meanwhile stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from tidelog.core.compaction.horizon import NOTHING_DROPPED, DeleteHorizon
from tidelog.errors import CorruptData
from tidelog.formats.batch import Batch
from tidelog.formats.key_rows import U64
from tidelog.formats.live_index import LiveIndex, decode_live_index, encode_live_index
from tidelog.formats.snapshot import Snapshot, decode_snapshot, encode_snapshot
from tidelog.invariants import check
from tidelog.limits import LIVE_INDEX_BYTES_MAX, SNAPSHOT_BYTES_MAX
from tidelog.storage.atomic_file import read_file, replace_file
from tidelog.storage.vfs import Vfs

_NAME: Final = re.compile(r"([0-9a-f]{16})_([0-9a-f]{16})\.(snapshot|live)")


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """What WAL, segment writer and compaction need to know, published as one value (N3)."""

    term: int = 0
    index: int = 0
    live: BitMap64 = field(default_factory=BitMap64)
    deletes: DeleteHorizon = NOTHING_DROPPED

    @property
    def smallest_live(self) -> int:
        """The first LLSN that anybody may still need."""
        return self.live.min() if self.live else self.index + 1

    def dead(self) -> BitMap64:
        """The LLSNs up to the index that are not live."""
        return BitMap64(range(1, self.index + 1)) - self.live

    def keeps(self, llsn: int) -> bool:
        return llsn > self.index or llsn in self.live

    def keeps_all(self, llsns: U64) -> NDArray[np.bool_]:
        """The same for each of many LLSNs, in any order."""
        kept: NDArray[np.bool_] = llsns > np.uint64(self.index)
        if not bool(kept.all()):
            first, end = int(llsns.min()), min(int(llsns.max()), self.index) + 1
            alive = self.live & BitMap64(range(first, end))
            if len(alive) == end - first:
                return np.ones(len(llsns), dtype=np.bool_)
            kept |= np.isin(llsns, np.frombuffer(alive.to_array(), dtype=np.uint64))
        return kept

    def live_count(self, begin: int, end: int) -> int:
        """How many of the LLSNs in ``[begin, end)`` may still be needed, if all were present."""
        middle = min(max(begin, self.index + 1), end)
        return int(self.live.range_cardinality(begin, middle)) + end - middle

    def missing_from(self, present: BitMap64, begin: int, end: int) -> int | None:
        """The first LLSN in ``[begin, end)`` that should be present and is not."""
        if begin >= end:
            return None
        middle = min(max(begin, self.index + 1), end)
        needed = self.live & BitMap64(range(begin, middle))
        needed |= BitMap64(range(middle, end))
        needed -= present
        return int(needed.min()) if needed else None

    def kept_positions(self, batch: Batch, begin: int, end: int) -> Sequence[int]:
        """Positions of the entries of ``batch`` in ``[begin, end)`` that are not dead."""
        first, last = batch.position(begin), batch.position(end)
        if first >= last or batch.llsn_at(first) > self.index:
            return range(first, last)
        if batch.dense:
            base = batch.first_llsn
            top = min(base + last, self.index + 1)
            alive = self.live & BitMap64(range(base + first, top))
            if len(alive) == top - base - first:
                return range(first, last)
            return [llsn - base for llsn in alive.to_array()] + list(range(top - base, last))
        llsns = batch.llsns()
        return [position for position in range(first, last) if self.keeps(llsns[position])]


class SnapshotStore:
    """The snapshot files of one stream."""

    def __init__(self, vfs: Vfs, directory: str) -> None:
        self._vfs = vfs
        self._directory = directory
        self.publishing: Final = Lock()
        """Held by who makes a snapshot durable and known (N4)."""

    def write(self, snapshot: Snapshot, live: BitMap64) -> SnapshotState:
        """Make a snapshot durable, then delete the older ones (N2)."""
        check(self.publishing.locked(), "N4: a snapshot is written by who publishes")
        stem = _stem(snapshot.term, snapshot.index)
        encoded_live = encode_live_index(LiveIndex(snapshot.term, snapshot.index, live))
        replace_file(self._vfs, self._directory, f"{stem}.live", encoded_live, sync_dir=False)
        replace_file(self._vfs, self._directory, f"{stem}.snapshot", encode_snapshot(snapshot))
        self._delete_except(stem)
        return _published(snapshot, live)

    def load(
        self, rebuild: Callable[[Snapshot], tuple[Snapshot, BitMap64]]
    ) -> tuple[SnapshotState, Snapshot | None, str | None]:
        """The newest snapshot that can be read, its live indexes, and what was wrong, if anything.

        ``rebuild`` computes the live indexes from the entries when their file is no good, and
        what of the snapshot changes with them.
        """
        problem: str | None = None
        for term, index in self._found():
            stem = _stem(term, index)
            data = read_file(self._vfs, f"{self._directory}/{stem}.snapshot", SNAPSHOT_BYTES_MAX)
            try:
                snapshot = decode_snapshot(data or b"")
                if (snapshot.term, snapshot.index) != (term, index):
                    raise CorruptData(f"it says term {snapshot.term}, index {snapshot.index}")
            except CorruptData as error:
                problem = f"{self._directory}/{stem}.snapshot: {error}"
                continue
            live = self._load_live(snapshot)
            if live is None:
                # The snapshot too: deletes may have died meanwhile.
                snapshot, live = rebuild(snapshot)
                with self.publishing:
                    self.write(snapshot, live)
            # The last process may have died before the snapshot's name was durable (N2).
            self._vfs.sync_dir(self._directory)
            self._delete_except(stem)
            return _published(snapshot, live), snapshot, problem
        return SnapshotState(), None, problem

    def _load_live(self, snapshot: Snapshot) -> BitMap64 | None:
        """The live indexes of a snapshot; None when the file must be rebuilt."""
        path = f"{self._directory}/{_stem(snapshot.term, snapshot.index)}.live"
        data = read_file(self._vfs, path, LIVE_INDEX_BYTES_MAX)
        if data is None:
            return None
        try:
            found = decode_live_index(data)
        except CorruptData:
            return None
        matches = (found.term, found.index, len(found.live)) == (
            snapshot.term,
            snapshot.index,
            snapshot.live_count,
        )
        return found.live if matches else None

    def _found(self) -> list[tuple[int, int]]:
        """(term, index) of the snapshots, newest first."""
        matches = map(_NAME.fullmatch, self._vfs.list_dir(self._directory))
        found = [m.groups() for m in matches if m is not None]
        return sorted(
            ((int(term, 16), int(index, 16)) for term, index, kind in found if kind == "snapshot"),
            key=lambda place: (place[1], place[0]),
            reverse=True,
        )

    def _delete_except(self, stem: str) -> None:
        for name in self._vfs.list_dir(self._directory):
            if _NAME.fullmatch(name) and not name.startswith(f"{stem}."):
                self._vfs.unlink(f"{self._directory}/{name}")


def _published(snapshot: Snapshot, live: BitMap64) -> SnapshotState:
    return SnapshotState(snapshot.term, snapshot.index, live, snapshot.deletes)


def _stem(term: int, index: int) -> str:
    return f"{term:016x}_{index:016x}"
