"""A replica service in a thread of the test, so that its disk and its patience can be chosen."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.client.proxy import WAIT_SECONDS
from tidelog.embedded.options import Options
from tidelog.net.endpoint import parse_endpoint
from tidelog.net.loops import run
from tidelog.net.serving import serve_until_stopped
from tidelog.replica_service.replica_store import ReplicaStore
from tidelog.replica_service.service import ReplicaService, ServiceOptions
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import Vfs
from tidelog.testing.disk import SimDisk


class LocalReplica:
    """Has what masters of the tests ask of a replica: address, state, epoch."""

    def __init__(
        self,
        vfs: Vfs | None = None,
        options: ServiceOptions | None = None,
        *,
        endpoint: str = "tcp://127.0.0.1:0",
        path: str = "/replica",
        store_options: Options | None = None,
    ) -> None:
        self._store_options = store_options
        self._path = path
        self._endpoint = parse_endpoint(endpoint)
        self._vfs = vfs or SimDisk().vfs()
        self._options = options
        self._ready: Future[str] = Future()
        self._ended: Future[None] = Future()
        self.service: ReplicaService
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.address = self._ready.result(WAIT_SECONDS)

    def _run(self) -> None:
        try:
            run(self._serve())
        except BaseException as error:
            self._ended.set_exception(error)
            if not self._ready.done():
                self._ready.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        store = ReplicaStore(self._vfs, self._path, self._store_options)
        store.open()
        self.service = ReplicaService(store, [self._endpoint], options=self._options)
        await serve_until_stopped(
            self.service, ready=lambda addresses: self._ready.set_result(addresses[0])
        )

    @property
    def state(self) -> str:
        return self.service.sessions.core.state.value

    @property
    def epoch(self) -> int:
        return self.service.sessions.core.epoch

    @classmethod
    def at(cls, path: Path) -> LocalReplica:
        """On the real disk."""
        return cls(OsVfs(), path=str(path))

    def ask_to_stop(self) -> None:
        self._loop.call_soon_threadsafe(self.service.ask_to_stop)

    def wait(self) -> None:
        """Until it has stopped; raises what ended it."""
        self._ended.result(WAIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._ended.done():
            self.ask_to_stop()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
