"""``tidelog trim``: forget the beginning of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import topic_option, write_options

if TYPE_CHECKING:
    from tidelog.cli.session import Session
    from tidelog.interface.handles import TopicHandle


@click.command("trim")
@write_options
@topic_option
@click.option("--before", type=click.IntRange(1), required=True, help="The first GLSN to keep.")
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
def command(data: str, topic: str, output: str, wait: float, before: int, dry_run: bool) -> None:
    """Forget all records of a topic below a GLSN, for good."""
    from tidelog.cli.output import print_json
    from tidelog.cli.session import reading, writing

    if dry_run:
        fields = reading(data, lambda session: _plan(session, topic, before))
    else:
        with writing(data, wait=wait) as session:
            fields = _trim(session.topic(topic), before)
    fields["dry_run"] = dry_run
    if output == "json":
        print_json(fields)
    else:
        _print(fields)


def _trim(topic: TopicHandle, before: int) -> dict[str, Any]:
    stats = topic.stats()
    first = topic.trim(before)
    left = topic.stats()
    return {
        "topic": stats.topic,
        "before": before,
        "trimmed": max(before - stats.first_available, 0),
        "first_available": first,
        "segments": max(stats.segments - left.segments, 0),
        "reclaimed_bytes": max(stats.segment_bytes - left.segment_bytes, 0),
    }


def _plan(session: Session, name: str, before: int) -> dict[str, Any]:
    """What a trim would do."""
    from tidelog.cli.session import LocalSession
    from tidelog.errors import OutOfRange

    if not isinstance(session, LocalSession):
        raise click.UsageError("--dry-run needs the log's directory.")
    topic, stores = session.topic(name), session.engine.node.streams
    first, last = topic.first_available, topic.high_watermark
    if before > last + 1:
        raise OutOfRange(f"cannot trim before GLSN {before}: the last one is {last}")
    gone = [
        segment
        for store in (stores[stream] for stream in topic.streams)
        for segment in store.view.segments
        if segment.end_llsn <= store.llsn_at_or_after(before)
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
