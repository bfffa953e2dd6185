"""``tidelog mr``: the members of the metadata repository."""

from __future__ import annotations

import click

from tidelog.cli.admin_session import administering, cluster_options

_node = click.argument("node", type=click.IntRange(1))


@click.group("mr")
def command() -> None:
    """Members of the metadata repository, which orders entries and knows where streams are."""


@command.command("list")
@cluster_options
def list_members(data: str, output: str) -> None:
    """List the members: who leads, and how far each is."""
    import msgspec

    from tidelog.cli.output import Id, print_json, print_table

    with administering(data) as admin:
        status = admin.status()
    metadata = status.metadata
    if output == "json":
        print_json(msgspec.to_builtins(metadata))
        return
    rows = []
    for number in (*metadata.members, *metadata.learners):
        node = status.node(number)
        facts = None if node is None or node.facts is None else node.facts.member
        role = "learner" if number in metadata.learners else "voter"
        rows.append(
            (
                Id(number),
                role,
                "leader" if number == metadata.leader else "",
                None if facts is None else facts.term,
                None if facts is None else facts.commit,
                None if facts is None else facts.applied,
                "does not answer" if facts is None else "ok",
            )
        )
    print_table(["node", "role", "leads", "term", "commit", "applied", "state"], rows)


@command.command("add")
@_node
@click.option("--peers", metavar="ADDRESS", default="",
              help="Where it listens for others, if it is no registered storage node.")  # fmt: skip
@cluster_options
def add(node: int, peers: str, data: str, output: str) -> None:
    """Add NODE: first it learns the log, then it votes."""
    with administering(data) as admin:
        admin.add_member(node, peers=peers)
    _tell(output, node, "added")


@command.command("remove")
@_node
@cluster_options
def remove(node: int, data: str, output: str) -> None:
    """Remove NODE."""
    with administering(data) as admin:
        admin.remove_member(node)
    _tell(output, node, "removed")


@command.command("transfer")
@_node
@cluster_options
def transfer(node: int, data: str, output: str) -> None:
    """Let NODE lead."""
    with administering(data) as admin:
        admin.transfer_leadership(node)
    _tell(output, node, "asked to lead")


def _tell(output: str, node: int, what: str) -> None:
    if output == "json":
        from tidelog.cli.output import print_json

        print_json({"node": node, "state": what})
    else:
        click.echo(f"member {node} is {what}")
