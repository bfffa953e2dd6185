"""What the machine has to offer: room on a disk, open files, how long a sync takes.  No state."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final

OPEN_FILES_WANTED: Final = 1 << 16
"""More would let strangers take memory: connections may have half of them."""
_SYNC_BYTES: Final = 4096
_OPEN_FILES: Final = "/proc/self/fd"


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Bytes of the file system that a directory lies on."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Files that this process has open, and how many it may have; 0 where that is not known."""

    open: int
    limit: int


def disk_room(path: str) -> DiskRoom:
    """Room for what is written to a directory."""
    found = os.statvfs(path)
    return DiskRoom(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def open_files() -> OpenFiles:
    """Those of this process."""
    try:
        count = len(os.listdir(_OPEN_FILES))
    except OSError:
        count = 0
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OpenFiles(count, limit if limit != resource.RLIM_INFINITY else 0)


def raise_open_files() -> None:
    """Let this process have as many open files as it may need, if it is allowed to: shells begin
    with few, for the sake of programs that cannot count further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # Some systems allow less than they say.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def sync_seconds(path: str, count: int) -> list[float]:
    """How long ``count`` writes of a page took to become durable in a directory, each."""
    name = f"{path}/.tidelog-sync-{os.getpid()}"
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.unlink(name)
        os.posix_fallocate(descriptor, 0, _SYNC_BYTES * count)
        os.fsync(descriptor)
        return [_sync_once(descriptor, number) for number in range(count)]
    finally:
        os.close(descriptor)


def _sync_once(descriptor: int, number: int) -> float:
    begin = perf_counter()
    os.pwrite(descriptor, b"\xa5" * _SYNC_BYTES, number * _SYNC_BYTES)
    os.fdatasync(descriptor)
    return perf_counter() - begin
