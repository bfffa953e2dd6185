"""``tidelog simulate``: whole clusters in one process, under faults, by the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.options import output_option

if TYPE_CHECKING:
    from tidelog.testing.faults import Reduction

KINDS = ("raft", "cluster", "session")


@click.command("simulate")
@click.option(
    "--seeds", type=click.IntRange(1), default=100, show_default=True, help="How many to run."
)
@click.option(
    "--first", type=click.IntRange(0), default=0, show_default=True, help="The first one."
)
@click.option(
    "--seed", type=click.IntRange(0), help="Run this one alone; it is shrunk if it fails."
)
@click.option(
    "--kind",
    type=click.Choice((*KINDS, "all")),
    default="all",
    show_default=True,
    help="A Raft group, a whole cluster, or a master with its replicas.",
)
@click.option(
    "--processes", type=click.IntRange(1), help="How many work at once.  [default: all cores]"
)
@click.option("--without", metavar="CLASS,...", help="With --seed: leave out classes of faults.")
@click.option("--only", metavar="FAULT,...", help="With --seed: keep these faults, or 'none'.")
@click.option("--stop-at", type=click.IntRange(1), help="With --seed: end the faults at this µs.")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    seeds: int,
    first: int,
    seed: int | None,
    kind: str,
    processes: int | None,
    without: str | None,
    only: str | None,
    stop_at: int | None,
    output: str,
) -> None:
    """Run clusters on a simulated network and disk, with faults drawn from a seed.

    Every seed has its own mix of lost, late and repeated messages, partitions, crashes with torn
    writes, pauses and skewed clocks; checkers watch every step.  A failing seed is made as small
    as possible and printed with the command that repeats it.  Exit code 1 if one fails.
    """
    from tidelog.cli.simulate_run import run_batches, run_one

    reduction = _reduction(without, only, stop_at)
    if seed is None:
        if reduction is not None:
            raise click.UsageError("--without, --only and --stop-at need --seed.")
        kinds = [name for name in KINDS if kind in (name, "all")]
        ctx.exit(run_batches(kinds, range(first, first + seeds), processes, output))
    if kind == "all":
        raise click.UsageError(f"--seed needs --kind {' or --kind '.join(KINDS)}.")
    ctx.exit(run_one(kind, seed, reduction, output))


def _reduction(without: str | None, only: str | None, stop_at: int | None) -> Reduction | None:
    from tidelog.testing.faults import FaultClass, Reduction

    if without is None and only is None and stop_at is None:
        return None
    names = [] if without is None else without.split(",")
    known = {what.value: what for what in FaultClass}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.UsageError(f"no class of faults is called {unknown[0]}: {', '.join(known)}")
    kept = None
    if only is not None:
        kept = () if only == "none" else tuple(only.split(","))
    return Reduction(tuple(known[name] for name in names), kept, stop_at)
