"""Listening at an address, with TLS where it says so.  No state."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.errors import BadAddress, BadOption
from tidelog.net.connection import FrameConnection
from tidelog.net.endpoint import Endpoint, TcpEndpoint, UnixEndpoint


@dataclass(frozen=True, slots=True)
class Listening:
    """An address at which somebody listens, with the port that the system picked for port 0."""

    endpoint: Endpoint
    server: asyncio.Server
    file: tuple[int, int] | None = None
    """What tells the file of a Unix socket from a later one."""

    def close(self) -> None:
        """Take no new connections; those that there are live on."""
        self.server.close()

    def remove(self) -> None:
        """Remove the file of a Unix socket; the last step of an orderly stop.

        Who listens there since ``close`` has put a file of its own in its place, which stays.
        """
        if isinstance(self.endpoint, UnixEndpoint) and _file_of(self.endpoint) == self.file:
            Path(self.endpoint.path).unlink(missing_ok=True)


async def listen(
    endpoint: Endpoint,
    accept: Callable[[], FrameConnection],
    context: ssl.SSLContext | None = None,
) -> Listening:
    """Listen; ``accept`` makes a connection for everybody who comes.

    ``context`` is used where the address says TLS, and needed there.
    """
    loop = asyncio.get_running_loop()
    make = _factory(endpoint, _frugal(accept), context)
    try:
        if isinstance(endpoint, UnixEndpoint):
            await _check_unused(endpoint)
            unix_server = await loop.create_unix_server(make, endpoint.path)
            return Listening(endpoint, unix_server, _file_of(endpoint))
        server = await loop.create_server(make, endpoint.host, endpoint.port)
    except (OSError, OverflowError, UnicodeError) as error:  # The last: no name of a host.
        raise BadAddress(f"cannot listen at {endpoint}: {error}") from error
    return Listening(_bound(endpoint, server), server)


def _factory(
    endpoint: Endpoint, accept: Callable[[], FrameConnection], context: ssl.SSLContext | None
) -> Callable[[], asyncio.BaseProtocol]:
    if not endpoint.tls:
        return accept
    if context is None:
        raise BadOption(f"to listen at {endpoint} needs a certificate and its key: give both")
    return lambda: accept().over_tls(context)


def _frugal(accept: Callable[[], FrameConnection]) -> Callable[[], FrameConnection]:
    """Connections have at most half of the process's descriptors; the rest is for its files.

    Strangers who come in numbers would otherwise stop a log, which cannot do without a file.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return accept

    def accept_with_care() -> FrameConnection:
        connection = accept()
        connection.mind_descriptors(limit // 2)
        return connection

    return accept_with_care


def _bound(endpoint: TcpEndpoint, server: asyncio.Server) -> TcpEndpoint:
    return replace(endpoint, port=server.sockets[0].getsockname()[1])


def _file_of(endpoint: UnixEndpoint) -> tuple[int, int] | None:
    """Inode and time: a number may be used again, and a time is not changed by new permissions."""
    try:
        found = Path(endpoint.path).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


async def _check_unused(endpoint: UnixEndpoint) -> None:
    """Raise if somebody serves at this socket: listening would silently take it away."""
    try:
        _, writer = await asyncio.open_unix_connection(endpoint.path)
    except OSError:
        return
    writer.close()
    raise BadAddress(f"somebody serves at {endpoint} already: choose another path")
