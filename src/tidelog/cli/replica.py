"""``tidelog replica``: a service that keeps the copy of a datastore."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.options import directory_option
from tidelog.cli.ready import tell_ready
from tidelog.cli.security_options import server_security_options

if TYPE_CHECKING:
    from tidelog.net.security import ServerSecurity


@click.command("replica")
@directory_option
@click.option(
    "--listen",
    "endpoints",
    metavar="ADDRESS",
    multiple=True,
    required=True,
    help="tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH; may be given several times.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    default="none",
    show_default=True,
    help="Where /metrics, /healthz and /readyz are; none: nowhere.",
)
@server_security_options
def command(data: str, endpoints: tuple[str, ...], http: str, security: ServerSecurity) -> None:
    """Keep a copy of an application's datastore until SIGTERM or SIGINT.

    The application names one of these addresses in TIDELOG_REPLICATION_ENDPOINT.  A new directory
    takes on the first datastore that comes.  A line "ready ADDRESS" for each address says that
    it can come.  `tidelog restore` makes a datastore of the directory.
    """
    from tidelog.net.loops import run
    from tidelog.replica_service.serve import serve_replica
    from tidelog.replica_service.service import ServiceOptions
    from tidelog.storage.machine_facts import raise_open_files
    from tidelog.storage.process_memory import keep_freed_memory

    raise_open_files()
    keep_freed_memory()
    run(
        serve_replica(
            data,
            endpoints,
            http=None if http == "none" else http,
            service_options=ServiceOptions(security=security),
            ready=tell_ready,
        )
    )
