"""State changes are lines that people can read, and objects that programs can."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from tidelog.runtime.events import JsonLines, TextLines, log_events, tell

LOGGER = logging.getLogger("tidelog.test")


@pytest.fixture(autouse=True)
def everything_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def untouched_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_an_event_is_one_line_of_text(caplog: pytest.LogCaptureFixture) -> None:
    tell(LOGGER, "leads stream", stream=3, why="the old one is dead")

    line = TextLines(7).format(caplog.records[0])
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert rest == 'info node 7: leads stream stream=3 why="the old one is dead"'


@pytest.mark.parametrize("form", [TextLines(7), JsonLines(7)])
def test_what_strangers_say_begins_no_line_and_moves_no_terminal(
    caplog: pytest.LogCaptureFixture, form: logging.Formatter
) -> None:
    said = "not a request: 'x\n2026-01-01T00:00:00.000Z error node 7: all is lost\x1b[31m\x9b1m'"
    LOGGER.info("the connection is closed: %s", said)
    tell(LOGGER, "peer not reached", why=said)

    for record in caplog.records:
        assert form.format(record).isprintable()


def test_an_event_is_one_object(caplog: pytest.LogCaptureFixture) -> None:
    tell(LOGGER, "disk full", logging.WARNING, stream=3, node=2)

    found = json.loads(JsonLines(7).format(caplog.records[0]))
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "source": 7,
        "node": 2,
        "logger": "tidelog.test",
        "event": "disk full",
        "stream": 3,
    }


def test_other_messages_look_the_same(caplog: pytest.LogCaptureFixture) -> None:
    LOGGER.warning("a token of %s is old", "ada")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        LOGGER.exception("it went wrong")

    found = json.loads(JsonLines(7).format(caplog.records[0]))
    assert (found["event"], found["message"]) == ("message", "a token of ada is old")
    assert "ZeroDivisionError" in json.loads(JsonLines(7).format(caplog.records[1]))["traceback"]
    assert TextLines(7).format(caplog.records[1]).splitlines()[-1].startswith("ZeroDivisionError")


@pytest.mark.usefixtures("untouched_logging")
def test_what_is_less_important_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    log_events(level="warning", form="json", node=1)
    tell(LOGGER, "not told")
    tell(LOGGER, "told", logging.ERROR)

    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "told"
