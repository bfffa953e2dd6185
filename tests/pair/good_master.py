"""A master that works on, epoch after epoch, whatever others do to its replica."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.client.proxy import wait_until
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.options import DatastoreOptions
from tidelog.datastore.write_version import WriteVersion
from tidelog.net.security import ClientSecurity

STORAGE = 1
PATIENCE_SECONDS = 20.0


class GoodMaster:
    """A thread with a datastore; one entry in each epoch, and each epoch has to be propagated."""

    def __init__(self, path: Path, replica: str, *, security: ClientSecurity | None = None) -> None:
        options = DatastoreOptions(ack_timeout_seconds=PATIENCE_SECONDS)
        self._store = Datastore(path, replicas=replica, options=options, security=security)
        self._channel = self._store.create_channel()
        self._store.ready()
        self.propagated = self._store.last_epoch
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def work(self, epochs: int = 5) -> None:
        """Wait until so many more epochs were propagated."""
        enough = self.propagated + epochs
        wait_until(lambda: self.propagated >= enough or self._error is not None, "epochs go on")
        assert self._error is None, self._error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._commit(self.propagated + 1)
        except BaseException as error:
            self._error = error

    def _commit(self, epoch: int) -> None:
        self._store.switch_epoch(epoch)
        with self._channel.session() as session:
            session.add_entry(STORAGE, b"%d" % epoch, b"value", WriteVersion(epoch))
        self._store.switch_epoch(epoch + 1)
        self._store.wait_for(epoch, timeout=PATIENCE_SECONDS)
        self.propagated = epoch + 1  # The epoch that is open has no entries.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(2 * PATIENCE_SECONDS)
        self._store.close()
        if error is None:
            assert self._error is None, self._error
