"""A few pages over HTTP for those who watch a service: ``/metrics``, ``/healthz``, ``/readyz``.

Not a web server: it reads one request, within a bound and a deadline, answers and closes.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from http import HTTPStatus
from typing import Final, Protocol

from tidelog.errors import BadAddress, LogError
from tidelog.limits import KIB
from tidelog.net.endpoint import TcpEndpoint

_logger: Final = logging.getLogger(__name__)

_REQUEST_BYTES_MAX: Final = 8 * KIB
_SECONDS: Final = 10.0
_VISITORS_MAX: Final = 32
_PLAIN: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Watched(Protocol):
    """What the pages tell of; all calls belong into the event loop."""

    @property
    def failure(self) -> LogError | None:
        """What ended it, if it was not asked to stop."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def state(self) -> Enum: ...

    async def metrics(self) -> bytes:
        """As Prometheus reads them."""


class HttpPages:
    """Serves the pages of one service."""

    def __init__(self, watched: Watched, *, seconds: float = _SECONDS) -> None:
        self._watched = watched
        self._seconds = seconds
        self._server: asyncio.Server | None = None
        self._visitors: set[asyncio.Task[None]] = set()

    async def start(self, endpoint: TcpEndpoint) -> TcpEndpoint:
        """Listen; returns the address with the port that the system picked for port 0."""
        try:
            self._server = await asyncio.start_server(
                self._on_visitor, endpoint.host, endpoint.port, limit=_REQUEST_BYTES_MAX
            )
        except (OSError, OverflowError, UnicodeError) as error:  # The last: no name of a host.
            raise BadAddress(f"cannot listen at {endpoint}: {error}") from error
        return TcpEndpoint(endpoint.host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for visitor in self._visitors:
            visitor.cancel()
        if self._visitors:
            await asyncio.wait(self._visitors)

    async def _on_visitor(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._visitors) >= _VISITORS_MAX:
            writer.transport.abort()
            return
        self._visitors.add(task)
        try:
            async with asyncio.timeout(self._seconds):
                await self._serve(reader, writer)
        except (TimeoutError, OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._visitors.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            status, kind, body = HTTPStatus.BAD_REQUEST, _PLAIN, b"not a request\n"
        else:
            status, kind, body = await self._page(head)
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            "",
            "",
        )
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()

    async def _page(self, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"only GET is served\n"
        match path:
            case b"/metrics":
                return await self._metrics()
            case b"/healthz":
                failure = self._watched.failure
                return _verdict(failure is None, "alive", str(failure))
            case b"/readyz":
                return _verdict(self._watched.is_ready, "ready", str(self._watched.state.value))
        return HTTPStatus.NOT_FOUND, _PLAIN, b"try /metrics, /healthz or /readyz\n"

    async def _metrics(self) -> tuple[HTTPStatus, str, bytes]:
        try:
            return HTTPStatus.OK, _METRICS, await self._watched.metrics()
        except LogError as error:
            return _verdict(False, "", str(error))
        except Exception:
            _logger.exception("the metrics cannot be told")
            return HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, b"failed: the log has the details\n"


def _verdict(good: bool, yes: str, no: str) -> tuple[HTTPStatus, str, bytes]:
    if good:
        return HTTPStatus.OK, _PLAIN, f"{yes}\n".encode()
    return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"{no}\n".encode()
