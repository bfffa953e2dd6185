"""The program starts without what only some commands need."""

from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType

import click
import pytest

from tests.cli.running import PROCESS_SECONDS, run
from tidelog.cli.program import COMMANDS, program

HEAVY = {"numpy", "pyroaring", "msgspec", "xxhash", "fastcrc", "rich", "asyncio", "sqlite3"}
HEAVY_PARTS = ("tidelog.embedded", "tidelog.storage", "tidelog.formats", "tidelog.core")


def imported_by(*args: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tidelog", *args],
        capture_output=True,
        text=True,
        check=True,
        timeout=PROCESS_SECONDS,
    )
    return set(re.findall(r"^import time:.*\|\s+(\S+)$", found.stderr, re.MULTILINE))


def subcommands() -> list[tuple[str, ...]]:
    context = click.Context(program)
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command is not None
        nested = command.commands if isinstance(command, click.Group) else {}
        found += [(name,), *((name, other) for other in nested)]
    return found


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("append", "--help")])
def test_help_and_version_load_neither_the_log_nor_its_libraries(args: tuple[str, ...]) -> None:
    modules = imported_by(*args)

    assert "click" in modules
    assert not modules & HEAVY
    assert not [name for name in modules if name.startswith(HEAVY_PARTS)]


@pytest.mark.parametrize("args", [("append",), ("tail", "--no-such-option"), ("get",)])
def test_wrong_usage_is_told_without_loading_the_log(args: tuple[str, ...]) -> None:
    found = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tidelog", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROCESS_SECONDS,
    )

    assert found.returncode == 2
    assert "Usage: tidelog" in found.stderr
    assert "tidelog.embedded" not in found.stderr


@pytest.mark.parametrize("path", subcommands(), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    text = run(*path, "--help").stdout

    assert f"Usage: tidelog {' '.join(path)}" in text.replace("Usage: program", "Usage: tidelog")
    assert "-h, --help" in text


def test_the_benchmark_gets_its_options_and_gives_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[dict[str, object]] = []

    def measure(**options: object) -> int:
        calls.append(options)
        return 3

    module = ModuleType("tidelog.cli.bench_embedded")
    monkeypatch.setattr(module, "run", measure, raising=False)
    monkeypatch.setitem(sys.modules, "tidelog.cli.bench_embedded", module)

    run("bench", "embedded", "--size", 10, "--size", 20, "--seconds", 0.5, "-o", "json", code=3)

    assert calls == [
        {"data": None, "sizes": [10, 20], "seconds": 0.5, "peers": False, "output": "json"}
    ]


def test_an_unknown_command_is_wrong_usage() -> None:
    assert "No such command" in run("frobnicate", code=2).stderr
