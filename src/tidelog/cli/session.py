"""Opens a log for a command: one that a node serves, or a directory.

A directory is opened with its lock to change it, or without a trace to read it.  Commands see a
``Session`` either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tidelog.cli.options import is_url
from tidelog.errors import CorruptData, LogLocked, NotALog, ReadOnly, StorageFailed
from tidelog.invariants import InvariantViolation

if TYPE_CHECKING:
    from tidelog.cli.served_session import ServedSession
    from tidelog.embedded.engine import Engine
    from tidelog.interface.figures import LogStats
    from tidelog.interface.handles import TopicHandle

T = TypeVar("T")

READ_SECONDS_MAX: Final = 10.0
"""How long to try for a view that no writer disturbs."""
_LOCK_POLL_SECONDS: Final = 0.05

Marks = tuple[tuple[str, int, int, int], ...]


class Session(Protocol):
    """An open log, wherever it is."""

    def topic(self, name: str) -> TopicHandle: ...

    def topics(self) -> list[str]: ...

    def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log"
    ) -> TopicHandle: ...

    def add_streams(self, name: str, count: int) -> TopicHandle: ...

    def log_stats(self) -> LogStats: ...


class LocalSession:
    """A log in a directory; it need not have any topic yet."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Final = engine

    def topic(self, name: str) -> TopicHandle:
        from tidelog.embedded.topic import Topic

        return Topic(self.engine, name)

    def topics(self) -> list[str]:
        return self.engine.topic_names()

    def create_topic(self, name: str, *, streams: int = 1, versions: str = "log") -> TopicHandle:
        self.engine.create_topic(name, streams=streams, versions=versions)
        return self.topic(name)

    def add_streams(self, name: str, count: int) -> TopicHandle:
        self.engine.add_streams(name, count)
        return self.topic(name)

    def log_stats(self) -> LogStats:
        from tidelog.embedded.stats import log_stats

        return log_stats(self.engine)


@contextmanager
def writing(where: str, *, wait: float, create: bool = False) -> Iterator[Session]:
    """The log, to change it; the lock of a directory is waited for."""
    if is_url(where):
        with _connected(where) as session:
            yield session
        return
    engine = _locked(_directory(where, create=create), wait=wait, create=create)
    try:
        yield LocalSession(engine)
    finally:
        engine.close()


def reading(where: str, work: Callable[[Session], T]) -> T:
    """The result of ``work`` on the log as it is now, whether or not another process writes to it.

    Where the writer of a directory swaps files under our feet ``work`` is done again, on a new
    view; the same trouble with files that nobody touched is damage.
    """
    if is_url(where):
        with _connected(where) as session:
            return work(session)
    path = _directory(where, create=False)
    deadline = monotonic() + READ_SECONDS_MAX
    while True:
        before = marks_of(path)
        try:
            with opened_for_reading(path) as engine:
                return work(LocalSession(engine))
        except (CorruptData, ReadOnly, StorageFailed, InvariantViolation):
            if monotonic() >= deadline or marks_of(path) == before:
                raise


@contextmanager
def opened_for_reading(path: str) -> Iterator[Engine]:
    """One view of a directory's log; without retries."""
    from tidelog.cli.read_only_disk import ReadOnlyDisk
    from tidelog.embedded.engine import Engine
    from tidelog.embedded.options import Options
    from tidelog.storage.os_vfs import OsVfs

    disk = ReadOnlyDisk(OsVfs())
    engine = Engine(disk, path, Options(background=False), create=False, only_looks=True)
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


def _connected(url: str) -> ServedSession:
    from tidelog.cli.served_session import connect_session

    return connect_session(url)


def _locked(path: str, *, wait: float, create: bool) -> Engine:
    from tidelog.embedded.engine import Engine
    from tidelog.embedded.options import Options
    from tidelog.storage.os_vfs import OsVfs

    deadline = monotonic() + wait
    while True:
        try:
            return Engine(OsVfs(), path, Options(), create=create)
        except LogLocked:
            if monotonic() >= deadline:
                raise
            Event().wait(_LOCK_POLL_SECONDS)


def _directory(data: str, *, create: bool) -> str:
    path = Path(data).absolute()
    if path.exists() and not path.is_dir():
        raise NotALog(f"{path} is not a directory")
    if not path.exists() and not create:
        raise NotALog(
            f"there is no log at {path}: create it with `tidelog append` or `topic create`"
        )
    return str(path)
