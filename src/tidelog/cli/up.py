"""``tidelog up``: a cluster on this machine."""

from __future__ import annotations

import click
from click.core import ParameterSource

DEFAULT_PORT = 7447


@click.command("up")
@click.option(
    "-d",
    "--data",
    metavar="DIR",
    default="tidelog-data",
    show_default=True,
    help="Where data and logs are; made if it is not there, gone on with if it is.",
)
@click.option(
    "--nodes",
    metavar="N",
    type=click.IntRange(1, 9),
    help="How many nodes.  [default: 3, or those that are there]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Of the first node; it uses the two behind it as well, and each next node ten later.",
)
@click.option(
    "--streams",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Log streams of the topic default, when it is made.",
)
@click.option("--ephemeral", is_flag=True, help="Keep nothing: the data goes with the cluster.")
@click.option("--embedded", is_flag=True, help="One process with a log of its own, no cluster.")
@click.option(
    "--http",
    metavar="HOST:PORT",
    default="127.0.0.1:7448",
    show_default=True,
    help="With --embedded: where /metrics, /healthz and /readyz are; none: nowhere.",
)
@click.pass_context
def command(
    ctx: click.Context,
    data: str,
    nodes: int | None,
    port: int,
    streams: int,
    ephemeral: bool,
    embedded: bool,
    http: str,
) -> None:
    """Start a cluster on this machine, and tell what to try.

    Each node is a process; Ctrl-C stops them all.  The next start goes on with the same data.
    """
    from pathlib import Path

    from tidelog.cli.up_nodes import check_kind, run_cluster, temporary_data

    has_port = ctx.get_parameter_source("port") is not ParameterSource.DEFAULT
    with temporary_data(Path(data).absolute(), ephemeral) as directory:
        check_kind(directory, embedded)
        if embedded:
            from tidelog.cli.serve import serve_here

            serve_here(str(directory), port, http, streams)
        else:
            run_cluster(directory, nodes, port if has_port else None, streams)
