"""Datastores for tests: short to open, short to fill, easy to compare."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from pathlib import Path

from tidelog.core.session.output import Durability, Notice
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.log_channel import LogChannel
from tidelog.datastore.options import DatastoreOptions
from tidelog.embedded.options import Options
from tidelog.storage.vfs import Vfs

LONG = 20.0
"""Seconds that nothing takes on a sound machine."""

SMALL = DatastoreOptions(
    store=Options(wal_file_bytes=256 << 10, snapshot_bytes=64 << 10),
    ack_timeout_seconds=LONG,
    connect_timeout_seconds=LONG,
)

Contents = dict[tuple[int, bytes], tuple[bytes, int, tuple[int, ...]]]
"""(storage id, key) -> (value, write version, BLOBs)"""


class Notices:
    """Collects what a datastore tells."""

    def __init__(self) -> None:
        self.told: list[Notice] = []
        self._arrived: queue.Queue[Notice] = queue.Queue()

    def __call__(self, notice: Notice) -> None:
        self.told.append(notice)
        self._arrived.put(notice)

    def next(self) -> tuple[int, Durability]:
        """The next one that was not asked for yet."""
        notice = self._arrived.get(timeout=LONG)
        return notice.epoch, notice.durability

    def epochs(self, durability: Durability) -> list[int]:
        return [notice.epoch for notice in self.told if notice.durability is durability]


def open_store(
    path: Path,
    *,
    channels: int = 1,
    replicas: Sequence[str] = (),
    options: DatastoreOptions = SMALL,
    notices: Notices | None = None,
    vfs: Vfs | None = None,
) -> tuple[Datastore, list[LogChannel]]:
    """A datastore that is ready, and its channels."""
    store = Datastore(path, replicas=replicas, options=options, vfs=vfs)
    made = [store.create_channel() for _ in range(channels)]
    if notices is not None:
        store.on_notice(notices)
    store.ready()
    return store, made


def put(channel: LogChannel, key: bytes, value: bytes, version: int, storage: int = 1) -> None:
    """One log session with one entry."""
    with channel.session() as session:
        session.add_entry(storage, key, value, version)


def commit(store: Datastore, epoch: int) -> None:
    """End an epoch and wait until it is safe everywhere."""
    store.switch_epoch(epoch + 1)
    store.wait_for(epoch, timeout=LONG)


def contents(store: Datastore) -> Contents:
    return {
        (entry.storage_id, entry.key): (entry.value, int(entry.write_version), entry.blobs)
        for entry in store.entries()
    }


def stored_at(path: Path, vfs: Vfs | None = None) -> Contents:
    """What a restart on this directory, alone, finds."""
    store, _ = open_store(path, vfs=vfs)
    with store:
        return contents(store)
