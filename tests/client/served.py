"""A served log in this process, for tests: its node runs in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from tidelog.embedded.options import Options
from tidelog.net.loops import run
from tidelog.net.security import ServerSecurity
from tidelog.server.serve import serve

START_SECONDS = 30.0


class Node:
    """A node that serves until it is stopped."""

    def __init__(
        self, path: Path, endpoints: list[str], security: ServerSecurity | None = None
    ) -> None:
        self._ready: Future[tuple[asyncio.AbstractEventLoop, list[str]]] = Future()
        self._main: asyncio.Task[None] | None = None
        self._path = path
        self._security = security
        self._thread = threading.Thread(target=lambda: run(self._serve(endpoints)))
        self._thread.start()
        self._loop, self.endpoints = self._ready.result(START_SECONDS)

    async def _serve(self, endpoints: list[str]) -> None:
        loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        try:
            await serve(
                self._path,
                endpoints,
                options=Options(),
                security=self._security,
                ready=lambda bound: self._ready.set_result((loop, bound)),
            )
        except asyncio.CancelledError:
            return
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    @property
    def urls(self) -> list[str]:
        return [url_of(endpoint) for endpoint in self.endpoints]

    @property
    def url(self) -> str:
        return self.urls[0]

    def stop(self) -> None:
        """Stop in order, as a signal would."""
        if self._thread.is_alive():
            main = self._main
            assert main is not None
            self._loop.call_soon_threadsafe(main.cancel)
            self._thread.join(START_SECONDS)
            assert not self._thread.is_alive()


def url_of(endpoint: str, topic: str = "") -> str:
    """The URL for clients of a node that listens at ``endpoint``."""
    for scheme, url in (("tcp://", "tidelog://"), ("tls://", "tidelog+tls://")):
        if endpoint.startswith(scheme):
            return f"{url}{endpoint.removeprefix(scheme)}/{topic}"
    query = f"?topic={topic}" if topic else ""
    return f"tidelog+unix://{endpoint.removeprefix('unix://')}{query}"


@contextmanager
def node(path: Path, *endpoints: str, security: ServerSecurity | None = None) -> Iterator[Node]:
    """Serve the log at ``path``, at any free port by default."""
    running = Node(path, list(endpoints) or ["tcp://127.0.0.1:0"], security)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def socket_path() -> Iterator[Path]:
    """A place for a Unix socket: their paths must be short."""
    with tempfile.TemporaryDirectory(prefix="tl") as directory:
        yield Path(directory) / "s"
