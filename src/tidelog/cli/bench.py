"""``tidelog bench``: how fast the log is on this machine."""

from __future__ import annotations

import click

from tidelog.cli.options import output_option


@click.group("bench")
def command() -> None:
    """Measure the log on this machine."""


@command.command("embedded")
@click.option(
    "-d", "--data", metavar="DIR", help="Where to measure.  [default: a temporary directory]"
)
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(1),
    multiple=True,
    default=(100, 1024),
    show_default=True,
    help="Bytes of a record; may be given more than once.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="How long each measurement takes.",
)
@click.option("--peers", is_flag=True, help="Measure SQLite, LMDB and RocksDB too.")
@output_option
@click.pass_context
def embedded(
    ctx: click.Context,
    data: str | None,
    sizes: tuple[int, ...],
    seconds: float,
    peers: bool,
    output: str,
) -> None:
    """Measure appends to an embedded log, one by one and in batches, each made durable."""
    from tidelog.cli.bench_embedded import run

    ctx.exit(run(data=data, sizes=list(sizes), seconds=seconds, peers=peers, output=output))
