"""``tidelog pipeline archive``: closed ranges of a topic become Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.options import AmountRange, output_option
from tidelog.cli.pipeline_options import (
    from_option,
    show_summary,
    spark_master_option,
    topic_option,
)

if TYPE_CHECKING:
    from tidelog.pipeline.archiving.progress import ArchiveProgress, ArchiveSummary


@click.command("archive")
@from_option
@click.option("--to", "directory", metavar="DIR", required=True, help="Where the archive is.")
@topic_option
@click.option(
    "--up-to",
    type=click.IntRange(1),
    metavar="GLSN",
    help="Archive only what lies below this GLSN.",
)
@click.option(
    "--older-than",
    type=AmountRange(min=0),
    metavar="SECONDS",
    help="Archive only what is older.",
)
@click.option(
    "--range-entries",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="How many positions of the log a file is about.",
)
@click.option("--trim", is_flag=True, help="Trim the log below the archive's end.")
@click.option(
    "--keep",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Leave so many archived positions in the log when it is trimmed.",
)
@spark_master_option
@output_option
def command(
    url: str,
    directory: str,
    topic: str | None,
    up_to: int | None,
    older_than: float | None,
    range_entries: int,
    trim: bool,
    keep: int,
    spark_master: str,
    output: str,
) -> None:
    """Copy the entries of a topic into Parquet files, and trim the log behind them if asked to.

    The archive knows how far it is, so that the next run goes on from there.  Spark reads archive
    and log as one: .option("archive", DIR).
    """
    from tidelog.pipeline.archiving.job import archive as run

    summary = run(
        url,
        directory,
        topic=topic,
        up_to=up_to,
        older_than=older_than,
        range_entries=range_entries,
        trim=trim,
        keep=keep,
        progress=_tell,
        spark_master=spark_master,
    )
    show_summary(summary, output, lambda: _fields(summary, trim))


def _tell(progress: ArchiveProgress) -> None:
    """One line for each step, where it does not get into the way of the result."""
    click.echo(
        f"GLSN {progress.glsn_begin:,} to {progress.glsn_end - 1:,} of {progress.glsn_last - 1:,}: "
        f"{progress.rows:,} entries in {progress.files} files, {progress.seconds:.2f} s",
        err=True,
    )


def _fields(summary: ArchiveSummary, trim: bool) -> list[tuple[str, object]]:
    from tidelog.cli.output import size_text

    fields: list[tuple[str, object]] = [
        ("archive", summary.directory),
        ("topic", summary.topic),
        ("position", f"GLSN {summary.glsn_begin:,} → {summary.glsn_end:,}"),
        ("entries", f"{summary.rows:,} in {summary.files} files, {size_text(summary.size)}"),
        ("positions without an entry", summary.missing),
        ("whole archive", _whole(summary)),
        ("leftovers removed", summary.leftovers),
    ]
    if summary.missed_before > 1:
        fields.append(("deletes may be missing", f"below GLSN {summary.missed_before:,}"))
    if trim:
        kept = ", where entries with keys begin" if summary.kept_for_keys else ""
        fields.append(("log trimmed", f"to GLSN {summary.first_available:,}{kept}"))
    fields.append(("seconds", f"{summary.seconds:.2f}"))
    return fields


def _whole(summary: ArchiveSummary) -> str:
    from tidelog.cli.output import size_text

    return (
        f"{summary.archive_rows:,} entries from GLSN {summary.archive_begin:,} on in "
        f"{summary.archive_files} files, {size_text(summary.archive_size)}"
    )
