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
    from tidelog.embedded.topic import Topic

    with writing(data, wait=wait) as engine:
        handle = Topic(engine, topic)
        handle.snapshot()
        stores = [engine.node.streams[stream] for stream in handle.streams]
        streams = [
            {
                "stream": store.stream,
                "snapshot_index": store.snapshot.index,
                "live_entries": len(store.snapshot.live),
            }
            for store in stores
        ]
        deleted = engine.maintenance.counters.deleted_segments
    if output == "json":
        print_json({"topic": topic, "streams": streams, "deleted_segments": deleted})
        return
    print_table(["stream", "snapshot", "live"], [tuple(stream.values()) for stream in streams])
    click.echo(f"\n{deleted} segments deleted")
