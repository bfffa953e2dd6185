"""``tidelog stream``: the log streams of a cluster, and where their replicas are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_session import administering, cluster_options, follow
from tidelog.cli.options import topic_option

if TYPE_CHECKING:
    from tidelog.client.blocking_admin import Admin

_stream = click.argument("stream", type=click.IntRange(1))
_to = click.option("--to", "new", metavar="NODE", type=click.IntRange(1), required=True,
                   help="Where the new replica will be.")  # fmt: skip
_from = click.option("--from", "old", metavar="NODE", type=click.IntRange(1), required=True,
                     help="Whose replica goes.")  # fmt: skip


@click.group("stream")
def command() -> None:
    """Log streams of a cluster: their leaders and replicas.

    What takes long goes on in the cluster when the command is interrupted; the same command
    follows it again.
    """


@command.command("list")
@cluster_options
def list_streams(data: str, output: str) -> None:
    """List all log streams."""
    import msgspec

    from tidelog.cli.cluster_tables import STREAM_HEADERS, stream_row
    from tidelog.cli.output import print_json, print_table

    with administering(data) as admin:
        streams = admin.status().streams
    if output == "json":
        print_json({"streams": msgspec.to_builtins(streams)})
    else:
        print_table(STREAM_HEADERS, [stream_row(stream) for stream in streams])


@command.command("create")
@topic_option
@click.option("--on", "nodes", metavar="NODE", type=click.IntRange(1), multiple=True,
              help="A node for a replica; may be given several times.")  # fmt: skip
@click.option("--replicas", type=click.IntRange(1), default=None,
              help="How many, where there is room.  [default: as the topic's others]")  # fmt: skip
@cluster_options
def create(
    topic: str, nodes: tuple[int, ...], replicas: int | None, data: str, output: str
) -> None:
    """Give a topic one more log stream, for records without keys."""
    if nodes and replicas is not None:
        raise click.UsageError("Give --on or --replicas, not both.")
    with administering(data) as admin:
        number = admin.create_stream(topic, nodes=nodes, replicas=replicas or 0)
        _tell(admin, number, "created", output)


@command.command("seal")
@_stream
@cluster_options
def seal(stream: int, data: str, output: str) -> None:
    """Let STREAM take no more appends; what is in it stays readable."""
    with administering(data) as admin:
        admin.seal(stream)
        _tell(admin, stream, "sealed", output)


@command.command("unseal")
@_stream
@cluster_options
def unseal(stream: int, data: str, output: str) -> None:
    """Let STREAM take appends again."""
    with administering(data) as admin:
        admin.unseal(stream)
        _tell(admin, stream, "running", output)


@command.command("move-leader")
@_stream
@click.option("--to", "target", metavar="NODE", type=click.IntRange(1), default=None,
              help="Who is to lead.  [default: another node than now]")  # fmt: skip
@cluster_options
def move_leader(stream: int, target: int | None, data: str, output: str) -> None:
    """Let another node lead STREAM."""
    with administering(data) as admin:
        steps = admin.move_leader(stream, target or 0)
        told = follow(steps, f"`tidelog stream move-leader {stream}` tries again.")
        _tell(admin, stream, told, output)


@command.command("swap")
@_stream
@_from
@_to
@cluster_options
def swap(stream: int, old: int, new: int, data: str, output: str) -> None:
    """Replace the replica of STREAM on one node by a new one on another."""
    with administering(data) as admin:
        told = follow(admin.swap(stream, old, new), _again(stream, "swap"))
        _tell(admin, stream, told, output)


@command.command("expand")
@_stream
@_to
@cluster_options
def expand(stream: int, new: int, data: str, output: str) -> None:
    """Give STREAM one more replica."""
    with administering(data) as admin:
        told = follow(admin.expand(stream, new), _again(stream, "expand"))
        _tell(admin, stream, told, output)


@command.command("contract")
@_stream
@_from
@cluster_options
def contract(stream: int, old: int, data: str, output: str) -> None:
    """Remove the replica of STREAM on a node."""
    with administering(data) as admin:
        told = follow(admin.contract(stream, old), _again(stream, "contract"))
        _tell(admin, stream, told, output)


@command.command("abort")
@_stream
@cluster_options
def abort(stream: int, data: str, output: str) -> None:
    """Undo a swap, expand or contract of STREAM that is not committed yet."""
    with administering(data) as admin:
        admin.abort_change(stream)
        _tell(admin, stream, "as before", output)


def _again(stream: int, name: str) -> str:
    return (
        f"The same command follows it again; `tidelog stream abort {stream}` undoes the {name} "
        "while it is in prepare."
    )


def _tell(admin: Admin, stream: int, what: str, output: str) -> None:
    if output == "json":
        import msgspec

        from tidelog.cli.output import print_json

        print_json(msgspec.to_builtins(admin.status().stream(stream)))
    else:
        click.echo(f"log stream {stream}: {what}")
