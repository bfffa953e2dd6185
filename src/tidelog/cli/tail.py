"""``tidelog tail``: the records of a topic, and those that come."""

from __future__ import annotations

from sys import maxsize

import click

from tidelog.cli.failures import ExitCode, Failure
from tidelog.cli.options import AmountRange, data_option, topic_option


@click.command("tail")
@data_option
@topic_option
@click.option(
    "--from",
    "start",
    metavar="earliest|latest|GLSN|-N",
    default="earliest",
    show_default=True,
    help="Where to begin; -N means the last N positions.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records at the end.")
@click.option(
    "--timeout",
    type=AmountRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --follow: end when nothing came for so long.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    help="Values as they are, or a JSON object for each record.",
)
@click.option(
    "--format",
    "format_text",
    metavar="TEXT",
    help="%g GLSN, %l LLSN, %s stream, %t topic, %k key, %v value, %o kind, %w write version, "
    "%i storage id, %T timestamp (µs), %d date.",
)
def command(
    data: str,
    topic: str,
    start: str,
    count: int | None,
    follow: bool,
    timeout: float | None,
    output: str,
    format_text: str | None,
) -> None:
    """Print the records of a topic in their total order.

    Takes no lock: another process may have the log open, and write to it, meanwhile.
    """
    if timeout is not None and not follow:
        raise click.UsageError("--timeout needs --follow.")
    if format_text is not None and output != "text":
        raise click.UsageError("--format and -o jsonl exclude one another.")
    from tidelog.cli.output import ByteOutput
    from tidelog.cli.record_format import Printer, compile_format, plain
    from tidelog.cli.tail_views import Tail, json_line, parse_start

    try:
        begin = parse_start(start)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from error
    printer: Printer = plain
    if output == "jsonl":
        printer = json_line(topic)
    elif format_text is not None:
        try:
            printer = compile_format(format_text, topic)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--format") from error
    out = ByteOutput()
    most = None if count is None else min(count, maxsize)
    tail = Tail(data, topic, begin, most, printer, out)
    try:
        tail.run(follow=follow, timeout=timeout)
    except KeyboardInterrupt:
        return
    finally:
        out.flush()
    if follow and count is not None and tail.printed < count:
        message = f"{tail.printed} of {count} records came, then nothing for {timeout:g} s"
        raise Failure(message, ExitCode.BUSY)
