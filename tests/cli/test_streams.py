"""Streams that are closed, speak another encoding, or are asked to show names that are no text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import PROCESS_SECONDS, run, small_log, values

UTF8 = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
"""What a program has under a locale such as en_US.UTF-8."""


def shell(command: str, *args: str | bytes | Path) -> subprocess.CompletedProcess[bytes]:
    """Have a shell run the program, ``"$@"``, with what else stands in ``command``."""
    program = [sys.executable, "-m", "tidelog", *args]
    return subprocess.run(
        ["/bin/sh", "-c", command, "sh", *program],
        capture_output=True,
        check=False,
        env=UTF8,
        timeout=PROCESS_SECONDS,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    small_log(tmp_path / "log")
    return tmp_path / "log"


@pytest.mark.parametrize("command", [("append",), ("blob", "put", "-")])
def test_a_closed_input_is_told(data: Path, command: tuple[str, ...]) -> None:
    done = shell('"$@" <&-', *command, "-d", data)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"tidelog: the standard input is closed\n"


def test_whoever_closes_the_output_wants_to_hear_nothing(data: Path) -> None:
    done = shell('echo v4 | "$@" >&-', "append", "-d", data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert values(data) == [b"v1", b"v2", b"v3", b"v4"]
    for command in ("tail", "stats"):
        done = shell('"$@" >&-', command, "-d", data)
        assert (done.returncode, done.stderr) == (0, b"")
    assert shell('"$@" 2>&-', "get", "-d", data, "key").returncode == 4


def test_names_that_are_no_utf_8_are_shown(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    small_log(Path(os.fsdecode(path)))
    for command in ("stats", "verify"):
        done = shell('"$@"', command, "-d", path, "-o", "json")
        assert (done.returncode, done.stderr) == (0, b"")
        assert os.fsencode(json.loads(done.stdout)["path"]) == path
    done = shell('"$@"', "stats", "-d", path)
    assert done.returncode == 0
    assert rb"/\udcff" in done.stdout


def test_json_is_utf_8_whatever_the_terminal_speaks(data: Path) -> None:
    run("topic", "create", "-d", data, "é")
    done = shell('PYTHONIOENCODING=ascii "$@"', "topic", "list", "-d", data, "-o", "json")
    assert {topic["topic"] for topic in json.loads(done.stdout)["topics"]} == {"default", "é"}


def test_a_name_that_is_no_text_is_refused(data: Path) -> None:
    done = shell('echo v4 | "$@"', "append", "-d", data, "--producer", b"\xff")
    assert done.returncode == 1
    assert done.stderr == b"tidelog: '\\udcff' is not UTF-8\n"
    assert values(data) == [b"v1", b"v2", b"v3"]


def test_a_separator_may_be_any_bytes(data: Path) -> None:
    done = shell('printf "k\\377v\\n" | "$@"', "append", "-d", data, "-K", b"\xff")
    assert done.returncode == 0
    assert run("get", "-d", data, "k").stdout == "v\n"
