"""Connecting to an address, with TLS where it says so.  No state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from ssl import SSLContext
from typing import Self

from tidelog.errors import BadOption, Unreachable
from tidelog.net.connection import FrameConnection
from tidelog.net.endpoint import Endpoint, UnixEndpoint
from tidelog.net.security import ClientSecurity


@dataclass(frozen=True, slots=True)
class Dialer:
    """What a client needs to connect, read and checked once for all its connections."""

    security: ClientSecurity
    context: SSLContext | None

    @classmethod
    def to(cls, endpoints: Sequence[Endpoint], security: ClientSecurity) -> Self:
        """For a client of these addresses; BadOption if its files are of no use."""
        fitting = [security.for_endpoint(endpoint) for endpoint in endpoints]
        wanted = next((one for one in fitting if one.tls), None)
        return cls(security, None if wanted is None else wanted.ssl_context())

    @property
    def token(self) -> str:
        return self.security.token

    async def dial(self, endpoint: Endpoint, connection: FrameConnection) -> None:
        """Connect; Unreachable if there is nobody.  A handshake goes on, and is told by the end
        of the connection if it fails."""
        loop = asyncio.get_running_loop()
        try:
            if isinstance(endpoint, UnixEndpoint):
                await loop.create_unix_connection(lambda: connection, endpoint.path)
            else:
                protocol = self._protocol(endpoint, connection)
                await loop.create_connection(lambda: protocol, endpoint.host, endpoint.port)
        except (OSError, ValueError) as error:
            raise Unreachable(f"cannot connect to {endpoint}: {error}") from error

    def _protocol(self, endpoint: Endpoint, connection: FrameConnection) -> asyncio.BaseProtocol:
        if not endpoint.tls:
            return connection
        if self.context is None:
            raise BadOption(f"{endpoint} was not known when TLS was prepared")
        return connection.over_tls(self.context, server_name=self.security.name_of(endpoint))
