"""``tidelog node``: processes of a cluster."""

from __future__ import annotations

import click

from tidelog.cli.node_admin import add, drain, list_nodes, remove
from tidelog.cli.node_init import init
from tidelog.cli.node_start import start


@click.group("node")
def command() -> None:
    """Nodes of a cluster: make one, run it."""


command.add_command(init)
command.add_command(start)
for _admin in (list_nodes, add, drain, remove):
    command.add_command(_admin)
