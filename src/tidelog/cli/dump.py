"""``tidelog dump``: what a single file of a log holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidelog.cli.failures import ExitCode, Failure
from tidelog.cli.options import output_option

if TYPE_CHECKING:
    from tidelog.cli.dump_files import Dump

F = TypeVar("F", bound=Callable[..., Any])


@click.group("dump")
def command() -> None:
    """Show what a single file of a log holds.

    Needs no log around it and changes nothing.  Of a damaged file it shows what can be read,
    says where it breaks, and ends with exit code 3.
    """


def _dump_options(function: F) -> F:
    limit = click.option(
        "--limit",
        type=click.IntRange(0),
        default=100,
        show_default=True,
        help="Most items to show; 0 for all.",
    )
    return click.argument("file")(output_option(limit(function)))


_entries_option = click.option("--entries", is_flag=True, help="Show every entry.")


@command.command("wal")
@_dump_options
@_entries_option
def wal(file: str, output: str, limit: int, entries: bool) -> None:
    """Show the frames of a WAL file and the records in them."""
    from tidelog.cli.dump_files import dump_wal

    _show(dump_wal(file, limit or None, entries=entries), output)


@command.command("segment")
@_dump_options
@_entries_option
def segment(file: str, output: str, limit: int, entries: bool) -> None:
    """Show the batches of a segment."""
    from tidelog.cli.dump_files import dump_segment

    _show(dump_segment(file, limit or None, entries=entries), output)


@command.command("snapshot")
@_dump_options
def snapshot(file: str, output: str, limit: int) -> None:
    """Show a snapshot: the state of a log stream at an LLSN."""
    from tidelog.cli.dump_whole import dump_snapshot

    _show(dump_snapshot(file, limit or None), output)


@command.command("live")
@_dump_options
def live(file: str, output: str, limit: int) -> None:
    """Show which LLSNs a snapshot found live, as ranges."""
    from tidelog.cli.dump_whole import dump_live

    _show(dump_live(file, limit or None), output)


@command.command("manifest")
@_dump_options
def manifest(file: str, output: str, limit: int) -> None:
    """Show a log's manifest: its topics and log streams."""
    from tidelog.cli.dump_whole import dump_manifest

    _show(dump_manifest(file, limit or None), output)


def _show(dump: Dump, output: str) -> None:
    from tidelog.cli.output import print_fields, print_json, print_table

    if output == "json":
        print_json(dump.fields())
    else:
        print_fields([("file", dump.file), *dump.summary.items()])
        if dump.items:
            headers = list(dict.fromkeys(name for item in dump.items for name in item))
            click.echo()
            print_table(headers, [[item.get(name) for name in headers] for item in dump.items])
        if dump.truncated:
            click.echo(f"... more than {len(dump.items)}: see --limit")
    if dump.problem:
        raise Failure(f"{dump.file}: {dump.problem}", ExitCode.DAMAGED)
