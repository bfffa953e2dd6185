"""Certificates and tokens for tests, and how to serve and connect with them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import tidelog
from tests.embedded.logs import WAIT_SECONDS
from tests.server.raw import Served
from tidelog.client.log import AsyncRemoteLog
from tidelog.net.endpoint import Endpoint, LogUrl, TcpEndpoint
from tidelog.net.security import ClientSecurity, ServerSecurity

T = TypeVar("T")
CERTIFICATES: Final = Path(__file__).parent / "certificates"
TLS: Final = TcpEndpoint("127.0.0.1", 0, tls=True)
PLAIN: Final = TcpEndpoint("127.0.0.1", 0)
TOKEN: Final = "a-token-of-the-tests-0001"
NEXT_TOKEN: Final = "a-token-of-the-tests-0002"
WRONG_TOKEN: Final = "a-token-of-the-tests-0003"


def pem(name: str) -> str:
    return str(CERTIFICATES / f"{name}.pem")


def server(
    name: str = "server", *, client_ca: str = "", tokens: tuple[str, ...] = ()
) -> ServerSecurity:
    """A server with the certificate of this name."""
    return ServerSecurity(
        cert=pem(name),
        key=pem(f"{name}.key"),
        client_ca=client_ca and pem(client_ca),
        tokens=frozenset(tokens),
    )


def client(
    name: str = "", *, ca: str = "ca", token: str = "", server_name: str = ""
) -> ClientSecurity:
    """A client that trusts a CA, with the certificate of this name if any."""
    return ClientSecurity(
        ca=pem(ca),
        cert=name and pem(name),
        key=name and pem(f"{name}.key"),
        token=token,
        server_name=server_name,
    )


def url_of(endpoint: Endpoint) -> str:
    return str(LogUrl((endpoint,)))


async def connect(
    served: Served, security: ClientSecurity, *, timeout: float = WAIT_SECONDS
) -> AsyncRemoteLog:
    url = url_of(served.endpoints[0])
    return await tidelog.connect_async(url, security=security, timeout=timeout)


def run(make_loop: Any, main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; it must come to an end."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(asyncio.wait_for(main, 2 * WAIT_SECONDS))
