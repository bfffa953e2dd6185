"""``tidelog replica`` without its command line: keep a datastore's copy until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.embedded.options import Options
from tidelog.net.endpoint import parse_endpoint, parse_http
from tidelog.net.serving import serve_until_stopped
from tidelog.replica_service.replica_store import ReplicaStore
from tidelog.replica_service.service import ReplicaService, ServiceOptions
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import Vfs


async def serve_replica(
    path: str | Path,
    endpoints: Sequence[str],
    *,
    http: str | None = None,
    vfs: Vfs | None = None,
    options: Options | None = None,
    service_options: ServiceOptions | None = None,
    ready: Callable[[list[str]], None] | None = None,
) -> None:
    """Be a replica at these addresses until SIGTERM or SIGINT; then stop in order.

    ``http`` is an address for ``/metrics``, ``/healthz`` and ``/readyz``.  ``ready`` is told the
    addresses once masters can connect.  Raises what ended the service if that was not a signal.
    """
    addresses = [parse_endpoint(endpoint) for endpoint in endpoints]
    watch = None if http is None else parse_http(http)
    store = ReplicaStore(vfs or OsVfs(), str(Path(path).absolute()), options)
    await asyncio.to_thread(store.open)
    service = ReplicaService(store, addresses, options=service_options)
    await serve_until_stopped(service, http=watch, ready=ready)
