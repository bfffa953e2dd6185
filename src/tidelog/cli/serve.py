"""``tidelog serve``: a process that serves a log of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidelog.cli.options import AmountRange, directory_option
from tidelog.cli.ready import tell_ready
from tidelog.cli.security_options import server_security_options

if TYPE_CHECKING:
    from tidelog.net.security import ServerSecurity

DEFAULT_LISTEN: Final = "tcp://127.0.0.1:7447"
DEFAULT_HTTP: Final = "127.0.0.1:7448"
STAGE_SECONDS: Final = 3600.0


@click.command("serve")
@directory_option
@click.option(
    "--listen",
    "endpoints",
    metavar="ADDRESS",
    multiple=True,
    default=(DEFAULT_LISTEN,),
    show_default=True,
    help="tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH; may be given several times.",
)
@server_security_options
@click.option(
    "--http",
    metavar="HOST:PORT",
    default=DEFAULT_HTTP,
    show_default=True,
    help="Where /metrics, /healthz and /readyz are; none: nowhere.",
)
@click.option(
    "--topic",
    metavar="NAME",
    default="default",
    show_default=True,
    help="The first topic, made if it is not there.",
)
@click.option(
    "--streams",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Log streams of the topic, when it is made.",
)
@click.option(
    "--versions",
    type=click.Choice(["log", "explicit"]),
    default="log",
    show_default=True,
    help="Whether GLSNs are the write versions of its keys, or writers give them.",
)
@click.option("--no-create", is_flag=True, help="Fail when there is no log.")
@click.option(
    "--stage-seconds",
    type=AmountRange(min=1),
    default=STAGE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long what Spark has staged waits to be published.",
)
def command(
    data: str,
    endpoints: tuple[str, ...],
    http: str,
    topic: str,
    streams: int,
    versions: str,
    no_create: bool,
    stage_seconds: float,
    security: ServerSecurity,
) -> None:
    """Serve a log to clients and Spark until SIGTERM or SIGINT.

    The log is made if it is not there, with a first topic of --streams log streams.  A line
    "ready ADDRESS" for each address says that clients can connect.
    """

    _serve(
        data,
        endpoints,
        http,
        topic=topic,
        streams=streams,
        versions=versions,
        create=not no_create,
        stage_seconds=stage_seconds,
        security=security,
        ready=tell_ready,
    )


def serve_here(data: str, port: int, http: str, streams: int) -> None:
    """Serve a log of this process alone, on this machine, and tell what to try."""

    from tidelog.storage.process_memory import settle_collector

    def ready(addresses: list[str]) -> None:
        settle_collector()
        url = addresses[0].replace("tcp://", "tidelog://")
        pages = [f"\n  curl {page}/metrics" for page in addresses if page.startswith("http://")]
        click.echo(
            f"Tidelog serves {Path(data).absolute()} at {url}\n\n"
            "Try, in another terminal:\n"
            f"  seq 1 1000 | tidelog append -d {url}\n"
            f"  tidelog tail -d {url} --from -5\n"
            f"  python -c \"import tidelog; print(tidelog.connect('{url}').append(b'hello'))\"\n"
            f"  tidelog stats -d {url}"
            f"{''.join(pages)}\n\n"
            "Ctrl-C stops it."
        )

    _serve(
        data,
        (f"tcp://127.0.0.1:{port}",),
        http,
        topic="default",
        streams=streams,
        versions="log",
        create=True,
        ready=ready,
    )


def _serve(
    data: str,
    endpoints: tuple[str, ...],
    http: str,
    *,
    topic: str,
    streams: int,
    versions: str,
    create: bool,
    stage_seconds: float = STAGE_SECONDS,
    security: ServerSecurity | None = None,
    ready: Callable[[list[str]], None],
) -> None:
    from tidelog.net.loops import run
    from tidelog.server.node import NodeOptions
    from tidelog.server.serve import serve
    from tidelog.storage.machine_facts import raise_open_files
    from tidelog.storage.process_memory import keep_freed_memory

    raise_open_files()
    keep_freed_memory()
    run(
        serve(
            data,
            endpoints,
            http=None if http == "none" else http,
            topic=topic,
            streams=streams,
            versions=versions,
            create=create,
            node_options=NodeOptions(stage_seconds=stage_seconds),
            security=security,
            ready=ready,
        )
    )
