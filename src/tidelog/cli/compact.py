"""``tidelog compact``: status, run, explain."""

from __future__ import annotations

import click

from tidelog.cli.failures import ExitCode, Failure
from tidelog.cli.options import (
    base64_option,
    key_bytes,
    read_options,
    storage_option,
    topic_option,
    write_options,
)


@click.group("compact")
def command() -> None:
    """Compaction: what is dead, what can go, and why something stays."""


@command.command("status")
@read_options
@topic_option
def status(data: str, topic: str, output: str) -> None:
    """Show live and dead bytes of each log stream, and what a run would do."""
    from tidelog.cli.figures import compaction_fields
    from tidelog.cli.output import Size, print_json, print_table
    from tidelog.cli.session import reading

    stats = reading(data, lambda session: session.topic(topic).stats())
    streams = [compaction_fields(stream) for stream in stats.streams]
    if output == "json":
        print_json({"topic": topic, "streams": streams})
        return
    print_table(
        ["stream", "segments", "entries", "live", "bytes", "dead", "dead %", "snapshot",
         "delete", "rewrite", "waiting", "reclaimable"],
        [
            (
                stream["stream"],
                stream["segments"],
                stream["entries"],
                stream["live_entries"],
                Size(stream["segment_bytes"]),
                Size(stream["dead_bytes"]),
                100 * stream["dead_bytes"] // max(stream["segment_bytes"], 1),
                stream["snapshot_index"],
                len(stream["delete_segments"]),
                sum(len(group) for group in stream["rewrite_groups"]),
                stream["waiting_segments"],
                Size(stream["reclaimable_bytes"]),
            )
            for stream in streams
        ],
    )  # fmt: skip
    unsettled = sum(stream["unsettled_entries"] for stream in streams)
    if unsettled:
        click.echo(
            f"\n{unsettled:,} entries came after the last snapshot: "
            "what is dead among them shows after `tidelog snapshot`."
        )


@command.command("run")
@write_options
@topic_option
@click.option(
    "--full",
    is_flag=True,
    help="Move the WAL into segments first, and rewrite all that has a dead entry.",
)
def run(data: str, topic: str, output: str, wait: float, full: bool) -> None:
    """Snapshot, delete dead segments, rewrite those that are mostly dead."""
    from time import perf_counter

    from tidelog.cli.output import print_json, size_text
    from tidelog.cli.session import writing

    with writing(data, wait=wait) as session:
        handle = session.topic(topic)
        started = perf_counter()
        done = handle.compact(full=full)
        seconds = perf_counter() - started
    fields = {
        "topic": topic,
        "full": full,
        "deleted_segments": done.deleted,
        "rewritten_segments": done.rewritten,
        "waiting_segments": done.waiting,
        "reclaimed_bytes": done.reclaimed_bytes,
        "failures": done.failures,
        "seconds": round(seconds, 6),
    }
    if output == "json":
        print_json(fields)
    else:
        click.echo(
            f"topic {topic}: {done.deleted} segments deleted, {done.rewritten} rewritten, "
            f"{size_text(done.reclaimed_bytes)} reclaimed in {seconds:.2f} s"
        )
        if done.waiting:
            click.echo(
                f"{done.waiting} segments wait: somebody still reads a deleted one between them; "
                "run this again later"
            )
    if done.failures:
        raise Failure("; ".join(done.failures), ExitCode.DAMAGED)


@command.command("explain")
@click.argument("key")
@read_options
@topic_option
@storage_option
@base64_option
def explain(key: str, data: str, topic: str, output: str, storage_id: int, is_base64: bool) -> None:
    """Tell for every stored write of KEY whether it is kept, and why."""
    from tidelog.cli.output import bytes_fields, print_json
    from tidelog.cli.session import reading

    wanted = key_bytes(key, is_base64)
    texts = reading(data, lambda s: s.topic(topic).explain(wanted, storage_id=storage_id))
    if not texts:
        raise Failure(f"topic {topic!r} holds no write of key {key!r}", ExitCode.NOT_FOUND)
    if output == "json":
        fields = {"topic": topic, **bytes_fields("key", wanted), "storage_id": storage_id}
        print_json({**fields, "writes": [{"explanation": text} for text in texts]})
        return
    for text in texts:
        click.echo(text)
