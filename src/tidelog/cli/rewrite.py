"""``tidelog rewrite``: move old live entries to the head of the log."""

from __future__ import annotations

import click

from tidelog.cli.options import topic_option, write_options


@click.command("rewrite")
@write_options
@topic_option
@click.option(
    "--entries-max",
    type=click.IntRange(1),
    default=4096,
    show_default=True,
    help="Most entries to copy from each log stream.",
)
def command(data: str, topic: str, output: str, wait: float, entries_max: int) -> None:
    """Copy the oldest live keyed entries to the head.

    Compaction can then drop the segments that were kept for their sake.  Acts on what the last
    snapshot found live.
    """
    from tidelog.cli.output import print_json
    from tidelog.cli.session import writing

    with writing(data, wait=wait) as session:
        copied = session.topic(topic).rewrite(entries_max=entries_max)
    if output == "json":
        print_json({"topic": topic, "copied": copied})
    else:
        click.echo(f"copied {copied:,} entries of topic {topic} to its head")
