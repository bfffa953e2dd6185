"""Who reads and how far: bounded, forgotten after a while, and never in anybody's way."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tidelog.embedded import audience
from tidelog.embedded.audience import SILENT_SECONDS_MAX, Audience
from tidelog.errors import BadOption
from tidelog.interface import readers
from tidelog.interface.readers import ReaderFacts, lagging
from tidelog.limits import READER_NAME_CHARS_MAX


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_last_word_of_a_reader_counts() -> None:
    clock = Clock()
    heard = Audience(clock)
    heard.note("t", "a", 5)
    clock.now += 2
    heard.note("t", "b", 7)
    heard.note("t", "a", 9)
    clock.now += 1
    assert heard.tell() == (ReaderFacts("t", "b", 7, 1.0), ReaderFacts("t", "a", 9, 1.0))


def test_who_has_no_name_and_who_says_nothing_for_long_is_not_told_of() -> None:
    clock = Clock()
    heard = Audience(clock)
    heard.note("t", "", 5)
    heard.note("t", "a", 5)
    clock.now += SILENT_SECONDS_MAX
    assert [one.name for one in heard.tell()] == ["a"]
    clock.now += 1
    assert heard.tell() == ()


def test_who_was_heard_of_longest_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "READERS_MAX", 2)
    heard = Audience(Clock())
    for name in ("a", "b", "a", "c"):
        heard.note("t", name, 1)
    assert [one.name for one in heard.tell()] == ["a", "c"]


def test_of_a_reader_that_changed_its_node_the_newer_word_counts() -> None:
    told = [
        ReaderFacts("t", "moved", 5, 30.0),
        ReaderFacts("t", "moved", 8, 1.0),
        ReaderFacts("t", "ahead of what is known", 12, 1.0),
        ReaderFacts("gone", "reader", 1, 1.0),
        ReaderFacts("s", "moved", 1, 9.0),
    ]
    assert lagging(told, {"s": 4, "t": 10}) == (
        ReaderFacts("s", "moved", 1, 9.0, lag=4),
        ReaderFacts("t", "ahead of what is known", 12, 1.0, lag=0),
        ReaderFacts("t", "moved", 8, 1.0, lag=3),
    )


def test_of_too_many_readers_those_heard_of_last_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readers, "READERS_MAX", 2)
    told = [ReaderFacts("t", name, 1, float(seconds)) for seconds, name in enumerate("cab")]
    assert [one.name for one in lagging(told, {"t": 1})] == ["a", "c"]


def test_an_embedded_log_shows_its_readers(tmp_path: Path) -> None:
    with tidelog.open(str(tmp_path / "log")) as log:
        log.append_batch([b"v"] * 10)
        log.find_end(4, reader="report")
        log.find_end(2)
        (reader,) = log.log_stats().readers
    assert (reader.topic, reader.name, reader.glsn, reader.lag) == ("default", "report", 4, 7)


@pytest.mark.parametrize("name", ["x" * (READER_NAME_CHARS_MAX + 1), "two\nlines", "\x1b[2J"])
def test_a_name_that_cannot_be_shown_is_refused(tmp_path: Path, name: str) -> None:
    with tidelog.open(str(tmp_path / "log")) as log, pytest.raises(BadOption, match="printable"):
        log.find_end(1, reader=name)
