"""``tidelog pipeline audit``: every replica of a log against every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.options import AmountRange, output_option
from tidelog.cli.pipeline_options import spark_master_option

if TYPE_CHECKING:
    from tidelog.pipeline.auditing.findings import AuditProgress, AuditSummary, Finding


@click.command("audit")
@click.option(
    "--from", "url", metavar="URL", required=True, help="tidelog://HOST:PORT of any node."
)
@click.option("--report", metavar="FILE", help="Write an HTML page with tables and plots here.")
@click.option(
    "-t",
    "--topic",
    "topics",
    metavar="NAME",
    multiple=True,
    help="Look at this topic alone; may be given several times.",
)
@click.option(
    "--timeout",
    type=AmountRange(min=0, min_open=True),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="How long a node may take to answer.",
)
@spark_master_option
@output_option
def command(
    url: str,
    report: str | None,
    topics: tuple[str, ...],
    timeout: float,
    spark_master: str,
    output: str,
) -> None:
    """Compare all replicas of a log, entry by entry, and check its order and its files.

    Nothing is changed, and appends go on meanwhile.  Ends with exit code 3 if something is wrong,
    and with 1 if nothing is, but not everything could be looked at.
    """
    from tidelog.pipeline.auditing.job import audit as run

    summary = run(
        url,
        topics=topics or None,
        report=report,
        progress=_tell,
        spark_master=spark_master,
        timeout=timeout,
    )
    if output == "json":
        _print_json(summary)
    else:
        _print(summary)
    _fail(summary)


def _tell(progress: AuditProgress) -> None:
    click.echo(f"{progress.step}: {progress.what}", err=True)


def _fail(summary: AuditSummary) -> None:
    from tidelog.cli.failures import ExitCode, Failure

    if not summary.is_sound:
        count = len(summary.findings) + summary.findings_more
        raise Failure(f"the audit has {count:,} findings", ExitCode.DAMAGED)
    if not summary.is_complete:
        raise Failure(f"{len(summary.left_out):,} replicas or files could not be looked at")


def _print_json(summary: AuditSummary) -> None:
    import msgspec

    from tidelog.cli.output import print_json

    print_json(
        {
            "is_sound": summary.is_sound,
            "is_complete": summary.is_complete,
            **msgspec.to_builtins(summary),
        }
    )


def _print(summary: AuditSummary) -> None:
    from tidelog.cli.output import Size, print_fields, print_table

    if summary.findings:
        headers = ("what", "topic", "stream", "nodes", "llsns", "glsns", "details")
        print_table(headers, [_row(one) for one in summary.findings])
        click.echo()
    for one in summary.left_out:
        where = f"log stream {one.stream}" if one.stream else "the write-ahead log"
        click.echo(f"not looked at: {where} on node {one.node}: {one.why}")
    print_fields(
        [
            ("log", summary.log_id),
            ("verdict", _verdict(summary)),
            ("nodes", len(summary.nodes)),
            ("topics", len(summary.topics)),
            ("replicas", len(summary.replicas)),
            ("entries", summary.entries),
            ("bytes", Size(summary.bytes)),
            ("findings", len(summary.findings) + summary.findings_more),
            ("report", summary.report or None),
            ("seconds", f"{summary.seconds:.2f}"),
        ]
    )


def _verdict(summary: AuditSummary) -> str:
    from tidelog.pipeline.auditing.report import verdict

    return verdict(summary)[1]


def _row(one: Finding) -> tuple[object, ...]:
    from tidelog.cli.output import Id
    from tidelog.pipeline.auditing.report import range_text

    return (
        one.kind.value,
        one.topic,
        Id(one.stream) if one.stream else None,
        ", ".join(map(str, one.nodes)),
        range_text(one.llsn_begin, one.llsn_end),
        range_text(one.glsn_begin, one.glsn_end),
        f"{one.file}: {one.what}" if one.file else one.what,
    )
