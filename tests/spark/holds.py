"""Points at which a process of Spark stops when a test wants it to, so that it can be killed there.

All processes of a job find one directory by the environment.  A test **orders** a hold there: a
file named after the point.  The first process that comes to the point takes the file for itself,
and waits until it is killed, or the file is gone; all others go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from threading import Event
from time import monotonic

HOLDS = "TIDELOG_TEST_HOLDS"
"""The variable that names the directory."""
HOLD_SECONDS = 90.0
_PAUSE_SECONDS = 0.02


class Point(StrEnum):
    """Where a process may be held."""

    READ = "read"
    """A task has handed its first rows on, and reads further."""
    STAGED = "staged"
    """A task has staged its rows, and has not told the driver."""
    PUBLISHING = "publishing"
    """All tasks have staged their rows, and the driver publishes them next."""
    PUBLISHED = "published"
    """The log has published, and the driver does not know."""
    TABLE_COMMITTED = "table-committed"
    """The table has a batch, and the query's checkpoint does not know."""


def hold_here(point: Point) -> None:
    """Wait, if a test wants that; in a process of Spark's."""
    directory = os.environ.get(HOLDS)
    if directory is None:
        return
    mine = Path(directory, f"{point}.{os.getpid()}")
    try:
        os.rename(Path(directory, point), mine)
    except FileNotFoundError:
        return
    wait_until(lambda: not mine.exists(), lambda: f"nobody lets {mine.name} go on")


class Holds:
    """The same directory as the test sees it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def order(self, point: Point) -> None:
        """Hold who comes there next."""
        (self.directory / point).touch()

    def held(self, point: Point) -> int | None:
        """A process that waits there."""
        found = next(self.directory.glob(f"{point}.*"), None)
        return None if found is None else int(found.suffix[1:])

    def release(self, point: Point, process: int) -> None:
        """Let it go on, if it still lives."""
        (self.directory / f"{point}.{process}").unlink()

    def clear(self) -> None:
        """Take back all orders, and let go who waits."""
        for found in self.directory.iterdir():
            found.unlink()


def wait_until(condition: Callable[[], bool], trouble: Callable[[], str]) -> None:
    """Wait for a condition; after ``HOLD_SECONDS`` fail with what ``trouble`` says then."""
    deadline = monotonic() + HOLD_SECONDS
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(trouble())
        Event().wait(_PAUSE_SECONDS)
