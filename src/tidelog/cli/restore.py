"""``tidelog restore``: a datastore from the files of a master or a replica."""

from __future__ import annotations

import click

from tidelog.cli.options import output_option


@click.command("restore")
@click.option(
    "--from",
    "source",
    metavar="DIR",
    required=True,
    help="The directory of a datastore or of a replica that no process has open.",
)
@click.option(
    "--to", "target", metavar="DIR", required=True, help="A new directory, or an empty one."
)
@output_option
def command(source: str, target: str, output: str) -> None:
    """Copy a datastore into a new directory, whole and checked.

    The copy holds all epochs that were group-committed, and nothing else.  Every checksum is
    verified, and every BLOB that an entry refers to must be there.  The directory appears under
    its name when all of that is done and durable; after a failure there is none.
    Exit code 3 if the datastore is damaged.
    """
    from dataclasses import asdict
    from time import perf_counter

    from tidelog.cli.output import print_json, size_text
    from tidelog.cli.progress import Progress
    from tidelog.cli.restore_files import restore
    from tidelog.limits import MIB

    started = perf_counter()
    with Progress("MiB") as progress:
        done = restore(source, target, lambda copied: progress.update(copied // MIB))
    seconds = perf_counter() - started
    if output == "json":
        print_json({"path": target, **asdict(done), "seconds": round(seconds, 6)})
        return
    click.echo(
        f"restored epoch {done.epoch} to {target}: {done.entries:,} entries, {done.blobs:,} BLOBs "
        f"({done.files} files, {size_text(done.bytes)}, {seconds:.2f} s)"
    )
