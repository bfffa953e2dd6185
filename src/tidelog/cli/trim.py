"""``tidelog trim``: forget the beginning of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import topic_option, write_options

if TYPE_CHECKING:
    from tidelog.embedded.engine import Engine


@click.command("trim")
@write_options
@topic_option
@click.option("--before", type=click.IntRange(1), required=True, help="The first GLSN to keep.")
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
def command(data: str, topic: str, output: str, wait: float, before: int, dry_run: bool) -> None:
    """Forget all records of a topic below a GLSN, for good."""
    from tidelog.cli.output import print_json
    from tidelog.cli.session import reading, writing
    from tidelog.embedded.topic import Topic

    if dry_run:
        fields = reading(data, lambda engine: _plan(engine, topic, before))
    else:
        with writing(data, wait=wait) as engine:
            handle = Topic(engine, topic)
            fields = _plan(engine, topic, before)
            size = handle.stats().segment_bytes
            fields["first_available"] = handle.trim(before)
            fields["reclaimed_bytes"] = size - handle.stats().segment_bytes
    fields["dry_run"] = dry_run
    if output == "json":
        print_json(fields)
    else:
        _print(fields)


def _plan(engine: Engine, name: str, before: int) -> dict[str, Any]:
    """What a trim would do."""
    from tidelog.embedded.topic import Topic
    from tidelog.errors import OutOfRange

    topic = Topic(engine, name)
    first, last = topic.first_available, topic.high_watermark
    if before > last + 1:
        raise OutOfRange(f"cannot trim before GLSN {before}: the last one is {last}")
    streams = [engine.node.streams[stream] for stream in topic.streams]
    gone = [
        segment
        for store in streams
        for end in (store.llsn_at_or_after(before),)
        for segment in store.view.segments
        if segment.end_llsn <= end
    ]
    return {
        "topic": topic.name,
        "before": before,
        "trimmed": max(before - first, 0),
        "first_available": max(before, first),
        "segments": len(gone),
        "reclaimed_bytes": sum(segment.size for segment in gone),
    }


def _print(fields: dict[str, Any]) -> None:
    from tidelog.cli.output import size_text

    would = "would forget" if fields["dry_run"] else "forgot"
    click.echo(
        f"{would} {fields['trimmed']:,} positions of topic {fields['topic']} and free "
        f"{size_text(fields['reclaimed_bytes'])}; "
        f"the first available GLSN is {fields['first_available']}"
    )
