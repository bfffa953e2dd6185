"""`tidelog dump`: what single files hold, and where damaged ones break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.cli.running import (
    ENTRIES,
    KEYS,
    ROUNDS,
    SMALL,
    flip,
    keyed_log,
    run,
    run_json,
    segments_of,
)
from tidelog.formats.wal import FILE_HEADER_BYTES, decode_file_header, scan_file


@pytest.fixture
def data(tmp_path: Path) -> Path:
    keyed_log(tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def wal(tmp_path: Path) -> Path:
    """A WAL file with every type of record: put, delete, trim, boundary."""
    path = tmp_path / "small"
    with tidelog.open(path, options=SMALL, versions="explicit") as log:
        log.append(b"plain", producer="p", sequence=4)
        log.put(b"k", b"v", write_version=1)
        log.delete(b"k", write_version=2)
        log.set_gc_boundary(2)
        log.trim(2)
    return path / "wal" / f"{1:016d}.wal"


def test_the_records_of_a_wal_file_are_shown(wal: Path) -> None:
    found = run_json("dump", "wal", wal)

    assert set(found) == {"file", "kind", "summary", "items", "truncated", "problem"}
    assert (found["kind"], found["problem"], found["truncated"]) == ("wal", None, False)
    assert found["summary"]["verdict"] == "clean"
    assert found["summary"]["frames"] == 5
    assert [item["type"] for item in found["items"]] == [
        "batch", "cut", "batch", "cut", "batch", "cut", "boundary", "trim"
    ]  # fmt: skip
    texts = [item["content"] for item in found["items"]]
    assert texts[0].startswith("1 entries, LLSN 1..1, producer ")
    assert texts[0].endswith(" sequence 4")
    assert texts[1] == "version 1; stream 1: 1 from LLSN 1 at GLSN 1"
    assert texts[6:] == ["write version 2", "topic 1 before GLSN 2, LLSN 2"]


def test_the_entries_of_a_wal_file_are_shown(wal: Path) -> None:
    items = run_json("dump", "wal", wal, "--entries")["items"]

    shown = [(i["sequence"], i["llsn"], i["kind"], i["key"], i["value"]) for i in items]
    assert shown == [
        (1, 1, "append", "", "plain"),
        (2, 2, "put", "k", "v"),
        (3, 3, "delete", "k", ""),
    ]
    assert [item["write_version"] for item in items] == [None, 1, 2]


def test_a_limit_cuts_the_list_and_says_so(wal: Path) -> None:
    found = run_json("dump", "wal", wal, "--limit", 3)

    assert (len(found["items"]), found["truncated"]) == (3, True)
    assert "more than 3: see --limit" in run("dump", "wal", wal, "--limit", 3).stdout
    everything = run_json("dump", "wal", wal, "--limit", 0)
    assert (len(everything["items"]), everything["truncated"]) == (8, False)


def second_frame(wal: Path) -> int:
    data = wal.read_bytes()
    return scan_file(data, decode_file_header(data)).frames[1].offset


def test_a_damaged_wal_file_is_shown_up_to_where_it_breaks(wal: Path) -> None:
    offset = second_frame(wal)
    flip(wal, offset + 50)

    found = run_json("dump", "wal", wal, code=3)

    assert [item["type"] for item in found["items"]] == ["batch", "cut"]
    assert found["problem"].startswith(f"offset {offset}: ")
    table = run("dump", "wal", wal, code=3)
    assert "1 entries, LLSN 1..1" in table.stdout
    assert f"tidelog: {wal}: offset {offset}: " in table.stderr


def test_a_wal_file_without_its_header_still_shows_its_frames(wal: Path) -> None:
    flip(wal, 20)

    found = run_json("dump", "wal", wal, code=3)

    assert found["problem"].startswith("offset 0: WAL file header: checksum")
    assert len(found["items"]) == 8


def test_a_wal_file_that_is_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"x" * 500, bytes(FILE_HEADER_BYTES)):
        path.write_bytes(content)
        found = run_json("dump", "wal", path, code=3)
        assert found["items"] == []
        assert found["problem"].startswith("offset 0: ")


def test_the_batches_of_a_segment_are_shown(data: Path) -> None:
    path = segments_of(data)[2]

    found = run_json("dump", "segment", path)

    summary, items = found["summary"], found["items"]
    assert summary["file_bytes"] == path.stat().st_size
    assert summary["batches"] == len(items)
    assert sum(item["entries"] for item in items) == summary["entries"]
    assert items[0]["offset"] == 64
    assert items[0]["first_llsn"] == summary["first_llsn"] == items[0]["glsn"]
    entries = run_json("dump", "segment", path, "--entries", "--limit", 0)["items"]
    assert len(entries) == summary["entries"]
    assert entries[0]["key"].startswith("k")


def test_a_damaged_batch_hides_no_other(data: Path) -> None:
    path = segments_of(data)[2]
    sound = run_json("dump", "segment", path)["items"]
    assert len(sound) > 2
    flip(path, sound[1]["offset"] + 100)

    found = run_json("dump", "segment", path, code=3)

    assert found["problem"].startswith(f"offset {sound[1]['offset']}: ")
    assert [item for item in found["items"] if "problem" not in item] == [sound[0], *sound[2:]]


def test_a_segment_without_its_end_is_walked_from_its_begin(data: Path) -> None:
    path = segments_of(data)[2]
    sound = run_json("dump", "segment", path)["items"]
    cut = sound[2]["offset"] + 20
    path.write_bytes(path.read_bytes()[:cut])

    found = run_json("dump", "segment", path, code=3)

    assert "segment trailer" in found["problem"]
    assert f"can be read up to offset {sound[2]['offset']}" in found["problem"]
    assert [item["first_llsn"] for item in found["items"]] == [
        item["first_llsn"] for item in sound[:2]
    ]
    cut_short = run_json("dump", "segment", path, "--limit", 1, code=3)
    assert (len(cut_short["items"]), cut_short["truncated"]) == (1, True)


def test_a_segment_that_is_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"x" * 500):
        path.write_bytes(content)
        assert run_json("dump", "segment", path, code=3)["items"] == []


def summary_of(kind: str, path: Path) -> dict[str, Any]:
    found = run_json("dump", kind, path)
    assert found["problem"] is None
    summary = found["summary"]
    assert isinstance(summary, dict)
    return {**summary, "items": found["items"]}


def test_snapshot_live_indexes_and_manifest_are_shown(data: Path) -> None:
    snapshot = summary_of("snapshot", next(data.glob("streams/*/*.snapshot")))
    assert (snapshot["index"], snapshot["live_entries"]) == (ENTRIES, KEYS + ROUNDS)
    assert (snapshot["high_watermark"], snapshot["llsn_end"]) == (ENTRIES, ENTRIES + 1)

    live = summary_of("live", next(data.glob("streams/*/*.live")))
    assert live["live_entries"] == KEYS + ROUNDS
    assert live["dead_entries"] == ENTRIES - KEYS - ROUNDS
    assert live["items"][0] == {"begin": KEYS + 1, "end": KEYS + 2}
    assert live["items"][-1] == {"begin": ENTRIES - KEYS - 1, "end": ENTRIES + 1}

    manifest = summary_of("manifest", data / "manifest")
    assert (manifest["topics"], manifest["streams"]) == (1, 1)
    assert manifest["items"][0]["topic"] == "default"
    assert manifest["items"][0]["high_watermark"] == ENTRIES


def test_ranges_of_live_entries_are_cut_by_the_limit(data: Path) -> None:
    path = next(data.glob("streams/*/*.live"))

    found = run_json("dump", "live", path, "--limit", 2)

    assert [item["begin"] for item in found["items"]] == [KEYS + 1, 2 * KEYS + 2]
    assert found["truncated"] is True


@pytest.mark.parametrize("kind", ["snapshot", "live", "manifest"])
def test_a_file_with_one_checksum_is_trusted_as_a_whole_or_not_at_all(
    data: Path, kind: str
) -> None:
    path = next(data.glob(f"streams/*/*.{kind}"), data / "manifest")
    flip(path, -1)

    found = run_json("dump", kind, path, code=3)

    assert "does not match its checksum" in found["problem"]
    assert found["summary"] == {"file_bytes": path.stat().st_size}
    assert found["items"] == []


@pytest.mark.parametrize("kind", ["wal", "segment", "snapshot", "live", "manifest"])
def test_a_file_that_is_not_there_is_not_found(tmp_path: Path, kind: str) -> None:
    assert "No such file" in run("dump", kind, tmp_path / "missing", code=4).stderr
    run("dump", kind, tmp_path, code=1)
