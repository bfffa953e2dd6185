"""`tidelog get` and `tidelog topic`."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.cli.running import SMALL, run, run_json, small_log

STREAM_FIELDS = {
    "stream", "end_llsn", "ordered_end_llsn", "segments", "segment_bytes", "live_bytes",
    "dead_bytes", "entries", "live_entries", "memtable_bytes", "snapshot_index", "trim_llsn_end",
    "pinned_files", "delete_horizon", "dropped_deletes",
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tidelog.open(tmp_path / "log", options=SMALL) as log:
        log.put(b"k", b"old")
        log.put(b"k", b"new")
        log.put(b"k", b"stored", storage_id=7)
        log.put(b"\xff\n", b"\xfe\0")
        log.put(b"gone", b"x")
        log.delete(b"gone")
    return tmp_path / "log"


def test_the_newest_value_of_a_key_is_printed_as_it_is(data: Path) -> None:
    assert run("get", "-d", data, "k").stdout_bytes == b"new\n"
    assert run("get", "-d", data, "k", "--storage-id", 7).stdout_bytes == b"stored\n"
    assert run("get", "-d", data, "--base64", "/wo=").stdout_bytes == b"\xfe\0\n"


def test_the_record_of_a_key_has_all_fields_in_json(data: Path) -> None:
    found = run_json("get", "-d", data, "--base64", "/wo=")

    assert found.pop("timestamp_us") > 0
    assert found == {
        "topic": "default",
        "glsn": 4,
        "llsn": 4,
        "stream": 1,
        "kind": "put",
        "key_b64": "/wo=",
        "value_b64": "/gA=",
        "storage_id": 0,
        "write_version": 4,
        "blobs": [],
        "rewritten": False,
    }


def test_the_table_of_a_key_shows_nothing_that_a_terminal_obeys(data: Path) -> None:
    text = run("get", "-d", data, "--base64", "/wo=", "-o", "table").stdout

    assert "key            \\xff\\n\n" in text
    assert "value          \\xfe\\x00\n" in text
    assert "GLSN           4\n" in text


@pytest.mark.parametrize("key", ["missing", "gone"])
def test_a_key_without_a_value_is_not_found(data: Path, key: str) -> None:
    found = run("get", "-d", data, key, code=4)

    assert (found.stdout, found.stderr) == ("", f"tidelog: topic 'default' has no key '{key}'\n")


def test_a_key_that_is_not_base64_is_wrong_usage(data: Path) -> None:
    assert "not base64" in run("get", "-d", data, "--base64", "*", code=2).stderr


def test_an_empty_key_is_refused(data: Path) -> None:
    assert "at least one byte" in run("get", "-d", data, "", code=1).stderr


@pytest.mark.parametrize("make", ["nothing", "file", "directory"])
def test_where_there_is_no_log_nothing_is_found_and_nothing_is_made(
    tmp_path: Path, make: str
) -> None:
    place = tmp_path / "place"
    if make == "file":
        place.write_bytes(b"x")
    elif make == "directory":
        place.mkdir()

    for command in (("get", "k"), ("stats",), ("tail",), ("verify",), ("snapshot",)):
        assert run(*command, "-d", place, code=4).stderr.startswith("tidelog: ")

    assert place.exists() == (make != "nothing")
    assert make != "directory" or not list(place.iterdir())


def test_the_directory_may_come_from_the_environment(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_DATA", str(data))

    assert run("get", "k").stdout == "new\n"
    monkeypatch.delenv("TIDELOG_DATA")
    assert "TIDELOG_DATA" in run("get", "k", code=2).stderr


# -- topics ---------------------------------------------------------------------------------------


def test_a_topic_is_created_and_makes_the_log_if_need_be(tmp_path: Path) -> None:
    path = tmp_path / "new"

    made = run_json("topic", "create", "t", "-d", path, "--streams", 2, "--versions", "explicit")

    assert set(made) == {
        "topic", "versions", "high_watermark", "first_available", "streams", "key_streams",
        "delete_horizon", "dropped_deletes", "delete_mark",
    }  # fmt: skip
    assert (made["topic"], made["versions"], made["key_streams"]) == ("t", "explicit", 2)
    assert [set(stream) for stream in made["streams"]] == [STREAM_FIELDS] * 2
    assert run_json("topic", "describe", "t", "-d", path) == made


def test_topics_are_listed_by_name(data: Path) -> None:
    run("topic", "create", "a", "-d", data, "--streams", 2)

    assert run_json("topic", "list", "-d", data)["topics"] == [
        {
            "topic": "a",
            "versions": "log",
            "high_watermark": 0,
            "first_available": 1,
            "delete_horizon": 1,
            "dropped_deletes": 0,
            "delete_mark": 0,
            "streams": 2,
            "key_streams": 2,
        },
        {
            "topic": "default",
            "versions": "log",
            "high_watermark": 6,
            "first_available": 1,
            "delete_horizon": 1,
            "dropped_deletes": 0,
            "delete_mark": 0,
            "streams": 1,
            "key_streams": 1,
        },
    ]
    assert run("topic", "list", "-d", data).stdout.splitlines() == [
        "TOPIC    VERSIONS  STREAMS  FIRST  LAST  SEGMENT BYTES",
        "a        log             2      1     0            0 B",
        "default  log             1      1     6            0 B",
    ]


def test_a_topic_gets_more_streams_for_records_without_keys(data: Path) -> None:
    found = run_json("topic", "add-streams", "default", 2, "-d", data)

    assert [stream["stream"] for stream in found["streams"]] == [1, 2, 3]
    assert found["key_streams"] == 1
    assert "key streams  1" in run("topic", "describe", "default", "-d", data).stdout


def test_topics_that_exist_or_do_not_are_told_apart(data: Path) -> None:
    assert "already" in run("topic", "create", "default", "-d", data, code=1).stderr
    assert "no topic 'x'" in run("topic", "describe", "x", "-d", data, code=4).stderr
    run("topic", "add-streams", "x", 1, "-d", data, code=4)
    run("topic", "create", "bad\n", "-d", data, code=1)


def test_a_log_without_a_default_topic_can_be_looked_at(tmp_path: Path) -> None:
    run("topic", "create", "only", "-d", tmp_path / "log")

    assert len(run_json("stats", "-d", tmp_path / "log")["topics"]) == 1
    run("tail", "-d", tmp_path / "log", code=4)


def test_reading_changes_no_file(tmp_path: Path) -> None:
    data = tmp_path / "log"
    small_log(data)
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}

    for command in (
        ("get", "k"), ("tail",), ("stats",), ("topic", "list"), ("topic", "describe", "default"),
        ("compact", "status"), ("compact", "explain", "k"), ("trim", "--before", "2", "--dry-run"),
    ):  # fmt: skip
        run(*command, "-d", data, code=4 if "k" in command else 0)

    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
