"""A datastore and its replicas, each with a disk of its own, all in the process of the test."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.datastore.gated_vfs import GatedVfs
from tests.datastore.stores import SMALL, Contents, Notices, open_store, stored_at
from tests.replica_service.local_replica import LocalReplica
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.log_channel import LogChannel
from tidelog.datastore.options import DatastoreOptions
from tidelog.net.connection import Patience
from tidelog.replica_service.service import ServiceOptions

PLACE = Path("/replica")
"""Where every side keeps its files: any can take the part of any other."""


SERVICE = ServiceOptions(patience=Patience(close=0.1))
"""A replica that is told to stop does not wait long for its master to hang up."""


class Side:
    """A machine: what it stores outlives what runs on it."""

    def __init__(self) -> None:
        self.disk = GatedVfs()

    def stored(self) -> Contents:
        """What a restart on its disk, alone, finds."""
        return stored_at(PLACE, self.disk)


class Pair:
    """A master that is ready, and its replicas; ``close`` ends the master first."""

    def __init__(
        self,
        *,
        master: Side | None = None,
        replicas: list[Side] | None = None,
        channels: int = 1,
        options: DatastoreOptions = SMALL,
    ) -> None:
        self.master = master or Side()
        self.sides = replicas if replicas is not None else [Side()]
        self.notices = Notices()
        self._stack = ExitStack()
        with self._stack:
            self.replicas = [
                self._stack.enter_context(LocalReplica(side.disk, SERVICE)) for side in self.sides
            ]
            self.store: Datastore
            self.channels: list[LogChannel]
            self.store, self.channels = open_store(
                PLACE,
                channels=channels,
                replicas=[replica.address for replica in self.replicas],
                options=options,
                notices=self.notices,
                vfs=self.master.disk,
            )
            self._stack.callback(self.store.close)
            self._stack = self._stack.pop_all()

    @property
    def channel(self) -> LogChannel:
        return self.channels[0]

    def release(self) -> None:
        """Let every disk go on."""
        for side in (self.master, *self.sides):
            side.disk.release()

    def close(self) -> None:
        self.release()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
