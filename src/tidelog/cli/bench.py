"""``tidelog bench``: how fast the log is, on this machine or as clients see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tidelog.cli.options import AmountRange, is_url, output_option, read_options, topic_option
from tidelog.limits import VALUE_BYTES_MAX

F = TypeVar("F", bound=Callable[..., Any])

_data_option = click.option(
    "-d", "--data", metavar="DIR", help="Where to measure.  [default: a temporary directory]"
)
_seconds_option = click.option(
    "--seconds",
    type=AmountRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="How long each measurement takes.",
)


@click.group("bench")
def command() -> None:
    """Measure the log: embedded, as a pair, or at an address."""


@command.command("embedded")
@_data_option
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(1, VALUE_BYTES_MAX),
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
    "--size",
    type=click.IntRange(1, VALUE_BYTES_MAX),
    default=100,
    show_default=True,
    help="Bytes of a value.",
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


# -- at an address -------------------------------------------------------------------------------


def _load_options(function: F) -> F:
    """Of benchmarks that offer a load."""
    for option in (
        click.option(
            "--connections", type=click.IntRange(1), default=1, show_default=True,
            help="Clients at once.",
        ),
        click.option(
            "--batch", type=click.IntRange(1), default=1, show_default=True,
            help="Records of one call.",
        ),
        click.option(
            "--size", type=click.IntRange(16, VALUE_BYTES_MAX), default=100, show_default=True,
            help="Bytes of a record.",
        ),
        click.option(
            "--rate", type=AmountRange(min=0), default=1000.0, show_default=True,
            help="Records offered each second, whatever becomes of them; 0: as many as go.",
        ),
        _seconds_option,
        topic_option,
        read_options,
    ):  # fmt: skip
        function = option(function)
    return function


@command.command("append")
@_load_options
@click.pass_context
def append(ctx: click.Context, /, **work: Any) -> None:
    """Measure appends to a node or a cluster, from the time that was planned for each.

    A stall counts for all that was to be sent meanwhile.  Records go to the topic that is named.
    """
    from tidelog.cli.bench_remote import bench_append

    ctx.exit(bench_append(_work(work), work["output"]))


@command.command("e2e")
@_load_options
@click.pass_context
def e2e(ctx: click.Context, /, **work: Any) -> None:
    """Measure the way of records through a node or a cluster, to a subscriber."""
    from tidelog.cli.bench_remote import bench_e2e

    ctx.exit(bench_e2e(_work(work), work["output"]))


@command.command("tail")
@read_options
@topic_option
@_seconds_option
@click.pass_context
def tail(ctx: click.Context, data: str, output: str, topic: str, seconds: float) -> None:
    """Measure how fast a topic is read from its beginning."""
    from tidelog.cli.bench_remote import bench_tail

    options = {"rate": 0.0, "size": 0, "batch": 1, "connections": 1}
    work = _work({"data": data, "topic": topic, "seconds": seconds, **options})
    ctx.exit(bench_tail(work, output))


def _work(given: dict[str, Any]) -> Any:
    from tidelog.cli.bench_remote import Work
    from tidelog.net.endpoint import LogUrl, parse_url

    if not is_url(given["data"]):
        raise click.UsageError("Give the address of a node; `bench embedded` measures a directory.")
    return Work(
        url=str(LogUrl(parse_url(given["data"]).endpoints)),
        topic=given["topic"],
        rate=given["rate"],
        seconds=given["seconds"],
        size=given["size"],
        batch=given["batch"],
        connections=given["connections"],
    )
