"""``tidelog topic``: list, create, describe, add-streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import is_url, read_options, write_options

if TYPE_CHECKING:
    from tidelog.cli.session import Session
    from tidelog.interface.cluster_figures import ClusterStream


@click.group("topic")
def command() -> None:
    """Topics: named sets of log streams that share one order."""


@command.command("list")
@read_options
def list_topics(data: str, output: str) -> None:
    """List the topics of a log."""
    from tidelog.cli.output import Size, print_json, print_table
    from tidelog.cli.session import reading

    topics = reading(data, lambda session: [_fields(session, name) for name in session.topics()])
    if output == "json":
        rows = [{k: v for k, v in topic.items() if k != "streams"} for topic in topics]
        for row, topic in zip(rows, topics, strict=True):
            row["streams"] = len(topic["streams"])
        print_json({"topics": rows})
        return
    print_table(
        ["topic", "versions", "streams", "first", "last", "segment bytes"],
        [
            (
                topic["topic"],
                topic["versions"],
                len(topic["streams"]),
                topic["first_available"],
                topic["high_watermark"],
                Size(sum(stream["segment_bytes"] for stream in topic["streams"])),
            )
            for topic in topics
        ],
    )


@command.command("create")
@click.argument("name")
@write_options
@click.option(
    "--streams",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many log streams it has.",
)
@click.option(
    "--versions",
    type=click.Choice(["log", "explicit"]),
    default="log",
    show_default=True,
    help="Whether GLSNs are the write versions of keys, or writers give them.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1),
    help="Of each log stream, in a cluster.  [default: 3, or as many as there are nodes]",
)
def create(
    name: str,
    data: str,
    output: str,
    wait: float,
    streams: int,
    versions: str,
    replicas: int | None,
) -> None:
    """Create topic NAME, and the log if it is not there."""
    from tidelog.cli.session import reading, writing

    if replicas is not None:
        from tidelog.cli.admin_session import administering

        with administering(data) as admin:
            admin.create_topic(name, streams=streams, versions=versions, replicas=replicas)
        fields = reading(data, lambda session: _fields(session, name))
    else:
        with writing(data, wait=wait, create=True) as session:
            session.create_topic(name, streams=streams, versions=versions)
            fields = _fields(session, name)
    _print(fields, output)


@command.command("describe")
@click.argument("name")
@read_options
def describe(name: str, data: str, output: str) -> None:
    """Show topic NAME, its log streams and, in a cluster, where they are."""
    from tidelog.cli.session import reading

    fields = reading(data, lambda session: _fields(session, name))
    placed = _placed(data, name) if is_url(data) else []
    if placed:
        import msgspec

        fields["placements"] = msgspec.to_builtins(placed)
    _print(fields, output)
    if placed and output != "json":
        from tidelog.cli.cluster_tables import STREAM_HEADERS, stream_row
        from tidelog.cli.output import print_table

        click.echo()
        print_table(STREAM_HEADERS, [stream_row(stream) for stream in placed])


def _placed(url: str, name: str) -> list[ClusterStream]:
    """Where the log streams of a topic are; nothing if the node is of no cluster."""
    from tidelog.cli.admin_session import administering
    from tidelog.errors import WrongState

    try:
        with administering(url) as admin:
            return [stream for stream in admin.status().streams if stream.topic == name]
    except WrongState:
        return []


@command.command("add-streams")
@click.argument("name")
@click.argument("count", type=click.IntRange(1))
@write_options
def add_streams(name: str, count: int, data: str, output: str, wait: float) -> None:
    """Give topic NAME COUNT more log streams, for records without keys."""
    from tidelog.cli.session import writing

    with writing(data, wait=wait) as session:
        session.add_streams(name, count)
        fields = _fields(session, name)
    _print(fields, output)


def _fields(session: Session, name: str) -> dict[str, Any]:
    from tidelog.cli.figures import topic_fields

    return topic_fields(session.topic(name).stats())


def _print(fields: dict[str, Any], output: str) -> None:
    from tidelog.cli.output import print_fields, print_json, print_table

    if output == "json":
        print_json(fields)
        return
    print_fields(
        [
            ("topic", fields["topic"]),
            ("versions", fields["versions"]),
            ("key streams", fields["key_streams"]),
            ("first GLSN", fields["first_available"]),
            ("last GLSN", fields["high_watermark"]),
        ]
    )
    click.echo()
    from tidelog.cli.figures import STREAM_HEADERS, stream_row

    print_table(STREAM_HEADERS, [stream_row(stream) for stream in fields["streams"]])
