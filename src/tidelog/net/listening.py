"""Listening at an address, with TLS where it says so.  No state."""

from __future__ import annotations

import asyncio
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

    def close(self) -> None:
        """Take no new connections; those that there are live on."""
        self.server.close()

    def remove(self) -> None:
        """Remove the file of a Unix socket; the last step of an orderly stop."""
        if isinstance(self.endpoint, UnixEndpoint):
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
    make = _factory(endpoint, accept, context)
    try:
        if isinstance(endpoint, UnixEndpoint):
            await _check_unused(endpoint)
            return Listening(endpoint, await loop.create_unix_server(make, endpoint.path))
        server = await loop.create_server(make, endpoint.host, endpoint.port)
    except (OSError, OverflowError) as error:
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


def _bound(endpoint: TcpEndpoint, server: asyncio.Server) -> TcpEndpoint:
    return replace(endpoint, port=server.sockets[0].getsockname()[1])


async def _check_unused(endpoint: UnixEndpoint) -> None:
    """Raise if somebody serves at this socket: listening would silently take it away."""
    try:
        _, writer = await asyncio.open_unix_connection(endpoint.path)
    except OSError:
        return
    writer.close()
    raise BadAddress(f"somebody serves at {endpoint} already: choose another path")
