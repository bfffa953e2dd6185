"""`tidelog tail`: records in their order, from anywhere, in any form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidelog
from tests.cli.running import SMALL, run, small_log, values


@pytest.fixture
def data(tmp_path: Path) -> Path:
    small_log(tmp_path / "log", 5)
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", "12345"),
        ("latest", ""),
        ("3", "345"),
        ("6", ""),
        ("-2", "45"),
        ("-99", "12345"),
    ],
)
def test_it_begins_where_it_is_told_to(data: Path, start: str, expected: str) -> None:
    assert values(data, "--from", start) == [f"v{n}".encode() for n in expected]


@pytest.mark.parametrize("start", ["0", "-0", "first", "1.5", "--2", "", "²"])
def test_a_start_that_is_no_place_is_wrong_usage(data: Path, start: str) -> None:
    assert "--from" in run("tail", "-d", data, f"--from={start}", code=2).stderr


def test_it_ends_after_a_number_of_records(data: Path) -> None:
    assert values(data, "-n", "2") == [b"v1", b"v2"]
    assert len(values(data, "-n", "99")) == 5


def test_places_that_are_not_there_are_not_found(data: Path) -> None:
    error = run("tail", "-d", data, "--from", 7, code=4).stderr
    assert error == "tidelog: topic 'default' has not reached GLSN 7: it ends at 5\n"

    run("trim", "-d", data, "--before", 3)
    assert "the first available is 3" in run("tail", "-d", data, "--from", 1, code=4).stderr
    assert values(data) == [b"v3", b"v4", b"v5"]


def test_a_topic_that_is_not_there_is_not_found(data: Path) -> None:
    assert "no topic 'other'" in run("tail", "-d", data, "-t", "other", code=4).stderr


def test_json_lines_hold_every_field(data: Path) -> None:
    with tidelog.open(data, options=SMALL) as log:
        log.put(b"\xff", b"v", storage_id=9)

    found = json.loads(run("tail", "-d", data, "-o", "jsonl", "--from", 6).stdout)

    assert found.pop("timestamp_us") > 0
    assert found == {
        "topic": "default",
        "glsn": 6,
        "llsn": 6,
        "stream": 1,
        "kind": "put",
        "key_b64": "/w==",
        "value": "v",
        "storage_id": 9,
        "write_version": 6,
        "blobs": [],
        "rewritten": False,
    }


def test_text_shows_keys_and_deletes(data: Path) -> None:
    with tidelog.open(data, options=SMALL) as log:
        log.put(b"k", b"v")
        log.delete(b"k")
        log.delete_storage(4)

    assert values(data, "--from", "6") == [b"k\tv", b"k\t(deleted)", b"(storage 4 deleted)"]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%g %l %s %t", b"5 5 1 default\n"),
        ("%k=%v\\n", b"=v5\n"),
        ("%v\\0", b"v5\0"),
        ("%%g\\t%o\\\\n", b"%g\tappend\\n\n"),
        ("%i/%w é", "0/5 é\n".encode()),
        ("\\x", b"\\x\n"),
        ("", b"\n"),
    ],
)
def test_a_format_is_filled_in(data: Path, form: str, expected: bytes) -> None:
    assert run("tail", "-d", data, "--from", 5, "--format", form).stdout_bytes == expected


def test_a_format_shows_time_as_number_and_as_date(data: Path) -> None:
    with tidelog.open(data, options=SMALL) as log:
        entry = tidelog.Entry(tidelog.Kind.PUT, b"", b"k", timestamp_us=1_000_000_000_000_001)
        log.write([entry])

    found = run("tail", "-d", data, "--from", 6, "--format", "%T %d").stdout

    assert found == "1000000000000001 2001-09-09T01:46:40.000001Z\n"


@pytest.mark.parametrize("form", ["%x", "100%", "%"])
def test_an_unknown_part_of_a_format_is_wrong_usage(data: Path, form: str) -> None:
    assert "--format" in run("tail", "-d", data, "--format", form, code=2).stderr


@pytest.mark.parametrize("args", [("--timeout", "1"), ("-o", "jsonl", "--format", "%v")])
def test_options_that_exclude_one_another_are_wrong_usage(
    data: Path, args: tuple[str, ...]
) -> None:
    run("tail", "-d", data, *args, code=2)


def test_following_ends_when_nothing_comes(data: Path) -> None:
    assert len(values(data, "-f", "--timeout", "0.01")) == 5
    assert values(data, "-f", "--timeout", "0.01", "--from", "99") == []


def test_following_for_a_number_that_does_not_come_is_a_timeout(data: Path) -> None:
    found = run("tail", "-d", data, "-f", "--timeout", "0.01", "-n", 7, code=5)

    assert found.stdout.splitlines() == ["v1", "v2", "v3", "v4", "v5"]
    assert "5 of 7 records came" in found.stderr


def test_following_ends_after_a_number_that_is_there(data: Path) -> None:
    assert values(data, "-f", "-n", "5")[-1] == b"v5"


def test_the_streams_of_a_topic_are_shown_in_one_order(tmp_path: Path) -> None:
    path = tmp_path / "many"
    run("topic", "create", "t", "-d", path, "--streams", 3)
    for number in range(9):
        run("append", "-d", path, "-t", "t", "--batch", 1, stdin=b"%d\n" % number * 2)

    found = values(path, "-t", "t", "--format", "%g %v")

    assert found == [b"%d %d" % (place + 1, place // 2) for place in range(18)]


@pytest.mark.parametrize(
    "args",
    [
        ("tail", "-f", "--timeout", "nan"),
        ("compact", "run", "--wait", "nan"),
        ("blob", "collect", "--older-than", "nan"),
        ("top", "--interval", "1e10"),
        ("bench", "append", "--rate", "inf"),
        ("serve", "--stage-seconds", "nan"),
        ("tail", "--topic", ""),
    ],
)
def test_what_is_no_number_or_no_name_is_wrong_usage(tmp_path: Path, args: tuple[str, ...]) -> None:
    small_log(tmp_path / "log")
    assert "Invalid value" in run(*args, "-d", tmp_path / "log", code=2).stderr


@pytest.mark.parametrize("option", ["--older-than", "--timeout"])
def test_jobs_take_no_time_that_is_no_number(option: str) -> None:
    job = "archive" if option == "--older-than" else "audit"
    for number in ("nan", "inf", "1e300"):
        shown = run("pipeline", job, "--from", "tidelog://h:1", option, number, code=2).stderr
        assert "Invalid value" in shown


def test_any_number_of_records_may_be_asked_for(data: Path) -> None:
    assert len(values(data, "-n", str(1 << 64))) == 5
