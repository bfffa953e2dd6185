"""What may go of the streams that are here, as the metadata says: trims and GC boundaries.

A node that was down sees it in the first view that it gets.  A trim moves only to where a stored
batch begins, so that a batch is kept or cut as a whole; readers go by the topic's own trim.

Invariants:
  C1  what was carried out is not asked for again; a trim that a replica has not reached yet is
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidelog.core.metadata.view import MetadataView
from tidelog.runtime.storage_node.ports import Disk
from tidelog.types import FIRST_GLSN, Llsn, StreamId


class Retain(msgspec.Struct, frozen=True, gc=False):
    """What a stream need not keep."""

    trim_glsn_end: int
    boundary: int


class Retention:
    """What the metadata wants of each stream, and what was done."""

    def __init__(self) -> None:
        self._wanted: dict[StreamId, Retain] = {}
        self._done: dict[StreamId, Retain] = {}

    def learn(self, view: MetadataView) -> None:
        """Take what a view says."""
        self._wanted = {
            stream: Retain(topic.trim_glsn_end, topic.boundary)
            for topic in view.topics
            if topic.trim_glsn_end > FIRST_GLSN or topic.boundary
            for stream in topic.streams
        }

    def due(self, streams: Iterable[StreamId]) -> list[tuple[StreamId, Retain]]:
        """What is to be done about these streams (C1)."""
        if not self._wanted:
            return []
        return [
            (stream, wanted)
            for stream in streams
            if (wanted := self._wanted.get(stream)) is not None and self._done.get(stream) != wanted
        ]

    def done(self, stream: StreamId, retain: Retain) -> None:
        """All of it was carried out."""
        self._done[stream] = retain

    def forget(self, stream: StreamId) -> None:
        """A replica began anew: what it is filled with may have to go again."""
        self._done.pop(stream, None)


def trim_place(disk: Disk, stream: StreamId, glsn_end: int) -> Llsn:
    """The highest place at or below the first entry that is kept at which a stored batch begins.

    Looks at files, so it belongs into a thread.
    """
    store = disk.node.streams[stream]
    llsn = Llsn(store.llsn_at_or_after(glsn_end))
    if llsn <= store.trim_llsn_end or llsn >= store.ordered_end:
        return llsn
    return min(llsn, disk.batch_begin(stream, llsn))
