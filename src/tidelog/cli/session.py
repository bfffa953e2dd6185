"""Opens a log for a command: with its lock to change it, or without a trace to read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR
from threading import Event
from time import monotonic
from typing import Final, TypeVar

from tidelog.cli.read_only_disk import ReadOnlyDisk
from tidelog.embedded.engine import Engine
from tidelog.embedded.options import Options
from tidelog.errors import CorruptData, LogLocked, NotALog, ReadOnly, StorageFailed
from tidelog.invariants import InvariantViolation
from tidelog.storage.os_vfs import OsVfs

T = TypeVar("T")

READ_SECONDS_MAX: Final = 10.0
"""How long to try for a view that no writer disturbs."""
_LOCK_POLL_SECONDS: Final = 0.05

Marks = tuple[tuple[str, int, int, int], ...]


@contextmanager
def writing(data: str, *, wait: float, create: bool = False) -> Iterator[Engine]:
    """The log with its lock, which other commands wait for."""
    path = _directory(data, create=create)
    deadline = monotonic() + wait
    while True:
        try:
            engine = Engine(OsVfs(), path, Options(), create=create)
            break
        except LogLocked:
            if monotonic() >= deadline:
                raise
            Event().wait(_LOCK_POLL_SECONDS)
    try:
        yield engine
    finally:
        engine.close()


def reading(data: str, work: Callable[[Engine], T]) -> T:
    """The result of ``work`` on the log as it is now, whether or not another process writes to it.

    Where the writer swaps files under our feet ``work`` is done again, on a new view; the same
    trouble with files that nobody touched is damage.
    """
    path = _directory(data, create=False)
    deadline = monotonic() + READ_SECONDS_MAX
    while True:
        before = marks_of(path)
        try:
            with opened_for_reading(path) as engine:
                return work(engine)
        except (CorruptData, ReadOnly, StorageFailed, InvariantViolation):
            if monotonic() >= deadline or marks_of(path) == before:
                raise


@contextmanager
def opened_for_reading(path: str) -> Iterator[Engine]:
    """One view of the log; without retries."""
    engine = Engine(ReadOnlyDisk(OsVfs()), path, Options(background=False), create=False)
    try:
        yield engine
    finally:
        engine.close()


def marks_of(path: str, below: str = "") -> Marks:
    """What shows that a file of the log, or of a directory ``below`` it, was changed."""
    marks = []
    for file in sorted(Path(path, below).rglob("*")):
        try:
            found = file.lstat()
        except FileNotFoundError:
            continue  # It went between the two looks, so the next marks differ.
        if S_ISDIR(found.st_mode):
            continue
        marks.append((str(file), found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(marks)


def _directory(data: str, *, create: bool) -> str:
    path = Path(data).absolute()
    if path.exists() and not path.is_dir():
        raise NotALog(f"{path} is not a directory")
    if not path.exists() and not create:
        raise NotALog(
            f"there is no log at {path}: create it with `tidelog append` or `topic create`"
        )
    return str(path)
