"""``tidelog append``: lines of the standard input become records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from tidelog.cli.options import topic_option, write_options
from tidelog.limits import BATCH_ENTRIES_MAX

if TYPE_CHECKING:
    from tidelog.cli.append_lines import LineMode
    from tidelog.cli.append_load import Input


@click.command("append")
@write_options
@topic_option
@click.option("--jsonl", is_flag=True, help='Lines are JSON: {"key", "value", "kind", ...}.')
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Put key and value, which TEXT separates."
)
@click.option("--delete", is_flag=True, help="Lines are keys to delete.")
@click.option(
    "--batch",
    type=click.IntRange(1, BATCH_ENTRIES_MAX),
    default=1000,
    show_default=True,
    help="Most lines in one append.",
)
@click.option("--producer", metavar="NAME", help="Number the appends, so that repeating is safe.")
@click.option(
    "--sequence-start", type=click.IntRange(1), help="The producer's first number.  [default: 1]"
)
@click.option("--resume", is_flag=True, help="Pass over what the producer appended long ago.")
@click.option("--no-create", is_flag=True, help="Fail when there is no such log or topic.")
def command(
    data: str,
    topic: str,
    output: str,
    wait: float,
    jsonl: bool,
    key_separator: str | None,
    delete: bool,
    batch: int,
    producer: str | None,
    sequence_start: int | None,
    resume: bool,
    no_create: bool,
) -> None:
    """Append a record for each line of the standard input.

    The log and the topic are made if they are not there.  Lines are appended as they come, many
    at once if they come fast.  On a bad line everything before it has been appended (with
    --producer: every whole batch before it).
    """
    if jsonl + delete + (key_separator is not None) > 1:
        raise click.UsageError("--jsonl, --key-separator and --delete exclude one another.")
    if producer is None and (sequence_start is not None or resume):
        raise click.UsageError("--sequence-start and --resume need --producer.")
    if producer == "" or key_separator == "":
        raise click.UsageError("--producer and --key-separator must not be empty.")
    from tidelog.cli.append_load import Load, load_lines
    from tidelog.cli.session import writing
    from tidelog.cli.streams import standard_input
    from tidelog.errors import UnknownTopic

    stream = cast("Input", standard_input())
    with writing(data, wait=wait, create=not no_create) as session:
        try:
            handle = session.topic(topic)
        except UnknownTopic:
            if no_create:
                raise
            handle = session.create_topic(topic)
        mode = _mode(jsonl, key_separator, delete, log_versions=handle.versions == "log")
        load = Load(handle, producer or "", sequence_start or 1, resume)
        load_lines(load, mode, stream, batch)
    _print(load.summary(), output)


def _mode(jsonl: bool, separator: str | None, delete: bool, *, log_versions: bool) -> LineMode[Any]:
    from tidelog.cli.append_lines import DeleteLines, JsonLines, PutLines, ValueLines

    if jsonl:
        return JsonLines(log_versions=log_versions)
    if separator is not None:
        text = separator.replace("\\t", "\t")
        return PutLines(text.encode("utf-8", "surrogateescape"))
    return DeleteLines() if delete else ValueLines()


def _print(summary: dict[str, Any], output: str) -> None:
    from tidelog.cli.output import print_json

    if output == "json":
        print_json(summary)
        return
    count, seconds = summary["records"], summary["seconds"]
    text = f"appended {count:,} record{'' if count == 1 else 's'} to topic {summary['topic']}"
    if count:
        rate = f", {count / seconds:,.0f} rec/s" if seconds else ""
        text += f", GLSN {summary['first_glsn']}..{summary['last_glsn']} ({seconds:.2f} s{rate})"
    if summary["duplicates"]:
        text += f"; {summary['duplicates']:,} were there already"
    click.echo(text)
