"""``tidelog verify``: check every file of a log, whether it can be opened or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.failures import ExitCode, Failure
from tidelog.cli.options import data_option, output_option, wait_option

if TYPE_CHECKING:
    from tidelog.cli.file_finding import FileFinding


@click.command("verify")
@data_option
@output_option
@wait_option
@click.option("--deep", is_flag=True, help="Also read all topics and recompute what is live.")
@click.option("--all", "show_all", is_flag=True, help="List what is sound, too.")
@click.option("--online", is_flag=True, help="Compare the replicas of a running cluster.")
def command(data: str, output: str, wait: float, deep: bool, show_all: bool, online: bool) -> None:
    """Check every file of a log that no process has open, or all replicas of a cluster.

    Every file is read and checked by itself; then the log is opened as after a crash, on a disk
    where changes stay in memory.  Nothing is repaired and nothing is changed.
    With --online the replicas of each log stream are compared with one another, and GLSNs of each
    topic must leave no gap; appends go on meanwhile.  Exit code 3 if anything is wrong.
    """
    if online:
        from tidelog.cli.verify_online import verify_online

        verify_online(data, output, show_all=show_all)
        return
    from tidelog.cli.output import Size, print_json, print_table
    from tidelog.cli.progress import Progress
    from tidelog.cli.verify_files import Verification

    findings: list[FileFinding] = []
    with Verification(data, wait) as verification, Progress("files") as progress:
        for finding in verification.run(deep=deep):
            findings.append(finding)
            progress.update(len(findings))
    problems = [finding for finding in findings if finding.problem]
    if output == "json":
        rows = [finding.fields() for finding in findings]
        print_json({"path": verification.path, "healthy": not problems, "findings": rows})
    else:
        rows_shown = findings if show_all else problems
        if rows_shown:
            print_table(
                ["kind", "file", "entries", "bytes", "finding"],
                [
                    (f.kind, f.name, f.entries, Size(f.bytes), f.problem or f.note or "ok")
                    for f in rows_shown
                ],
            )
        size = Size(sum(finding.bytes for finding in findings))
        files = sum(finding.is_file for finding in findings)
        if not problems:
            from tidelog.cli.output import size_text

            click.echo(f"sound: {files} files, {size_text(size)}")
    if problems:
        noun = "problem" if len(problems) == 1 else "problems"
        raise Failure(f"{len(problems)} {noun} in {verification.path}", ExitCode.DAMAGED)
