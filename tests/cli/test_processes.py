"""What shows only between processes: pipes, signals, locks, reading what another one writes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tidelog
from tests.cli.running import PROCESS_SECONDS, ended, run, small_log, spawned, values
from tidelog.cli import session


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_an_interrupt_ends_a_tail_cleanly(data: Path) -> None:
    small_log(data, 1)
    with spawned("tail", "-d", data, "-f") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"v1\n"
        process.send_signal(signal.SIGINT)
        assert ended(process) == (b"", b"")


def test_a_reader_that_has_enough_ends_a_tail_quietly(data: Path) -> None:
    with tidelog.open(data) as log:
        log.append_batch([b"x" * 100] * 20_000)
    with spawned("tail", "-d", data) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x" * 100 + b"\n"
        process.stdout.close()
        process.wait(PROCESS_SECONDS)
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (0, b"")


def test_a_reader_that_is_gone_ends_a_short_command_quietly(data: Path) -> None:
    small_log(data, 1)
    with spawned("stats", "-d", data) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(PROCESS_SECONDS)
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (0, b"")


def test_a_line_is_in_the_log_before_the_next_one_comes(data: Path) -> None:
    with spawned("append", "-d", data) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"first\n")
        writer.stdin.flush()
        wait_for_log(data)
        with spawned("tail", "-d", data, "-f", "-n", 1, "--timeout", PROCESS_SECONDS) as reader:
            assert ended(reader) == (b"first\n", b"")
        out, _ = writer.communicate(b"second\n", PROCESS_SECONDS)
        assert out.startswith(b"appended 2 records to topic default, GLSN 1..2")
    assert values(data) == [b"first", b"second"]


def wait_for_log(data: Path) -> None:
    """Wait until another process has made the log and its topic."""
    command = [sys.executable, "-c", WAITING, str(data / "streams")]
    subprocess.run(command, check=True, timeout=PROCESS_SECONDS)


WAITING = """
import sys, threading, pathlib
while not any(pathlib.Path(sys.argv[1]).glob("*")):
    threading.Event().wait(0.01)
"""


def test_an_interrupted_append_says_what_it_appended(data: Path) -> None:
    with spawned("append", "-d", data) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"one\ntwo\n")
        writer.stdin.flush()
        wait_for_log(data)
        with spawned("tail", "-d", data, "-f", "-n", 2, "--timeout", PROCESS_SECONDS) as reader:
            ended(reader)
        writer.send_signal(signal.SIGINT)
        _, error = ended(writer, 1)
    assert error.startswith(b"tidelog: interrupted; all before line 3 is in the log")
    assert values(data) == [b"one", b"two"]


def test_a_log_that_another_process_has_open_is_locked_for_writers_alone(data: Path) -> None:
    with spawned("append", "-d", data) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"a\n")
        writer.stdin.flush()
        wait_for_log(data)
        for command in (
            ("append",),
            ("topic", "create", "t"),
            ("topic", "add-streams", "default", "1"),
            ("trim", "--before", "1"),
            ("compact", "run"),
            ("snapshot",),
            ("rewrite",),
            ("verify",),
        ):
            error = run(*command, "-d", data, "--wait", 0, code=6).stderr
            assert f"open in another process ([Errno 11] locked by process {writer.pid}" in error
        for command in (("stats",), ("topic", "list"), ("compact", "status"), ("tail",)):
            run(*command, "-d", data)


def test_a_command_waits_for_its_turn(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_log(data, 1)
    log = tidelog.open(data)
    waits: list[float] = []

    class Pause:
        """The first wait for the lock is long enough for its owner to finish."""

        def wait(self, seconds: float) -> None:
            waits.append(seconds)
            log.append(b"first")
            log.close()

    monkeypatch.setattr(session, "Event", Pause)

    run("append", "-d", data, "--wait", PROCESS_SECONDS, stdin=b"second\n")

    assert len(waits) == 1
    assert values(data) == [b"v1", b"first", b"second"]


def test_a_tail_follows_a_log_that_another_process_writes_and_compacts(data: Path) -> None:
    count, options = 3000, tidelog.Options(wal_file_bytes=64 * 1024)
    with tidelog.open(data, streams=2, options=options) as log:
        follow = ("tail", "-d", data, "-f", "-n", count, "--timeout", PROCESS_SECONDS)
        with spawned(*follow, "--format", "%g %v") as reader:
            for number in range(0, count, 20):
                log.append_batch([b"%d" % n + b"x" * 200 for n in range(number, number + 20)])
            log.compact(full=True)
            out, _ = ended(reader)
        assert log.stats().streams[0].segments > 2

    expected = [b"%d %d" % (n + 1, n) + b"x" * 200 for n in range(count)]
    assert out.splitlines() == expected


def test_a_key_is_never_missed_while_it_is_written_and_compacted(data: Path) -> None:
    """A key that always has a value has one in every look, whatever is swapped meanwhile."""
    options = tidelog.Options(wal_file_bytes=64 * 1024, snapshot_bytes=32 * 1024)
    rounds, seen = 10, [0]

    def write() -> None:
        for number in range(1, rounds + 1):
            for filler in range(40):
                log.put(b"f%d" % filler, b"%d" % number * 500)
            log.put(b"k", b"%d" % number)
            log.compact(full=True)

    with tidelog.open(data, options=options) as log:
        log.put(b"k", b"0")
        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            seen.append(int(run("get", "-d", data, "k").stdout))
        writer.join()
        assert run("get", "-d", data, "k").stdout == f"{rounds}\n"

    assert seen == sorted(seen)
