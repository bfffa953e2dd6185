"""Whole directories of files that Spark wrote: made durable, removed."""

from __future__ import annotations

from pathlib import Path

from tidelog.storage.os_vfs import OsVfs


def sync_tree(directory: Path) -> None:
    """Make durable what Spark wrote: it closes its files, but syncs none."""
    vfs = OsVfs()
    for place in sorted(directory.rglob("*")):
        if place.is_dir():
            vfs.sync_dir(str(place))
            continue
        file = vfs.open(str(place))
        try:
            file.sync()
        finally:
            file.close()
    vfs.sync_dir(str(directory))
    vfs.sync_dir(str(directory.parent))


def remove_tree(directory: Path) -> None:
    """Deepest first, so that every directory is empty when its turn comes; none is no error."""
    if not directory.exists():
        return
    for place in sorted(directory.rglob("*"), reverse=True):
        if place.is_dir():
            place.rmdir()
        else:
            place.unlink()
    directory.rmdir()
