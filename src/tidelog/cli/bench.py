"""``tidelog bench``: how fast the log is on this machine."""

from __future__ import annotations

import click

from tidelog.cli.options import output_option

_data_option = click.option(
    "-d", "--data", metavar="DIR", help="Where to measure.  [default: a temporary directory]"
)
_seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="How long each measurement takes.",
)


@click.group("bench")
def command() -> None:
    """Measure the log on this machine."""


@command.command("embedded")
@_data_option
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(1),
    multiple=True,
    default=(100, 1024),
    show_default=True,
    help="Bytes of a record; may be given more than once.",
)
@_seconds_option
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


@command.command("pair")
@_data_option
@click.option(
    "--size", type=click.IntRange(1), default=100, show_default=True, help="Bytes of a value."
)
@click.option(
    "--entries",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 1000),
    show_default=True,
    help="Entries of a log session; may be given more than once.",
)
@click.option(
    "--channels",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 4),
    show_default=True,
    help="Log channels at work at once; may be given more than once.",
)
@_seconds_option
@click.option("--spans", is_flag=True, help="Tell how long each step of a commit takes.")
@output_option
@click.pass_context
def pair(
    ctx: click.Context,
    data: str | None,
    size: int,
    entries: tuple[int, ...],
    channels: tuple[int, ...],
    seconds: float,
    spans: bool,
    output: str,
) -> None:
    """Measure a datastore and its replica, each commit durable on both sides.

    Serial and parallel, beside the same bytes by sendall and fdatasync alone.
    """
    from tidelog.cli.bench_pair import Work, run

    works = [Work(size, each, count) for each in entries for count in channels]
    ctx.exit(run(data=data, works=works, seconds=seconds, spans=spans, output=output))
