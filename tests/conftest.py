"""What holds for every test: nothing stays open behind it, and hypothesis is repeatable.

With HYPOTHESIS_PROFILE=soak it looks for many new examples; else every run tries the same ones.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tidelog.net import loops

FD_DIRECTORY = Path("/proc/self/fd")
THREAD_END_SECONDS = 2.0
"""A thread that was told to stop may need a moment to end."""

REPEATABLE = settings(
    max_examples=100, derandomize=True, database=None, deadline=None, print_blob=True
)
settings.register_profile("default", REPEATABLE)
settings.register_profile("ci", REPEATABLE)
settings.register_profile(
    "soak",
    REPEATABLE,
    derandomize=False,
    max_examples=5_000,
    stateful_step_count=100,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

FAILED = pytest.StashKey[bool]()

OpenFiles = dict[tuple[int, int, int], str]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember a failure: its traceback holds what the test had open, which is no leak."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session", autouse=True)
def _interruptible_children() -> None:
    """Programs that a shell starts in the background, and their children, ignore SIGINT."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _fast_loop_is_warm() -> None:
    """The first loop of uvloop opens a pipe for the whole process, which is no leak of a test."""
    loops.new_loop().close()


@pytest.fixture(autouse=True)
def nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves file descriptors open or threads running."""
    files_before = open_files()
    threads_before = frozenset(threading.enumerate())
    yield
    if request.node.stash.get(FAILED, False):
        return
    threads = leaked_threads(threads_before)
    files = leaked_files(files_before)
    if threads or files:
        names = [f"thread {thread.name}" for thread in threads] + [f"file {file}" for file in files]
        pytest.fail("left behind: " + ", ".join(names), pytrace=False)


def leaked_threads(before: frozenset[threading.Thread]) -> list[threading.Thread]:
    """Threads that were started since and do not end by themselves."""
    started = [thread for thread in threading.enumerate() if thread not in before]
    for thread in started:
        thread.join(THREAD_END_SECONDS)
    return [thread for thread in started if thread.is_alive()]


def leaked_files(before: OpenFiles) -> list[str]:
    """Descriptors that were opened since and that no collection of garbage closes."""
    if not open_files().keys() - before.keys():
        return []
    gc.collect()
    after = open_files()
    return sorted(f"{key[0]} ({after[key]})" for key in after.keys() - before.keys())


def open_files() -> OpenFiles:
    """Descriptor and inode of all that is open; the inode, for a file may be renamed meanwhile."""
    found: OpenFiles = {}
    if not FD_DIRECTORY.is_dir():
        return found
    for name in os.listdir(FD_DIRECTORY):
        try:
            status = os.fstat(int(name))
            target = os.readlink(FD_DIRECTORY / name)
        except OSError:
            continue  # The descriptor of the listing itself.
        found[int(name), status.st_dev, status.st_ino] = target
    return found
