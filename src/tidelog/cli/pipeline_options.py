"""What the commands of jobs share: where the log is, where Spark runs, how a summary is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import msgspec

from_option = click.option(
    "--from", "url", metavar="URL", required=True, help="tidelog://HOST:PORT/TOPIC."
)

topic_option = click.option(
    "-t", "--topic", metavar="NAME", help="The topic, if the URL does not name it."
)

spark_master_option = click.option(
    "--spark-master",
    metavar="MASTER",
    default="local[*]",
    show_default=True,
    help="Where Spark runs.",
)


def show_summary(
    summary: msgspec.Struct, output: str, fields: Callable[[], Sequence[tuple[str, object]]]
) -> None:
    """What a job did: as JSON, or as these fields."""
    from msgspec import to_builtins

    from tidelog.cli.output import print_fields, print_json

    if output == "json":
        print_json(to_builtins(summary))
    else:
        print_fields(fields())
