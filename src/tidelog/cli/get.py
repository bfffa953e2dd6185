"""``tidelog get``: the newest value of a key."""

from __future__ import annotations

import click

from tidelog.cli.failures import ExitCode, Failure
from tidelog.cli.options import base64_option, data_option, key_bytes, storage_option, topic_option


@click.command("get")
@click.argument("key")
@data_option
@topic_option
@storage_option
@base64_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["value", "table", "json"]),
    default="value",
    show_default=True,
    help="The value alone, or the whole record.",
)
def command(key: str, data: str, topic: str, storage_id: int, is_base64: bool, output: str) -> None:
    """Print the newest value of KEY.

    Exit code 4 if the key was never put, or was deleted.
    """
    from tidelog.cli.output import (
        ByteOutput,
        Size,
        print_fields,
        print_json,
        record_fields,
        time_text,
    )
    from tidelog.cli.session import reading

    wanted = key_bytes(key, is_base64)
    record = reading(data, lambda s: s.topic(topic).get(wanted, storage_id=storage_id))
    if record is None:
        raise Failure(f"topic {topic!r} has no key {key!r}", ExitCode.NOT_FOUND)
    if output == "json":
        print_json(record_fields(record, topic))
    elif output == "value":
        out = ByteOutput()
        out.write(record.value + b"\n")
        out.flush()
    else:
        print_fields(
            [
                ("key", record.key),
                ("value", record.value),
                ("size", Size(len(record.value))),
                ("GLSN", record.glsn),
                ("LLSN", record.llsn),
                ("stream", record.stream),
                ("storage id", record.storage_id),
                ("write version", record.write_version),
                ("written", time_text(record.timestamp_us)),
            ]
        )
