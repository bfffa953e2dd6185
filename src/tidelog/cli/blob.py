"""``tidelog blob``: put, get, rm, ls, collect."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tidelog.cli.options import (
    AmountRange,
    data_option,
    read_options,
    topic_option,
    wait_option,
    write_options,
)

if TYPE_CHECKING:
    from tidelog.interface.blobs.figures import BlobCollection
    from tidelog.interface.blobs.sources import BlobSource

_PIPE = "-"


@click.group("blob")
def command() -> None:
    """BLOBs of a topic: bytes of any size, to which its entries refer."""


@command.command("put")
@click.argument("source", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@data_option
@topic_option
@wait_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["id", "table", "json"]),
    default="id",
    show_default=True,
    help="The id alone, or all that is known.",
)
def put(source: str, data: str, topic: str, wait: float, output: str) -> None:
    """Store FILE, or the standard input (-), as a BLOB, and print its id.

    An entry should refer to it soon: `collect` deletes BLOBs to which nothing refers.
    """
    from tidelog.cli.output import Id, Size, print_fields, print_json
    from tidelog.cli.progress import Progress
    from tidelog.cli.session import writing

    with writing(data, wait=wait) as session, Progress("bytes") as progress:
        handle = session.topic(topic)
        blob = handle.put_blob(_source(source), progress=progress.update)
        size = handle.blob_size(blob)
    if output == "json":
        print_json({"topic": topic, "blob": blob, "size": size})
    elif output == "id":
        click.echo(blob)
    else:
        print_fields([("topic", topic), ("BLOB", Id(blob)), ("size", Size(size))])


@command.command("get")
@click.argument("blob", metavar="ID", type=int)
@click.argument(
    "target", metavar="[FILE]", type=click.Path(dir_okay=False, allow_dash=True), default=_PIPE
)
@data_option
@topic_option
def get(blob: int, target: str, data: str, topic: str) -> None:
    """Write BLOB ID to FILE, or to the standard output (-).

    FILE is there when all of the BLOB is in it, and not before; a pipe or a device is written to.
    """
    from pathlib import Path

    from tidelog.cli.blob_copy import copy_to_file, copy_to_stream

    if target == _PIPE:
        copy_to_stream(data, topic, blob, sys.stdout.buffer)
    else:
        copy_to_file(data, topic, blob, Path(target))


@command.command("rm")
@click.argument("blobs", metavar="ID...", type=int, nargs=-1, required=True)
@write_options
@topic_option
def remove(blobs: tuple[int, ...], data: str, topic: str, output: str, wait: float) -> None:
    """Delete the BLOBs ID..., whatever refers to them."""
    from tidelog.cli.output import print_json
    from tidelog.cli.session import writing

    with writing(data, wait=wait) as session:
        handle = session.topic(topic)
        for blob in blobs:
            handle.delete_blob(blob)
    if output == "json":
        print_json({"topic": topic, "deleted": list(blobs)})
    else:
        click.echo(f"deleted {len(blobs):,} BLOB{'' if len(blobs) == 1 else 's'} of topic {topic}")


@command.command("ls")
@read_options
@topic_option
def list_blobs(data: str, topic: str, output: str) -> None:
    """List the BLOBs of a topic, and what broken off uploads have left."""
    import msgspec

    from tidelog.cli.output import Id, Size, print_json, print_table, time_text
    from tidelog.cli.session import reading

    found = reading(data, lambda session: list(session.topic(topic).list_blobs()))
    if output == "json":
        print_json({"topic": topic, "blobs": msgspec.to_builtins(found)})
        return
    print_table(
        ["blob", "size", "written", "complete"],
        [
            (
                Id(info.blob),
                Size(info.size) if info.is_complete else None,
                time_text(info.timestamp_us),
                info.is_complete,
            )
            for info in found
        ],
    )


@command.command("collect")
@write_options
@topic_option
@click.option(
    "--older-than",
    type=AmountRange(min=0),
    metavar="SECONDS",
    default=86400.0,
    show_default=True,
    help="Leave alone what was put since.",
)
def collect(data: str, topic: str, output: str, wait: float, older_than: float) -> None:
    """Delete BLOBs to which no entry refers, and what broken off uploads have left."""
    import msgspec

    from tidelog.cli.output import Size, print_fields, print_json
    from tidelog.cli.progress import Progress
    from tidelog.cli.session import writing

    with writing(data, wait=wait) as session, Progress("entries and BLOBs") as progress:

        def tell(figures: BlobCollection) -> None:
            progress.update(figures.entries + figures.deleted + figures.torn)

        figures = session.topic(topic).collect_blobs(older_than, progress=tell)
    if output == "json":
        print_json({"topic": topic, **msgspec.to_builtins(figures)})
        return
    print_fields(
        [
            ("topic", topic),
            ("entries looked at", figures.entries),
            ("BLOBs kept", figures.kept),
            ("BLOBs deleted", figures.deleted),
            ("their size", Size(figures.bytes)),
            ("remains deleted", figures.torn),
            ("unreadable", figures.unreadable),
        ]
    )


def _source(name: str) -> BlobSource:
    from pathlib import Path

    from tidelog.cli.streams import standard_input

    return standard_input() if name == _PIPE else Path(name)
