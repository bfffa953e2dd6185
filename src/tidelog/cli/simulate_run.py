"""Runs what ``tidelog simulate`` was asked for, and prints what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from multiprocessing import cpu_count
from time import monotonic
from typing import Any

import click

from tidelog.cli.failures import ExitCode
from tidelog.cli.output import print_fields, print_json
from tidelog.cli.progress import Progress
from tidelog.testing.batch import Summary, run_seeds
from tidelog.testing.faults import Reduction, draw_plan
from tidelog.testing.shrink import shrink
from tidelog.testing.simulation import Outcome, simulate
from tidelog.testing.sometimes import Kind, expected
from tidelog.testing.story import replay_line, tell


def run_batches(kinds: Sequence[str], seeds: range, processes: int | None, output: str) -> int:
    """Run the same seeds of each kind; the exit code tells whether all went well."""
    summaries: list[dict[str, Any]] = []
    code = ExitCode.OK
    for name in kinds:
        started = monotonic()
        summary, interrupted = _run_batch(Kind(name), seeds, processes or cpu_count())
        fields = _summary_fields(summary, monotonic() - started)
        summaries.append(fields)
        if output != "json":
            _print_summary(summary, fields)
        if summary.failures or fields["never"]:
            code = ExitCode.ERROR
        if interrupted:
            break
    if output == "json":
        print_json({"kinds": summaries})
    return code


def _run_batch(kind: Kind, seeds: range, processes: int) -> tuple[Summary, bool]:
    summary = Summary(kind)
    try:
        with (
            closing(run_seeds(kind, seeds, processes)) as outcomes,
            Progress(f"{kind.value} seeds") as progress,
        ):
            for outcome in outcomes:
                summary.add(outcome)
                progress.update(summary.seeds)
    except KeyboardInterrupt:
        return summary, True
    return summary, False


def _summary_fields(summary: Summary, seconds: float) -> dict[str, Any]:
    return {
        "kind": summary.kind.value,
        "seeds": summary.seeds,
        "failed_seeds": sorted(outcome.seed for outcome in summary.failures),
        "seconds": round(seconds, 3),
        "seeds_per_minute": round(summary.seeds * 60 / max(seconds, 0.001)),
        "events": summary.happened,
        "counts": {rare.name.lower(): summary.counts[rare] for rare in expected(summary.kind)},
        "never": [rare.name.lower() for rare in summary.never_happened()],
    }


def _print_summary(summary: Summary, fields: dict[str, Any]) -> None:
    click.echo(
        f"{summary.kind.value}: {summary.seeds:,} seeds, {len(summary.failures):,} failed,"
        f" {fields['seeds_per_minute']:,} seeds/min, {summary.happened:,} events"
    )
    print_fields((f"  {rare.value}", summary.counts[rare]) for rare in expected(summary.kind))
    for rare in summary.never_happened():
        click.echo(f"never happened: {rare.value}")
    for outcome in sorted(summary.failures, key=lambda outcome: outcome.seed):
        failure = outcome.failure
        if failure is not None:
            click.echo(f"{failure.checker}: {failure.message}")
        click.echo(f"repeat with: {replay_line(draw_plan(outcome.kind, outcome.seed))}")


def run_one(kind: str, seed: int, reduction: Reduction | None, output: str) -> int:
    """Run one seed; if it fails, shrink it and tell what happened."""
    outcome = simulate(Kind(kind), seed, reduction)
    if outcome.failure is None:
        _print_outcome(outcome, output)
        return ExitCode.OK
    shrunk = shrink(Kind(kind), seed, reduction)
    plan = draw_plan(Kind(kind), seed, reduction) if shrunk is None else shrunk.plan
    failure = outcome.failure
    if shrunk is not None and shrunk.outcome.failure is not None:
        failure = shrunk.outcome.failure
    if output == "json":
        print_json(
            {
                "kind": kind,
                "seed": seed,
                "checker": failure.checker,
                "message": failure.message,
                "replay": replay_line(plan),
                "faults": [str(fault) for fault in plan.faults],
                "events": list(failure.events),
            }
        )
    else:
        for line in tell(plan, failure):
            click.echo(line)
    return ExitCode.ERROR


def _print_outcome(outcome: Outcome, output: str) -> None:
    if output == "json":
        print_json(
            {
                "kind": outcome.kind.value,
                "seed": outcome.seed,
                "digest": outcome.digest,
                "events": outcome.happened,
            }
        )
    else:
        click.echo(f"seed {outcome.seed} went well: digest {outcome.digest}")
