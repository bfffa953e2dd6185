"""Runs the program in this process or in one of its own, and makes small logs for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner, Result

import tidelog
from tidelog.cli.program import program

PROCESS_SECONDS = 60.0
ROUNDS = 30
KEYS = 20
ENTRIES = ROUNDS * (KEYS + 1)
"""What ``keyed_log`` holds."""
NEWEST = f"{ROUNDS - 1}" * 500
"""The value of each of its keys."""
SMALL = tidelog.Options(background=False, wal_file_bytes=64 * 1024)
_TEMPLATES: list[TemporaryDirectory[str]] = []


def run(*args: str | Path | float, stdin: bytes | str = b"", code: int = 0) -> Result:
    """Run a command in this process; it must end with ``code``."""
    result = CliRunner().invoke(program, [str(arg) for arg in args], input=stdin)
    shown = f"{result.stdout}\n{result.stderr}\n{result.exception!r}"
    assert result.exit_code == code, f"{args} ended with {result.exit_code}: {shown}"
    return result


def run_json(*args: str | Path | float, stdin: bytes | str = b"", code: int = 0) -> dict[str, Any]:
    """Run a command with ``-o json`` and return the document."""
    found = json.loads(run(*args, "-o", "json", stdin=stdin, code=code).stdout)
    assert isinstance(found, dict)
    return found


def values(data: Path, *args: str) -> list[bytes]:
    """What `tail` prints, line by line."""
    return run("tail", "-d", data, *args).stdout_bytes.splitlines()


@contextmanager
def spawned(*args: str | Path | float) -> Iterator[subprocess.Popen[bytes]]:
    """The program in a process of its own; it is gone when this ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[bytes], code: int = 0) -> tuple[bytes, bytes]:
    """Wait for the end of a process and return what it printed since."""
    out, err = process.communicate(timeout=PROCESS_SECONDS)
    assert process.returncode == code, (process.returncode, out, err)
    return out, err


@cache
def _template(make: Callable[[Path], None]) -> Path:
    """A log that is made once; the directory goes with the process."""
    directory = TemporaryDirectory(prefix="tidelog-test-")
    _TEMPLATES.append(directory)
    make(Path(directory.name) / "log")
    return Path(directory.name) / "log"


def _make_empty(path: Path) -> None:
    tidelog.open(path, options=SMALL).close()


def make_keyed(path: Path) -> None:
    with tidelog.open(path, options=SMALL) as log:
        for number in range(ROUNDS):
            log.put_batch([(b"k%d" % key, b"%d" % number * 500) for key in range(KEYS)])
            log.append(b"note %d" % number)
        log.snapshot()


def empty_log(path: Path) -> None:
    """No record in the default topic."""
    shutil.copytree(_template(_make_empty), path)


def small_log(path: Path, entries: int = 3) -> None:
    """Values v1, v2, ... in the default topic, all in the WAL."""
    empty_log(path)
    with tidelog.open(path, options=SMALL) as log:
        log.append_batch([f"v{number}".encode() for number in range(1, entries + 1)])


def keyed_log(path: Path) -> None:
    """Keys written again and again with a note after each round: segments, and a snapshot."""
    shutil.copytree(_template(make_keyed), path)


def segments_of(path: Path) -> list[Path]:
    return sorted(path.glob("streams/*/*.segment"))


def flip(path: Path, offset: int) -> None:
    """Turn over one bit of a file; a negative offset counts from its end."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
