"""Logs on simulated disks, threads that are waited for, and a disk whose syncs can be held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Final, TypeVar

import pytest

import tidelog
from tidelog import Log, Options
from tidelog.core.compaction.plan import Strategy
from tidelog.embedded.commit_queue import Request
from tidelog.storage.vfs import File, Vfs
from tidelog.testing.disk import SimDisk, SimVfs

T = TypeVar("T")

PATH: Final = "/log"
WAIT_SECONDS: Final = 20.0
"""No wait of a test takes this long unless something is broken."""
MANUAL: Final = Strategy(minors=None, dead_ratio=None)
INLINE: Final = Options(wal_file_bytes=64 << 10, background=False, compaction=MANUAL)
"""Small WAL files; all maintenance runs inside the calls, and nothing is compacted unasked."""
BACKGROUND: Final = Options(wal_file_bytes=64 << 10, compaction=MANUAL, tick_seconds=0.01)


def open_sim(
    disk: SimDisk,
    *,
    options: Options = INLINE,
    streams: int = 1,
    versions: str = "log",
    vfs: Vfs | None = None,
) -> Log:
    return tidelog.open(
        PATH, options=options, streams=streams, versions=versions, vfs=vfs or disk.vfs()
    )


def values(log: tidelog.Topic) -> list[bytes]:
    return [record.value for record in log.read()]


def flush(log: Log) -> None:
    """Move everything that the WAL holds into segments."""
    log.engine.roll()
    log.engine.maintenance.flush_rolled()


def together(count: int, call: Callable[[int], T]) -> list[T]:
    """Run ``call(0)``, ``call(1)``, ... in threads that start at the same time."""
    barrier = threading.Barrier(count)

    def run(number: int) -> T:
        barrier.wait(WAIT_SECONDS)
        return call(number)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, number) for number in range(count)]
        return [future.result(WAIT_SECONDS) for future in futures]


@contextmanager
def in_thread(call: Callable[[], T]) -> Iterator[Future[T]]:
    """A call under way in another thread; it must have ended when the block ends."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


@contextmanager
def no_waiting() -> Iterator[None]:
    """In this thread a wait fails at once: whoever waits for itself would do so for ever."""
    here, wait, wait_for_request = threading.get_ident(), threading.Condition.wait, Request.wait

    def look() -> None:
        assert threading.get_ident() != here, "it waits for what it holds up"

    def wait_elsewhere(condition: threading.Condition, timeout: float | None = None) -> bool:
        look()
        return wait(condition, timeout)

    def wait_elsewhere_for_request(request: Request, seconds: float) -> bool:
        look()
        return wait_for_request(request, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Condition, "wait", wait_elsewhere)
        patch.setattr(Request, "wait", wait_elsewhere_for_request)
        yield


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look again and again; fails after WAIT_SECONDS."""
    deadline = monotonic() + WAIT_SECONDS
    pause = threading.Event()
    while not condition():
        assert monotonic() < deadline, f"never happened: {what}"
        pause.wait(0.0005)


def wait_for_queued(log: Log, count: int) -> None:
    """Wait until so many requests stand in the commit queue."""
    queue = log.engine._queue
    wait_until(lambda: len(queue._queue) >= count, f"{count} queued requests")


class Gate:
    """Holds calls up while it is shut, and tells how many stand before it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shut = False
        self._waiting = 0
        self._allowed = 0

    @contextmanager
    def shut(self) -> Iterator[Gate]:
        self._set(True)
        try:
            yield self
        finally:
            self._set(False)

    def open(self) -> None:
        self._set(False)

    def let_pass(self, count: int) -> None:
        """Let so many calls through and stay shut for the others."""
        with self._changed:
            self._allowed += count
            self._changed.notify_all()

    def _set(self, shut: bool) -> None:
        with self._changed:
            self._shut = shut
            self._changed.notify_all()

    def wait_until_held(self, count: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting >= count, WAIT_SECONDS)

    def pass_through(self) -> None:
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            may_pass = self._changed.wait_for(
                lambda: not self._shut or self._allowed > 0, WAIT_SECONDS
            )
            assert may_pass
            self._allowed -= self._allowed > 0
            self._waiting -= 1


class GatedVfs(SimVfs):
    """A simulated disk whose syncs of files with some suffix wait at a gate."""

    def __init__(self, disk: SimDisk, gate: Gate, suffix: str) -> None:
        super().__init__(disk)
        self._gate = gate
        self._suffix = suffix

    def create(self, path: str, *, once: bool = False) -> File:  # type: ignore[override]
        return GatedFile(super().create(path, once=once), self._gate_of(path))

    def open(self, path: str, *, write: bool = False) -> File:  # type: ignore[override]
        return GatedFile(super().open(path, write=write), self._gate_of(path))

    def _gate_of(self, path: str) -> Gate | None:
        return self._gate if path.removesuffix(".tmp").endswith(self._suffix) else None


class GatedFile:
    def __init__(self, inner: File, gate: Gate | None) -> None:
        self._inner = inner
        self._gate = gate

    def read_at(self, offset: int, length: int) -> bytes:
        return self._inner.read_at(offset, length)

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        self._inner.write_at(offset, parts)

    def sync(self) -> None:
        if self._gate is not None:
            self._gate.pass_through()
        self._inner.sync()

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()


def gated(disk: SimDisk, suffix: str = ".wal") -> tuple[GatedVfs, Gate]:
    gate = Gate()
    return GatedVfs(disk, gate, suffix), gate
