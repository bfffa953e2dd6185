"""``tidelog stats``: how large a log is, and what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import read_options

if TYPE_CHECKING:
    from tidelog.embedded.engine import Engine


@click.command("stats")
@read_options
def command(data: str, output: str) -> None:
    """Show the figures of a log, its topics and its log streams."""
    from tidelog.cli.figures import STREAM_HEADERS, stream_row
    from tidelog.cli.output import Size, print_fields, print_json, print_table
    from tidelog.cli.session import reading

    fields = reading(data, _fields)
    if output == "json":
        print_json(fields)
        return
    wal = fields["wal"]
    print_fields(
        [
            ("log", fields["path"]),
            ("id", fields["log_id"]),
            ("on disk", Size(fields["disk_bytes"])),
            ("WAL", f"{wal['files']} files, {wal['backlog_files']} wait to become segments"),
        ]
    )
    for topic in fields["topics"]:
        click.echo(
            f"\ntopic {topic['topic']}: GLSN {topic['first_available']}.."
            f"{topic['high_watermark']}, versions {topic['versions']}"
        )
        print_table(STREAM_HEADERS, [stream_row(stream) for stream in topic["streams"]])


def _fields(engine: Engine) -> dict[str, Any]:
    from tidelog.cli.figures import topic_fields
    from tidelog.cli.session import marks_of
    from tidelog.storage.node_store import WAL_DIRECTORY

    node = engine.node
    topics = sorted(node.topics.values(), key=lambda topic: topic.name)
    return {
        "path": engine.path,
        "log_id": node.manifest.log_id.hex(),
        "topics": [topic_fields(engine, topic) for topic in topics],
        "wal": {
            "file": node.wal.number,
            "files": len(marks_of(engine.path, WAL_DIRECTORY)),
            "bytes": sum(size for _, _, size, _ in marks_of(engine.path, WAL_DIRECTORY)),
            "backlog_files": node.backlog,
        },
        "disk_bytes": sum(size for _, _, size, _ in marks_of(engine.path)),
    }
