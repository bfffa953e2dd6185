"""Closing: what is under way ends well, and a closed log touches nothing any more."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.embedded.logs import (
    BACKGROUND,
    INLINE,
    WAIT_SECONDS,
    flush,
    gated,
    in_thread,
    no_waiting,
    open_sim,
    together,
    values,
    wait_for_queued,
    wait_until,
)
from tidelog import Log, Options
from tidelog.errors import BadOption, LogClosed, LogError
from tidelog.formats.manifest import decode_manifest
from tidelog.interface.handles import AppenderHandle
from tidelog.interface.records import Receipt
from tidelog.limits import MANIFEST_BYTES_MAX
from tidelog.storage.atomic_file import read_file
from tidelog.storage.os_vfs import OsVfs
from tidelog.testing.disk import SimDisk

CALLS: dict[str, Callable[[Log], Any]] = {
    "append": lambda log: log.append(b""),
    "append_batch": lambda log: log.append_batch([b""]),
    "put": lambda log: log.put(b"k", b""),
    "put_batch": lambda log: log.put_batch([(b"k", b"")]),
    "delete": lambda log: log.delete(b"k"),
    "delete_storage": lambda log: log.delete_storage(0),
    "read": lambda log: log.read(),
    "get": lambda log: log.get(b"k"),
    "trim": lambda log: log.trim(1),
    "snapshot": lambda log: log.snapshot(),
    "compact": lambda log: log.compact(),
    "full compact": lambda log: log.compact(full=True),
    "rewrite": lambda log: log.rewrite(),
    "explain": lambda log: log.explain(b"k"),
    "create_topic": lambda log: log.create_topic("t"),
    "add_streams": lambda log: log.add_streams("default", 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_log_refuses(name: str) -> None:
    disk = SimDisk()
    log = open_sim(disk)
    log.put(b"k", b"v")
    flush(log)
    log.put(b"k", b"w")
    log.close()
    operations = disk.operations
    with pytest.raises(LogClosed, match="the log is closed") as caught:
        CALLS[name](log)
    assert caught.value.definite
    assert disk.operations == operations, "another process may have the log open by now"


def test_closing_twice_is_fine() -> None:
    log = open_sim(SimDisk())
    log.close()
    log.close()
    together(3, lambda _: log.close())


def test_many_threads_may_close_at_once(tmp_path: Path) -> None:
    log = tidelog.open(tmp_path / "log", options=BACKGROUND)
    log.append(b"a")
    together(4, lambda _: log.close())
    with tidelog.open(tmp_path / "log", options=BACKGROUND) as log:
        assert values(log) == [b"a"]


def test_appends_that_are_queued_when_the_log_closes_are_committed() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)
    log = open_sim(disk, vfs=vfs)
    with gate.shut(), in_thread(lambda: log.append(b"first")) as held:
        gate.wait_until_held()
        with in_thread(lambda: together(5, lambda _: log.append(b"queued").glsn)) as queued:
            wait_for_queued(log, 5)
            with in_thread(log.close) as closing:
                wait_until(lambda: log.engine._queue._closed, "the closing")
                with pytest.raises(LogClosed):
                    log.append(b"too late")
                assert not closing.done()
                gate.open()
                closing.result(WAIT_SECONDS)
            assert sorted(queued.result(WAIT_SECONDS)) == [2, 3, 4, 5, 6]
        assert held.result(WAIT_SECONDS).glsn == 1
    with open_sim(disk) as log:
        assert values(log) == [b"first"] + [b"queued"] * 5


def test_whatever_was_acknowledged_around_a_close_is_there(tmp_path: Path) -> None:
    """Writers run into the closing log: each append is acknowledged, or refused and not there."""
    path = tmp_path / "log"
    for _ in range(5):
        log = tidelog.open(path, streams=2, options=BACKGROUND)
        before = log.high_watermark
        started = threading.Barrier(4)

        def write(number: int, log: Log = log, started: threading.Barrier = started) -> list[int]:
            started.wait(WAIT_SECONDS)
            found = []
            try:
                for _ in range(1000):
                    found.append(log.append(b"%d" % number).glsn)
            except LogClosed:
                pass
            return found

        with in_thread(lambda write=write: together(3, write)) as writers:  # type: ignore[misc]
            started.wait(WAIT_SECONDS)
            wait_until(lambda log=log, n=before: log.high_watermark > n + 9, "some appends")  # type: ignore[misc]
            log.close()
            acknowledged = sorted(glsn for found in writers.result(WAIT_SECONDS) for glsn in found)
        with tidelog.open(path, options=BACKGROUND) as log:
            assert log.high_watermark == before + len(acknowledged)
            assert acknowledged == list(range(before + 1, log.high_watermark + 1))


def test_closing_waits_for_a_compaction_that_another_thread_runs() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk, ".compacting")
    log = open_sim(disk, vfs=vfs)
    for turn in range(4):
        log.put_batch([(b"%d" % n, b"%d" % turn) for n in range(turn, turn + 10)])
        flush(log)
    with gate.shut(), in_thread(lambda: log.compact(full=True)) as compacting:
        gate.wait_until_held()
        with in_thread(log.close) as closing:
            wait_until(lambda: log.engine._queue._closed, "the closing")
            assert not closing.done()
            gate.open()
            closing.result(WAIT_SECONDS)
        assert not compacting.result(WAIT_SECONDS).failures
    with open_sim(disk) as log:
        found = log.get(b"12")
        assert found is not None
        assert found.value == b"3"


def test_a_waiting_tail_ends_when_the_log_closes() -> None:
    log = open_sim(SimDisk())
    log.append(b"a")
    seen: list[bytes] = []

    def follow() -> None:
        for record in log.subscribe(1):
            seen.append(record.value)

    with in_thread(follow) as tail:
        wait_until(lambda: seen == [b"a"], "the first record")
        log.append(b"b")
        wait_until(lambda: seen == [b"a", b"b"], "the second record")
        log.close()
        tail.result(WAIT_SECONDS)
    assert seen == [b"a", b"b"]


def test_a_tail_in_the_middle_of_its_records_ends_when_the_log_closes() -> None:
    log = open_sim(SimDisk())
    for _ in range(3):
        log.append_batch([b"x"] * 5)
        flush(log)
    tail = log.subscribe(1)
    read = [next(tail) for _ in range(7)]
    log.close()
    read += list(tail)
    assert [record.glsn for record in read] == list(range(1, len(read) + 1))
    assert 7 <= len(read) < 15


def test_an_iterator_held_over_the_close_opens_no_file_any_more(tmp_path: Path) -> None:
    """The leak check of all tests sees whether a file stays open."""
    log = tidelog.open(tmp_path / "log", options=Options(background=False))
    for _ in range(3):
        log.append_batch([b"x"] * 5)
        flush(log)
    records = log.read()
    next(records)
    log.close()
    with pytest.raises(LogClosed):
        list(records)


def test_a_tail_with_a_timeout_ends_by_itself() -> None:
    with open_sim(SimDisk()) as log:
        log.append(b"a")
        assert [record.value for record in log.subscribe(1, timeout=0.01)] == [b"a"]
        assert list(log.subscribe(timeout=0)) == []
        assert list(log.subscribe(100, timeout=0)) == []


def test_a_log_that_failed_to_open_its_topic_lets_go_of_everything(tmp_path: Path) -> None:
    with pytest.raises(LogError):
        tidelog.open(tmp_path / "log", streams=0, options=BACKGROUND)
    with tidelog.open(tmp_path / "log", options=BACKGROUND) as log:
        assert log.append(b"").glsn == 1


def test_an_appender_that_was_left_by_an_interrupt_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread has ended, yet a commit is handed to it: the whole log waits for that."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with open_sim(SimDisk()) as log:
        appender = log.appender()
        monkeypatch.setattr(appender._flow, "close", interrupted)
        with pytest.raises(KeyboardInterrupt), appender:
            appender.append(b"0")
        assert appender.append(b"1").result(WAIT_SECONDS).glsn == 2
        assert log.append(b"2", timeout=WAIT_SECONDS).glsn == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda log, appender: appender.append(bytes(3000)),
        lambda log, appender: appender.flush(),
        lambda log, appender: log.append(b"late"),
        lambda log, appender: log.close(),
    ],
)
def test_a_callback_of_an_append_may_not_wait_for_another_one(
    call: Callable[[Log, AppenderHandle], object],
) -> None:
    """It runs inside the commit that the other one needs."""
    outcomes: list[BadOption] = []

    def in_callback(_: Future[Receipt]) -> None:
        try:
            with no_waiting():
                call(log, appender)
        except BadOption as error:
            outcomes.append(error)

    disk = SimDisk()
    vfs, gate = gated(disk)
    with open_sim(disk, vfs=vfs) as log:
        with log.appender(bytes_max=4000) as appender, gate.shut():
            future = appender.append(bytes(3000))
            gate.wait_until_held()
            future.add_done_callback(in_callback)
        assert log.append(b"2", timeout=WAIT_SECONDS).glsn == 2
    assert len(outcomes) == 1


def fork(work: Callable[[], None]) -> int:
    """A child that has all that this process has, but for its threads; it does ``work``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(10)  # Ends a child that waits for ever.
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def wait_for(child: int) -> None:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_forked_process_is_refused_and_leaves_the_log_alone(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "log", options=BACKGROUND) as log:
        log.put(b"k", b"v")
        reader = log.subscribe(2)

        def work() -> None:
            for call in CALLS.values():
                with pytest.raises(LogClosed, match="forked"):
                    call(log)
            assert list(reader) == []
            log.close()

        wait_for(fork(work))
        log.append(b"after")
        assert values(log) == [b"v", b"after"]


def test_a_forked_process_that_closes_the_log_late_writes_no_old_manifest(tmp_path: Path) -> None:
    path = tmp_path / "log"
    go, told = os.pipe()
    with tidelog.open(path, options=INLINE) as log:
        log.append(b"before")

        def work() -> None:
            os.read(go, 1)
            log.close()

        child = fork(work)
        flush(log)
        os.write(told, b"x")
        wait_for(child)
        found = read_file(OsVfs(), str(path / "manifest"), MANIFEST_BYTES_MAX)
        assert found is not None
        assert decode_manifest(found).wal_file == log.engine.node.wal.number
    os.close(go)
    os.close(told)
