"""Runs a service until a signal or a failure ends it.  No state."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from tidelog.net.endpoint import Endpoint, TcpEndpoint
from tidelog.net.http_pages import HttpPages, Watched

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Service(Watched, Protocol):
    """Something that listens, and stops in order."""

    async def start(self) -> Sequence[Endpoint]:
        """Listen; returns the addresses, with the ports that the system picked for port 0."""

    def ask_to_stop(self) -> None:
        """Let ``wait_until_asked_to_stop`` return."""

    async def wait_until_asked_to_stop(self) -> None: ...

    async def stop(self) -> None: ...


async def serve_until_stopped(
    service: Service,
    *,
    http: TcpEndpoint | None = None,
    ready: Callable[[list[str]], None] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or a failure, which is raised after the service has stopped.

    ``ready`` is told the addresses once clients can connect.
    """
    pages = HttpPages(service)
    with _stop_signals(service.ask_to_stop):
        try:
            bound = [str(endpoint) for endpoint in await service.start()]
            if http is not None:
                bound.append(f"http://{(await pages.start(http)).address}")
            if ready is not None:
                ready(bound)
            await service.wait_until_asked_to_stop()
        finally:
            await service.stop()
            await pages.stop()
    if service.failure is not None:
        raise service.failure


@contextmanager
def _stop_signals(on_signal: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    try:
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError):  # Only the main thread gets signals.
                loop.add_signal_handler(number, on_signal)
        yield
    finally:
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)
