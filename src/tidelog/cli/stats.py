"""``tidelog stats``: how large a log is, and what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import read_options

if TYPE_CHECKING:
    from tidelog.interface.figures import LogStats


@click.command("stats")
@read_options
def command(data: str, output: str) -> None:
    """Show the figures of a log, its topics and its log streams."""
    from tidelog.cli.figures import STREAM_HEADERS, stream_row
    from tidelog.cli.output import Size, print_fields, print_json, print_table
    from tidelog.cli.reader_table import READER_HEADERS, reader_row
    from tidelog.cli.session import reading

    stats = reading(data, lambda session: session.log_stats())
    fields = _fields(stats)
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
        if topic["dropped_deletes"]:
            click.echo(
                f"{topic['dropped_deletes']} deletes were dropped: readers that go on before GLSN "
                f"{topic['delete_horizon']} must start anew"
            )
        print_table(STREAM_HEADERS, [stream_row(stream) for stream in topic["streams"]])
    if stats.readers:
        click.echo()
        print_table(READER_HEADERS, [reader_row(reader) for reader in stats.readers])


def _fields(stats: LogStats) -> dict[str, Any]:
    import msgspec

    from tidelog.cli.figures import topic_fields

    return {
        "path": stats.path,
        "log_id": stats.log_id,
        "topics": [topic_fields(topic) for topic in stats.topics],
        "wal": {
            "file": stats.wal_file,
            "files": stats.wal_files,
            "bytes": stats.wal_disk_bytes,
            "backlog_files": stats.wal_backlog_files,
        },
        "disk_bytes": stats.disk_bytes,
        "readers": msgspec.to_builtins(stats.readers),
    }
