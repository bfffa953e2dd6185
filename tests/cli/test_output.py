"""Tables, sizes, progress, exit codes, and the page that documents them."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import click
import pytest

from tests.cli.running import run, small_log
from tests.cli.test_start import subcommands
from tidelog import errors
from tidelog.cli import progress
from tidelog.cli.failures import ExitCode, code_of
from tidelog.cli.output import Id, Size, print_table, shown, size_text, time_text
from tidelog.cli.program import program

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 61, "2048.0 PiB"),
    ],
)
def test_sizes_have_units(size: int, text: str) -> None:
    assert size_text(size) == text


def test_times_are_in_utc_and_any_number_has_one() -> None:
    assert time_text(0) == "1970-01-01T00:00:00.000000Z"
    assert time_text(-1) == "1969-12-31T23:59:59.999999Z"
    assert time_text((1 << 63) - 1) == str((1 << 63) - 1)


def test_long_and_strange_bytes_are_shown_on_one_line() -> None:
    assert shown(b"\x1b[31mred\n") == "\\x1b[31mred\\n"
    assert shown(b"caf\xc3\xa9 \xff") == "café \\xff"
    assert len(shown(b"x" * 10_000)) == 60
    assert shown(b"x" * 10_000).endswith("…")


def test_columns_of_amounts_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "count", "size"], [("a", 1000, Size(2048)), ("long", None, Size(1))])
    print_table(["id", "empty"], [(Id(10_000), "")])
    print_table(["nothing"], [])

    assert capsys.readouterr().out == (
        "NAME  COUNT     SIZE\n"
        "a     1,000  2.0 KiB\n"
        "long      -      1 B\n"
        "   ID  EMPTY\n"
        "10000\n"
        "NOTHING\n"
    )


# -- progress ------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", -1.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
def test_progress_is_drawn_over_itself_and_wiped_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)  # As if it were not installed.
    stream = Terminal()

    with progress.Progress("records", stream) as shown_progress:
        shown_progress.update(1000)
        shown_progress.update(2000)

    drawn = stream.getvalue().split("\r")
    counts = [part[: part.index(" records")] for part in drawn[1:3]]
    assert counts == ["1,000", "2,000"]
    assert drawn[-2].strip() == drawn[-1] == ""


@pytest.mark.usefixtures("impatient")
def test_progress_is_drawn_by_rich_where_it_is_installed() -> None:
    pytest.importorskip("rich")
    stream = Terminal()

    with progress.Progress("records", stream) as shown_progress:
        shown_progress.update(1000)
        shown_progress.update(2000)

    assert "2,000 records" in stream.getvalue()


@pytest.mark.usefixtures("impatient")
def test_progress_is_silent_where_nobody_looks() -> None:
    stream = io.StringIO()

    with progress.Progress("records", stream) as shown_progress:
        shown_progress.update(1000)

    assert stream.getvalue() == ""


# -- errors --------------------------------------------------------------------------------------


def all_errors(kind: type[errors.LogError] = errors.LogError) -> list[type[errors.LogError]]:
    return [kind, *(found for other in kind.__subclasses__() for found in all_errors(other))]


EXTRA: dict[type[errors.LogError], dict[str, int]] = {
    errors.Trimmed: {"first_available": 1},
    errors.ReplicaRefused: {"code": 1},
}


def test_every_error_has_its_exit_code() -> None:
    codes: dict[ExitCode, set[str]] = {}
    for kind in all_errors():
        error = kind("x", **EXTRA.get(kind, {}))
        codes.setdefault(code_of(error), set()).add(kind.__name__)

    assert codes[ExitCode.DAMAGED] == {"CorruptData", "UnsupportedVersion"}
    assert codes[ExitCode.LOCKED] == {"LogLocked"}
    assert codes[ExitCode.BUSY] == {"Busy", "ConnectionLost", "DeadlineExceeded", "Unreachable"}
    assert codes[ExitCode.NOT_FOUND] == {
        "NotALog", "OutOfRange", "Trimmed", "UnknownBlob", "UnknownStream", "UnknownTopic"
    }  # fmt: skip
    assert "DiskFull" in codes[ExitCode.ERROR]
    assert not codes.keys() & {ExitCode.OK, ExitCode.USAGE}


def test_an_error_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    small_log(tmp_path / "log")
    (tmp_path / "log" / "manifest").write_bytes(b"nonsense")

    found = run("stats", "-d", tmp_path / "log", code=3)

    assert found.stdout == ""
    assert re.fullmatch(r"tidelog: manifest: [^\n]+\n", found.stderr)


# -- documentation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [path for path in subcommands() if path != ("bench",)], ids=" ".join
)
def test_the_page_names_every_command_and_option(path: tuple[str, ...]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    context: click.Context = click.Context(program)
    command: click.Command | None = program
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(context, name)
    assert command is not None

    assert f"tidelog {' '.join(path)}" in page
    options = [p for p in command.params if isinstance(p, click.Option)]
    missing = [opt for p in options for opt in p.opts if f"`{opt}" not in page]
    assert not missing
    assert not [p.opts for p in options if not p.help]


def test_the_page_names_every_exit_code() -> None:
    page = PAGE.read_text(encoding="utf-8")

    for code in ExitCode:
        assert re.search(rf"^\| {code.value} \|", page, re.MULTILINE)
