"""What every directory of a log has: a lock, and a parent that must not forget it.  No state."""

from __future__ import annotations

from typing import Final

from tidelog.errors import LogLocked, NotALog, ReadOnly
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.vfs import FileKind, Lock

LOCK_NAME: Final = "LOCK"


def take_lock(disk: FailStopVfs, path: str) -> Lock:
    """The lock of the directory; LogLocked when another process holds it."""
    try:
        return disk.lock(f"{path}/{LOCK_NAME}")
    except BlockingIOError as error:
        raise LogLocked(
            f"{path} is open in another process ({error}): close it there first"
        ) from error
    except PermissionError as error:
        raise ReadOnly(f"{path} cannot be written to: {error}") from error
    except OSError as error:
        raise ReadOnly(f"{path} cannot be locked: {error}") from error


def check_way(disk: FailStopVfs, path: str) -> None:
    """NotALog if a name on the way to a directory is that of a file: nothing is damaged then."""
    names = path.split("/")
    for end in range(2, len(names)):
        above = "/".join(names[:end])
        found = disk.stat(above)
        if found is None:
            return
        if found.kind is FileKind.FILE:
            raise NotALog(f"{above} is a file: there is no directory {path}")


def sync_parent(disk: FailStopVfs, path: str) -> None:
    """The log's own directory must not vanish either."""
    parent = parent_of(path)
    if parent != path:
        disk.sync_dir(parent)


def parent_of(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"
