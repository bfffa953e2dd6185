"""``tidelog serve`` without its command line: open a log and serve it until told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog.embedded.engine import Engine
from tidelog.embedded.log import DEFAULT_TOPIC
from tidelog.embedded.options import Options
from tidelog.errors import UnknownTopic
from tidelog.net.endpoint import parse_endpoint, parse_http
from tidelog.server.http import HttpPages
from tidelog.server.node import NodeOptions, ServedNode
from tidelog.storage.os_vfs import OsVfs

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def serve(
    path: str | Path,
    endpoints: Sequence[str],
    *,
    http: str | None = None,
    topic: str = DEFAULT_TOPIC,
    streams: int = 1,
    versions: str = "log",
    create: bool = True,
    options: Options | None = None,
    node_options: NodeOptions | None = None,
    ready: Callable[[list[str]], None] | None = None,
) -> None:
    """Serve the log at ``path`` until SIGTERM or SIGINT; then stop in order.

    ``http`` is an address, ``http://host:port``, for ``/metrics``, ``/healthz`` and ``/readyz``.
    ``ready`` is told the addresses once clients can connect.  Raises what ended the node if that
    was not a signal.
    """
    addresses = [parse_endpoint(endpoint) for endpoint in endpoints]
    watch = None if http is None else parse_http(http)
    engine = await asyncio.to_thread(
        _open, str(Path(path).absolute()), options or Options(), create, topic, streams, versions
    )
    node = ServedNode(engine, addresses, options=node_options)
    pages = HttpPages(node)
    loop = asyncio.get_running_loop()
    try:
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError):  # Only the main thread gets signals.
                loop.add_signal_handler(number, node.ask_to_stop)
        bound = [str(endpoint) for endpoint in await node.start()]
        if watch is not None:
            bound.append(f"http://{(await pages.start(watch)).address}")
        if ready is not None:
            ready(bound)
        await node.wait_until_asked_to_stop()
    finally:
        await node.stop()
        await pages.stop()
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)
    if node.failure is not None:
        raise node.failure


def _open(
    path: str, options: Options, create: bool, topic: str, streams: int, versions: str
) -> Engine:
    engine = Engine(OsVfs(), path, options, create=create)
    try:
        try:
            engine.find_topic(topic)
        except UnknownTopic:
            if create:
                engine.create_topic(topic, streams=streams, versions=versions)
        return engine
    except BaseException:
        engine.close()
        raise
