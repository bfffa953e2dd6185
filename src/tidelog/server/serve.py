"""``tidelog serve`` without its command line: open a log and serve it until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.embedded.engine import Engine
from tidelog.embedded.log import DEFAULT_TOPIC
from tidelog.embedded.options import Options
from tidelog.errors import UnknownTopic
from tidelog.net.endpoint import parse_endpoint, parse_http
from tidelog.net.security import ServerSecurity
from tidelog.net.serving import serve_until_stopped
from tidelog.server.node import NodeOptions, ServedNode
from tidelog.storage.os_vfs import OsVfs


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
    security: ServerSecurity | None = None,
    ready: Callable[[list[str]], None] | None = None,
) -> None:
    """Serve the log at ``path`` until SIGTERM or SIGINT; then stop in order.

    ``http`` is an address, ``http://host:port``, for ``/metrics``, ``/healthz`` and ``/readyz``.
    ``security`` says who may connect to ``endpoints``; the pages are for everybody who reaches
    them.  ``ready`` is told the addresses once clients can connect.  Raises what ended the node
    if that was not a signal.
    """
    addresses = [parse_endpoint(endpoint) for endpoint in endpoints]
    watch = None if http is None else parse_http(http)
    security = security or ServerSecurity()
    context = security.context_for(addresses)
    engine = await asyncio.to_thread(
        _open, str(Path(path).absolute()), options or Options(), create, topic, streams, versions
    )
    node = ServedNode(engine, addresses, options=node_options, security=security, context=context)
    await serve_until_stopped(node, http=watch, ready=ready)


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
