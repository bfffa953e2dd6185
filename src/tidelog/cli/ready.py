"""What a node does when it is ready.  No state."""

from __future__ import annotations

import click


def tell_ready(addresses: list[str]) -> None:
    """A line for each address, for people and for programs that started this one."""
    from tidelog.storage.process_memory import settle_collector

    settle_collector()
    for address in addresses:
        click.echo(f"ready {address}")
