"""``tidelog pipeline materialize``: the change log of a topic becomes a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.options import output_option
from tidelog.cli.pipeline_options import (
    from_option,
    show_summary,
    spark_master_option,
    topic_option,
)

if TYPE_CHECKING:
    from tidelog.pipeline.materialization.progress import BatchProgress, MaterializeSummary


@click.command("materialize")
@from_option
@click.option("--to", "table", metavar="DIR", required=True, help="Where the table is.")
@topic_option
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["delta", "parquet"]),
    default="delta",
    show_default=True,
    help="Of the table's files.",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Where Spark notes its progress; below the table if not given.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on when the end of the log is reached.")
@click.option(
    "--max-records",
    type=click.IntRange(1),
    metavar="N",
    help="Take at most so many records in one step.",
)
@click.option(
    "--on-missed-deletes",
    type=click.Choice(["rebuild", "fail"]),
    default="rebuild",
    show_default=True,
    help="When the log dropped deletes that the table has not read.",
)
@spark_master_option
@output_option
def command(
    url: str,
    table: str,
    topic: str | None,
    table_format: str,
    checkpoint: str | None,
    follow: bool,
    max_records: int | None,
    on_missed_deletes: str,
    spark_master: str,
    output: str,
) -> None:
    """Keep a table with the current value of every key of a topic.

    Each PUT is a row until a newer PUT replaces it, or a delete takes it away.  The table knows
    how far it is, so that the next run goes on from there.
    """
    from tidelog.pipeline.materialization.job import materialize as run

    summary = run(
        url,
        table,
        format="delta" if table_format == "delta" else "parquet",
        topic=topic,
        checkpoint=checkpoint,
        once=not follow,
        max_records_per_trigger=max_records,
        on_missed_deletes="fail" if on_missed_deletes == "fail" else "rebuild",
        progress=_tell,
        spark_master=spark_master,
    )
    show_summary(summary, output, lambda: _fields(summary))


def _tell(progress: BatchProgress) -> None:
    """One line for each batch, where it does not get into the way of the result."""
    what = f"{progress.counts.entries:,} entries"
    if progress.skipped:
        what = "was in the table already"
    elif progress.rebuilt:
        what = f"the table had missed deletes and was rebuilt from {what}"
    click.echo(
        f"batch {progress.batch}: GLSN {progress.glsn_begin:,} to {progress.glsn_end - 1:,}, "
        f"{what}, {progress.seconds:.2f} s",
        err=True,
    )


def _fields(summary: MaterializeSummary) -> list[tuple[str, object]]:
    counts = summary.counts
    return [
        ("table", f"{summary.table} ({summary.format})"),
        ("topic", summary.topic),
        ("position", f"GLSN {summary.glsn_begin:,} → {summary.glsn_end:,}"),
        ("rows", summary.table_rows),
        ("batches", summary.batches),
        ("puts", counts.puts),
        ("deletes", counts.deletes),
        ("storage deletes", counts.storage_deletes),
        ("appends (ignored)", counts.appends),
        ("compacted away", summary.missing),
        ("rebuilds", summary.rebuilds),
        ("seconds", f"{summary.seconds:.2f}"),
    ]
