"""Segments that compaction makes stay small enough, whatever they are made of."""

from __future__ import annotations

from tests.embedded.logs import flush, open_sim
from tidelog.interface.routing import stream_of_key
from tidelog.storage.compaction import compact_major
from tidelog.testing.disk import SimDisk

WRITES = 200


def test_the_places_of_dead_entries_count_when_segments_are_merged() -> None:
    """They stay: a footer that grew with each merge could be read no more in the end."""
    disk = SimDisk()
    with open_sim(disk, streams=2) as log:
        keys = [b"%d" % number for number in range(30)]
        here = [key for key in keys if stream_of_key(log._manifest, key) == 1]
        (there, *_) = [key for key in keys if key not in here]
        for cold in here[:6]:
            log.put(cold, b"")
            for _ in range(WRITES):
                log.put(here[-1], b"")
                log.put(there, b"")
            flush(log)
        log.snapshot()
    with open_sim(disk) as log:
        store = log.engine.node.streams[1]
        before = store.view.segments
        largest = max(segment.size for segment in before)
        assert compact_major(store, full=True, bytes_max=largest).groups
        assert len(store.view.segments) < len(before)
        assert all(segment.size <= largest for segment in store.view.segments)
        assert all(log.get(key) for key in here[:6])
