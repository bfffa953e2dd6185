"""``tidelog node list|add|drain|remove``: the nodes of a running cluster."""

from __future__ import annotations

import click

from tidelog.cli.admin_session import administering, cluster_options, follow


@click.command("list")
@cluster_options
def list_nodes(data: str, output: str) -> None:
    """List the nodes of a cluster."""
    import msgspec

    from tidelog.cli.cluster_tables import NODE_HEADERS, node_row
    from tidelog.cli.output import print_json, print_table

    with administering(data) as admin:
        nodes = admin.status().nodes
    if output == "json":
        print_json({"nodes": msgspec.to_builtins(nodes)})
    else:
        print_table(NODE_HEADERS, [node_row(node) for node in nodes])


@click.command("add")
@click.argument("node", type=click.IntRange(1))
@click.option("--peers", metavar="ADDRESS", required=True, help="Where it listens for others.")
@click.option("--clients", metavar="ADDRESS", required=True, help="Where it listens for clients.")
@cluster_options
def add(node: int, peers: str, clients: str, data: str, output: str) -> None:
    """Register storage node NODE, or tell that it has moved.

    A node that is started registers itself: this is for one whose address others cannot reach.
    """
    with administering(data) as admin:
        admin.add_node(node, peers=peers, clients=clients)
    _tell(output, node, "registered")


@click.command("drain")
@click.argument("node", type=click.IntRange(1))
@click.option(
    "--contract",
    is_flag=True,
    help="Where no other node can take a replica, do without it.",
)
@cluster_options
def drain(node: int, contract: bool, data: str, output: str) -> None:
    """Take all leaderships and replicas from NODE.

    Its replicas move one by one to the nodes that hold the fewest.  Started again after an
    interrupt, or after a failure of anything, it goes on.
    """
    with administering(data) as admin:
        if admin.status().node(node) is None:
            from tidelog.cli.failures import ExitCode, Failure

            raise Failure(f"there is no node {node}", ExitCode.NOT_FOUND)
        follow(
            admin.drain(node, contract=contract),
            f"`tidelog node drain {node}` goes on with the rest.",
        )
    _tell(output, node, "drained")


@click.command("remove")
@click.argument("node", type=click.IntRange(1))
@cluster_options
def remove(node: int, data: str, output: str) -> None:
    """Unregister storage node NODE, which holds no replica any more."""
    with administering(data) as admin:
        admin.remove_node(node)
    _tell(output, node, "removed")


def _tell(output: str, node: int, what: str) -> None:
    if output == "json":
        from tidelog.cli.output import print_json

        print_json({"node": node, "state": what})
    else:
        click.echo(f"node {node} is {what}")
