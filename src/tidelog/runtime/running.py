"""``tidelog node start`` without its command line: run a node until it is told to stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO

from tidelog.errors import BadOption
from tidelog.net.serving import serve_until_stopped
from tidelog.runtime.config import Config, http_endpoint
from tidelog.runtime.events import log_events
from tidelog.runtime.identity import read_identity
from tidelog.runtime.process import ClusterProcess
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.os_vfs import OsVfs


async def run_node(
    config: Config,
    *,
    until_eof: bool = False,
    ready: Callable[[list[str]], None] | None = None,
) -> None:
    """Run until SIGTERM, SIGINT or a failure, which is raised after all has stopped in order.

    ``until_eof``: or until the standard input ends, for whoever started this holds its other end.
    """
    directory = str(Path(config.node.data).absolute())
    identity = read_identity(FailStopVfs(OsVfs()), directory)
    log_events(level=config.log.level, form=config.log.format, node=identity.node)
    process = ClusterProcess(config, ready=ready)
    if not until_eof:
        await serve_until_stopped(process, http=http_endpoint(config))
        return
    async with _until_eof(process.ask_to_stop):
        await serve_until_stopped(process, http=http_endpoint(config))


@asynccontextmanager
async def _until_eof(told: Callable[[], None]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    _check_ends(sys.stdin)
    transport, _ = await loop.connect_read_pipe(lambda: _Listener(told), sys.stdin)
    try:
        yield
    finally:
        transport.close()


def _check_ends(stream: TextIO | None) -> None:
    """BadOption unless the end of a stream can be waited for; libuv aborts on files."""
    if stream is not None:
        opened = Path(f"/proc/self/fd/{stream.fileno()}")
        if opened.is_fifo() or opened.is_socket() or stream.isatty():
            return
    raise BadOption("--until-eof waits for the end of a pipe, and the standard input is none")


class _Listener(asyncio.Protocol):
    """Reads and forgets, until there is nothing more to come."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end is gone."""
        self._told()
