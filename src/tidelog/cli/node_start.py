"""``tidelog node start``: runs a node of a cluster."""

from __future__ import annotations

import click

from tidelog.cli.config import config_option
from tidelog.cli.ready import tell_ready


@click.command("start")
@config_option
@click.option(
    "--until-eof",
    is_flag=True,
    help="Stop when the standard input ends, for programs that start nodes.",
)
def start(config: str | None, until_eof: bool) -> None:
    """Run a node of a cluster until SIGTERM or SIGINT.

    The node's directory was made by `tidelog node init`.  A line "ready ADDRESS" for each address
    says that clients can connect.
    """
    from tidelog.runtime.config_sources import load_config

    loaded = load_config(config)
    from tidelog.net.loops import run
    from tidelog.runtime.running import run_node
    from tidelog.storage.machine_facts import raise_open_files
    from tidelog.storage.process_memory import keep_freed_memory

    raise_open_files()
    keep_freed_memory()
    run(run_node(loaded.config, until_eof=until_eof, ready=tell_ready))
