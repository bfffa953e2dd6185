"""Whole directories of files that Spark wrote: made durable, read back, removed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tidelog.storage.os_vfs import OsVfs

_OF_PATTERNS: Final = re.compile(r"[\[\]{}*?\\]")


def literal(path: str | Path) -> str:
    """A path for Spark to read, which takes every path for a pattern of paths."""
    return _OF_PATTERNS.sub(r"\\\g<0>", str(path))


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
