"""``tidelog operator``: who elects leaders and moves replicas, and whether it may."""

from __future__ import annotations

import click

from tidelog.cli.admin_session import administering, cluster_options


@click.group("operator")
def command() -> None:
    """Operators: they elect leaders and replace lost replicas."""


@command.command("list")
@cluster_options
def list_operators(data: str, output: str) -> None:
    """List the operators that answer."""
    from tidelog.cli.output import Id, print_json, print_table

    with administering(data) as admin:
        status = admin.status()
    state = "paused" if status.operators_paused else "at work"
    if output == "json":
        print_json({"operators": list(status.operators), "paused": status.operators_paused})
    else:
        print_table(["node", "state"], [(Id(node), state) for node in status.operators])


@command.command("pause")
@cluster_options
def pause(data: str, output: str) -> None:
    """Let operators begin nothing by themselves, until `resume`.

    For work on several nodes at once.  No leader is elected meanwhile when one dies; what is asked
    for by hand is still done.
    """
    with administering(data) as admin:
        admin.pause_operators()
    _tell(output, paused=True)


@command.command("resume")
@cluster_options
def resume(data: str, output: str) -> None:
    """Let operators go on."""
    with administering(data) as admin:
        admin.resume_operators()
    _tell(output, paused=False)


def _tell(output: str, *, paused: bool) -> None:
    if output == "json":
        from tidelog.cli.output import print_json

        print_json({"paused": paused})
    else:
        click.echo(f"operators are {'paused' if paused else 'at work'}")
