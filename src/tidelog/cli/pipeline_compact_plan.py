"""``tidelog pipeline compact-plan``: what of a log may go, computed by Spark."""

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
    from tidelog.pipeline.compaction_plan.progress import CompactPlanSummary, PlanProgress


@click.command("compact-plan")
@from_option
@topic_option
@click.option("--apply", is_flag=True, help="Have the log's nodes compact by the plan.")
@click.option(
    "--full", is_flag=True, help="With --apply: rewrite every segment that has a dead entry."
)
@click.option(
    "--buckets",
    type=click.IntRange(1),
    metavar="N",
    help="Judge the keys in so many parts; by default as many as the log is large.",
)
@click.option(
    "--to", "directory", metavar="DIR", help="Write the live indexes of each log stream there."
)
@spark_master_option
@output_option
def command(
    url: str,
    topic: str | None,
    apply: bool,
    full: bool,
    buckets: int | None,
    directory: str | None,
    spark_master: str,
    output: str,
) -> None:
    """Find out which entries of a topic are still needed.

    The rule is that of the log's own compaction.  With --apply every node checks the plan, claim by
    claim, and drops what is dead.
    """
    from tidelog.pipeline.compaction_plan.job import compact_plan as run

    summary = run(
        url,
        topic=topic,
        apply=apply,
        full=full,
        buckets=buckets,
        directory=directory,
        progress=_tell,
        spark_master=spark_master,
    )
    show_summary(summary, output, lambda: _fields(summary))
    _tell_refusals(summary)


def _tell(progress: PlanProgress) -> None:
    """One line for each step, where it does not get into the way of the result."""
    what = {
        "read": f"read {progress.entries:,} entries with keys",
        "judged": f"judged them: {progress.entries:,} are dead",
        "offered": f"log stream {progress.stream}: {progress.entries:,} dropped on its replicas",
    }[progress.step]
    click.echo(f"{what}, {progress.seconds:.2f} s", err=True)


def _fields(summary: CompactPlanSummary) -> list[tuple[str, object]]:
    fields: list[tuple[str, object]] = [
        ("topic", summary.topic),
        ("positions", f"GLSN {summary.glsn_begin:,} → {summary.glsn_end:,}"),
        ("live", summary.live),
        ("dead", summary.dead),
        ("buckets", summary.buckets),
    ]
    if summary.directory is not None:
        fields.append(("live indexes", summary.directory))
    if summary.outcomes:
        fields += [
            ("replicas", len(summary.outcomes)),
            ("dropped", sum(outcome.dead for outcome in summary.outcomes)),
            ("kept in doubt", sum(outcome.doubtful for outcome in summary.outcomes)),
            ("refused", summary.refused),
            ("reclaimed bytes", summary.reclaimed_bytes),
        ]
    return [*fields, ("seconds", f"{summary.seconds:.2f}")]


def _tell_refusals(summary: CompactPlanSummary) -> None:
    for outcome in summary.outcomes:
        if outcome.refused:
            click.echo(
                f"node {outcome.node} took no plan for log stream {outcome.stream}: "
                f"{outcome.refused}",
                err=True,
            )
