"""What keeps a node small, and what its replicas are told of that: flushes, snapshots, retention.

Invariants:
  K1  a replica is told of a snapshot only as far as it knows its entries to be ordered for good; of
      the rest it is told later
  K2  what looks at files is done in threads
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from tidelog.core.metadata.view import MetadataView
from tidelog.core.replica.replica import Replica
from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import LogError
from tidelog.runtime.storage_node.chores import Chores
from tidelog.runtime.storage_node.options import StorageNodeOptions
from tidelog.runtime.storage_node.ports import Disk
from tidelog.runtime.storage_node.replicas import Replicas
from tidelog.runtime.storage_node.retention import Retain, Retention, trim_place
from tidelog.runtime.storage_node.snapshot_hold import SnapshotHold
from tidelog.runtime.storage_node.upkeep import Upkeep
from tidelog.types import Llsn, StreamId

_logger: Final = logging.getLogger(__name__)

SLOW_TICKS: Final = 20
"""Retention, and what a replica could not be told yet, are looked at every so many ticks."""


class Housekeeping:
    """Belongs to one event loop."""

    def __init__(
        self, disk: Disk, replicas: Replicas, chores: Chores, options: StorageNodeOptions
    ) -> None:
        self._disk = disk
        self._replicas = replicas
        self._chores = chores
        self._upkeep = Upkeep(disk.node, options)
        self._hold = SnapshotHold(self.maintenance, chores, options.hold_seconds)
        self._retention = Retention()
        self._trimming: dict[StreamId, None] = {}
        self._ticks = 0

    @property
    def maintenance(self) -> Maintenance:
        return self._upkeep.maintenance

    def learn(self, view: MetadataView) -> None:
        """Take what a view says of retention."""
        self._retention.learn(view)
        self._retain()

    def began_anew(self, stream: StreamId) -> None:
        """A replica is filled up: what it gets may have to go again."""
        self._retention.forget(stream)

    def synced(self) -> None:
        """A group of writes is durable."""
        self._upkeep.synced()

    def trimmed(self, stream: StreamId) -> None:
        """A trim is durable: segments may go."""
        store = self._disk.node.streams.get(stream)
        if store is not None:
            self._upkeep.trimmed(store)

    def wait_for_room(self) -> None:
        """In the disk thread, before each sync."""
        self._upkeep.wait_for_room()

    def tick(self) -> list[tuple[StreamId, str]]:
        """Let one unit of time pass; return streams that were found damaged, and why.

        Raises what stopped the worker.
        """
        self._ticks += 1
        failure = self._upkeep.failure
        if failure is not None:
            raise failure
        is_slow_tick = self._ticks % SLOW_TICKS == 0
        if self._upkeep.has_worked() or is_slow_tick:
            self._tell_replicas()
        if is_slow_tick:
            self._retain()
        self._hold.look(is_filling=any(replica.is_filling for _, replica in self._replicas))
        return self._found_damage() if is_slow_tick else []

    def stop_waiting(self) -> None:
        """Nothing is synced any more."""
        self._upkeep.stop_waiting()

    def stop(self) -> None:
        """Wait for the job that runs; blocks."""
        self._hold.release_now()
        self._upkeep.stop()

    # --- flushes and snapshots ---

    def _tell_replicas(self) -> None:
        for stream, replica in self._replicas:
            store = self._disk.node.streams.get(stream)
            if store is not None:
                self._tell_joined(stream, replica)
                self._tell_compacted(stream, replica, store.snapshot.index)

    def _tell_joined(self, stream: StreamId, replica: Replica) -> None:
        """Entries are in segments by now, without their producers."""
        index = self._disk.settled_index(stream)
        if index > replica.joined_index:
            replica.joined(index)

    def _tell_compacted(self, stream: StreamId, replica: Replica, index: int) -> None:
        """K1."""
        index = min(index, replica.durable_context.llsn_end - 1)
        if index > replica.snapshot_index and replica.is_complete:
            replica.compacted(Llsn(index))
            self._replicas.touch(stream)

    # --- damage ---

    def _found_damage(self) -> list[tuple[StreamId, str]]:
        """What reads of replicas, and the background scrub, have found wrong."""
        found = [
            (stream, why) for stream, _ in self._replicas if (why := self._disk.damage(stream))
        ]
        if self.maintenance.damage:
            found += self._scrubbed_damage()
        return found

    def _scrubbed_damage(self) -> list[tuple[StreamId, str]]:
        damage = self.maintenance.damage
        return [
            (StreamId(stream), why)
            for path, why in list(damage.items())
            for stream, store in list(self._disk.node.streams.items())
            if any(segment.path == path for segment in store.view.segments)
        ]

    # --- retention ---

    def _retain(self) -> None:
        for stream, retain in self._retention.due([stream for stream, _ in self._replicas]):
            replica = self._replicas.get(stream)
            store = self._disk.node.streams.get(stream)
            if replica is None or store is None or not replica.is_complete:
                continue
            if retain.boundary > store.boundary:
                self._disk.set_boundary(stream, retain.boundary)
            if stream not in self._trimming and not replica.is_filling:
                self._trimming[stream] = None
                known = replica.durable_context.high_watermark
                self._chores.run(
                    partial(self._trim_place, stream, retain.trim_glsn_end),
                    partial(self._trim, stream, retain, known),
                )

    def _trim_place(self, stream: StreamId, glsn_end: int) -> Llsn | None:
        """K2."""
        try:
            return trim_place(self._disk, stream, glsn_end)
        except (LogError, KeyError) as error:
            _logger.warning("stream %s cannot be trimmed now: %s", stream, error)
            return None

    def _trim(self, stream: StreamId, retain: Retain, known: int, place: Llsn | None) -> None:
        self._trimming.pop(stream, None)
        replica = self._replicas.get(stream)
        if replica is None or place is None or replica.is_filling or not replica.is_complete:
            return
        replica.trim(place)
        self._replicas.touch(stream)
        if known >= retain.trim_glsn_end - 1:
            self._retention.done(stream, retain)
