"""``tidelog node init``: makes a directory that of a node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.options import directory_option, output_option
from tidelog.cli.security_options import client_security_options

if TYPE_CHECKING:
    from tidelog.runtime.identity import Identity


@click.command("init")
@directory_option
@click.option("--new-cluster", is_flag=True, help="It is one of a cluster's first nodes.")
@click.option("--join", is_flag=True, help="It joins a cluster that is there.")
@click.option(
    "--id", "number", metavar="N", type=click.IntRange(1), help="Of a first node: its number."
)
@click.option("--members", metavar="N,N,N", help="The first metadata nodes, the same on all.")
@click.option(
    "--cluster-id", metavar="HEX", help="The cluster.  [default: a new one is drawn, or see --ask]"
)
@click.option("--ask", metavar="URL", help="Of a node that tells the cluster id, with --join.")
@client_security_options
@output_option
def init(
    data: str,
    new_cluster: bool,
    join: bool,
    number: int | None,
    members: str | None,
    cluster_id: str | None,
    ask: str | None,
    output: str,
) -> None:
    """Make a directory that of a node: who it is, for ever.

    The first nodes of a cluster are numbered by hand, know one another's numbers, and share the
    cluster id that the first of them draws.  Nodes that join later draw their numbers themselves.
    """
    if new_cluster == join:
        raise click.UsageError("give --new-cluster or --join")
    from tidelog.runtime.identity import founder, joiner, new_cluster_id, parse_cluster_id
    from tidelog.runtime.new_node import make_node
    from tidelog.storage.os_vfs import OsVfs

    if new_cluster:
        if number is None or ask:
            raise click.UsageError("--new-cluster needs --id, and --ask is for --join")
        drawn = parse_cluster_id(cluster_id) if cluster_id else new_cluster_id()
        identity = founder(drawn, number, _numbers(members or str(number)))
    else:
        if number is not None or members:
            raise click.UsageError("--id and --members are for --new-cluster")
        if bool(ask) == bool(cluster_id):
            raise click.UsageError("--join needs --cluster-id or --ask")
        known = parse_cluster_id(cluster_id) if cluster_id else _asked(str(ask))
        identity = joiner(known)
    make_node(OsVfs(), str(Path(data).absolute()), identity)
    is_first = new_cluster and not cluster_id
    _print(data, identity, is_first, output)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: write the numbers as 1,2,3") from None


def _asked(url: str) -> bytes:
    """The cluster id, from a node of the cluster."""
    from tidelog.cli.admin_session import administering
    from tidelog.runtime.identity import parse_cluster_id

    with administering(url) as admin:
        return parse_cluster_id(admin.status().cluster_id)


def _print(data: str, identity: Identity, is_first: bool, output: str) -> None:
    node, members, cluster_id = identity.node, identity.members, identity.cluster_id.hex()
    if output == "json":
        from tidelog.cli.output import print_json

        print_json({"data": data, "node": node, "cluster_id": cluster_id, "members": members})
        return
    click.echo(f"{data} is node {node} of cluster {cluster_id}")
    # The others are told by the first one only: a number that is given twice is two nodes in one.
    for other in members if is_first else ():
        if other != node:
            click.echo(
                f"on node {other}: tidelog node init --new-cluster --cluster-id {cluster_id} "
                f"--members {','.join(map(str, members))} --id {other} --data DIR"
            )
    click.echo("next: tidelog node start --config FILE (see `tidelog config show`)")
