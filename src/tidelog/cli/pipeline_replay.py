"""``tidelog pipeline replay``: the rows of a table become entries of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.options import output_option
from tidelog.cli.pipeline_options import show_summary, spark_master_option, topic_option

if TYPE_CHECKING:
    from tidelog.pipeline.replaying.progress import ReplayProgress, ReplaySummary


@click.command("replay")
@click.option("--from", "table", metavar="DIR", required=True, help="Where the table is.")
@click.option("--to", "url", metavar="URL", required=True, help="tidelog://HOST:PORT/TOPIC.")
@topic_option
@click.option("-k", "--key", metavar="COLUMN", help="Column of the keys.")
@click.option(
    "--value", metavar="COLUMN", help="Column of the values; by default JSON of the other columns."
)
@click.option(
    "--version",
    metavar="COLUMN",
    help="Column of the versions, if those of the topic are explicit.",
)
@click.option(
    "--storage-id",
    type=click.IntRange(0, (1 << 64) - 1),
    default=0,
    show_default=True,
    help="Storage id of the keys.",
)
@click.option(
    "--order-by",
    metavar="COLUMN",
    multiple=True,
    help="Append the rows in this order, all at once.",
)
@click.option(
    "--chunk-rows",
    type=click.IntRange(1),
    metavar="N",
    default=1_000_000,
    show_default=True,
    help="Append about so many rows at once.",
)
@spark_master_option
@output_option
def command(
    table: str,
    url: str,
    topic: str | None,
    key: str | None,
    value: str | None,
    version: str | None,
    storage_id: int,
    order_by: tuple[str, ...],
    chunk_rows: int,
    spark_master: str,
    output: str,
) -> None:
    """Append the rows of a table to a topic, each version of the table once.

    A table of `materialize` needs no columns named; for any other Delta or Parquet table --key says
    which column has the keys.
    """
    from tidelog.pipeline.replaying.job import replay as run

    summary = run(
        table,
        url,
        topic=topic,
        key=key,
        value=value,
        version=version,
        storage_id=storage_id,
        order_by=order_by,
        chunk_rows=chunk_rows,
        progress=_tell,
        spark_master=spark_master,
    )
    show_summary(summary, output, lambda: _fields(summary))


def _tell(progress: ReplayProgress) -> None:
    """One line for each chunk, where it does not get into the way of the result."""
    click.echo(
        f"chunk {progress.chunk} of {progress.chunks}: {progress.rows:,} rows, "
        f"{progress.seconds:.2f} s",
        err=True,
    )


def _fields(summary: ReplaySummary) -> list[tuple[str, object]]:
    return [
        ("table", f"{summary.table} ({summary.format})"),
        ("topic", summary.topic),
        ("rows of the table", summary.table_rows),
        ("rows appended", summary.rows),
        ("chunks", summary.chunks),
        ("chunks there before", summary.chunks_before),
        ("seconds", f"{summary.seconds:.2f}"),
    ]
