"""``tidelog snapshot``: compute anew what is live."""

from __future__ import annotations

import click

from tidelog.cli.options import topic_option, write_options


@click.command("snapshot")
@write_options
@topic_option
def command(data: str, topic: str, output: str, wait: float) -> None:
    """Compute what is live in a topic.

    Segments in which nothing is live are deleted.
    """
    from tidelog.cli.output import print_json, print_table
    from tidelog.cli.session import writing

    with writing(data, wait=wait) as session:
        handle = session.topic(topic)
        before = handle.stats()
        handle.snapshot()
        after = handle.stats()
    streams = [
        {
            "stream": stream.stream,
            "snapshot_index": stream.snapshot_index,
            "live_entries": stream.snapshot_entries,
        }
        for stream in after.streams
    ]
    deleted = max(before.segments - after.segments, 0)
    if output == "json":
        print_json({"topic": topic, "streams": streams, "deleted_segments": deleted})
        return
    print_table(["stream", "snapshot", "live"], [tuple(stream.values()) for stream in streams])
    click.echo(f"\n{deleted} segments deleted")
