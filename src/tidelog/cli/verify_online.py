"""``tidelog verify --online``: the replicas of a running cluster against one another."""

from __future__ import annotations

import click
import msgspec

from tidelog.cli.admin_session import administering
from tidelog.cli.failures import ExitCode, Failure
from tidelog.cli.output import print_json, print_table
from tidelog.cli.progress import Progress
from tidelog.client.verification import Checked


def verify_online(url: str, output: str, *, show_all: bool) -> None:
    """Compare, report, and fail if replicas differ."""
    checked: list[Checked] = []
    entries = 0
    with administering(url) as admin, Progress("entries") as progress:
        for one in admin.verify():
            checked.append(one)
            entries += one.end - one.begin if one.kind == "replicas" else 0
            progress.update(entries)
    problems = [one for one in checked if one.problem and one.kind != "left out"]
    left_out = [one for one in checked if one.kind == "left out"]
    if output == "json":
        print_json(
            {
                "healthy": not problems,
                "entries": entries,
                "left_out": msgspec.to_builtins(left_out),
                "problems": msgspec.to_builtins(problems),
                "checked": msgspec.to_builtins(checked) if show_all else [],
            }
        )
    else:
        shown = checked if show_all else [*problems, *left_out]
        if shown:
            print_table(
                ["what", "topic", "stream", "range", "nodes", "finding"],
                [_row(one) for one in shown],
            )
        if not problems:
            click.echo(_summary(entries))
    if problems:
        noun = "difference" if len(problems) == 1 else "differences"
        raise Failure(f"{len(problems)} {noun} between replicas", ExitCode.DAMAGED)


def _summary(entries: int) -> str:
    if not entries:
        return "nothing to compare: no entry is ordered that was not compacted or trimmed"
    return f"sound: {entries:,} entries are equal on all replicas that were compared"


def _row(one: Checked) -> tuple[object, ...]:
    return (
        one.kind,
        one.topic,
        str(one.stream or "-"),
        f"[{one.begin}, {one.end})" if one.end else "-",
        ", ".join(map(str, one.nodes)),
        one.problem or "ok",
    )
