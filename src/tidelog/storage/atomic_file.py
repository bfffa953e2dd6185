"""Replace a small file as a whole: write a new one, sync it, rename it, sync the directory."""

from __future__ import annotations

from contextlib import suppress

from tidelog.errors import LogError
from tidelog.storage.vfs import File, Vfs

TEMPORARY_SUFFIX = ".tmp"


def replace_file(
    vfs: Vfs, directory: str, name: str, data: bytes, *, sync_dir: bool = True
) -> None:
    """Make the file hold ``data``; after a crash it holds the old or the new bytes."""
    temporary = f"{directory}/{name}{TEMPORARY_SUFFIX}"
    if vfs.stat(temporary) is not None:
        vfs.unlink(temporary)
    put_in_place(vfs, directory, name, vfs.create(temporary), data, sync_dir=sync_dir)


def put_in_place(
    vfs: Vfs, directory: str, name: str, file: File, data: bytes, *, sync_dir: bool = True
) -> None:
    """Begin the temporary file of ``name``, which is open, with ``data`` and give it its name.

    It is closed, and deleted if that fails before the name is given.
    """
    temporary = f"{directory}/{name}{TEMPORARY_SUFFIX}"
    try:
        file.write_at(0, (data,))
        file.sync()
    except LogError:
        file.close()
        with suppress(LogError):
            vfs.unlink(temporary)
        raise
    file.close()
    vfs.rename(temporary, f"{directory}/{name}")
    if sync_dir:
        vfs.sync_dir(directory)


def read_file(vfs: Vfs, path: str, length_max: int) -> bytes | None:
    """The whole file, or None when there is none.  Refuses to read more than ``length_max``."""
    found = vfs.stat(path)
    if found is None:
        return None
    file = vfs.open(path)
    try:
        return file.read_at(0, min(file.size(), length_max + 1))
    finally:
        file.close()


def remove_temporaries(vfs: Vfs, directory: str) -> int:
    """Delete what an interrupted ``replace_file`` or segment write left behind."""
    leftovers = [name for name in vfs.list_dir(directory) if name.endswith(TEMPORARY_SUFFIX)]
    for name in leftovers:
        vfs.unlink(f"{directory}/{name}")
    return len(leftovers)
