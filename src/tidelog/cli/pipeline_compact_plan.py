"""``tidelog pipeline compact-plan``: what of a log may go, computed by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.options import output_option

if TYPE_CHECKING:
    from tidelog.pipeline.compaction_plan.progress import CompactPlanSummary, PlanProgress


@click.command("compact-plan")
@click.option("--from", "url", metavar="URL", required=True, help="tidelog://HOST:PORT/TOPIC.")
@click.option("-t", "--topic", metavar="NAME", help="The topic, if the URL does not name it.")
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
@click.option(
    "--spark-master",
    metavar="MASTER",
    default="local[*]",
    show_default=True,
    help="Where Spark runs.",
)
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
    if output == "json":
        _print_json(summary)
    else:
        _print(summary)


def _tell(progress: PlanProgress) -> None:
    """One line for each step, where it does not get into the way of the result."""
    what = {
        "read": f"read {progress.entries:,} entries with keys",
        "judged": f"judged them: {progress.entries:,} are dead",
        "offered": f"log stream {progress.stream}: {progress.entries:,} dropped on its replicas",
    }[progress.step]
    click.echo(f"{what}, {progress.seconds:.2f} s", err=True)


def _print_json(summary: CompactPlanSummary) -> None:
    import msgspec

    from tidelog.cli.output import print_json

    print_json(msgspec.to_builtins(summary))


def _print(summary: CompactPlanSummary) -> None:
    from tidelog.cli.output import print_fields

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
    print_fields([*fields, ("seconds", f"{summary.seconds:.2f}")])
    for outcome in summary.outcomes:
        if outcome.refused:
            click.echo(
                f"node {outcome.node} took no plan for log stream {outcome.stream}: "
                f"{outcome.refused}",
                err=True,
            )
