"""`tidelog trim`, `compact`, `snapshot`, `rewrite` and `stats`."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.cli.running import (
    ENTRIES,
    KEYS,
    NEWEST,
    SMALL,
    flip,
    keyed_log,
    run,
    run_json,
    segments_of,
    small_log,
    values,
)
from tidelog.storage import compaction


@pytest.fixture
def data(tmp_path: Path) -> Path:
    keyed_log(tmp_path / "log")
    return tmp_path / "log"


def long_log(path: Path) -> None:
    """Ten thousand records without keys, in several segments."""
    with tidelog.open(path, options=SMALL) as log:
        for _ in range(10):
            log.append_batch([b"x" * 30] * 1000)


def test_a_dry_trim_tells_what_a_trim_then_does(tmp_path: Path) -> None:
    data = tmp_path / "log"
    long_log(data)
    before = segments_of(data)

    planned = run_json("trim", "-d", data, "--before", 5001, "--dry-run")
    assert segments_of(data) == before
    done = run_json("trim", "-d", data, "--before", 5001)

    assert (planned.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert done == planned
    assert done["trimmed"] == 5000
    assert done["first_available"] == 5001
    assert done["segments"] == len(before) - len(segments_of(data)) > 0
    assert done["reclaimed_bytes"] > 0
    assert len(values(data)) == 5000


def test_trimming_twice_forgets_nothing_more(tmp_path: Path) -> None:
    data = tmp_path / "log"
    small_log(data, 5)
    run("trim", "-d", data, "--before", 4)

    text = run("trim", "-d", data, "--before", 2).stdout

    assert text.startswith("forgot 0 positions of topic default")
    assert text.endswith("the first available GLSN is 4\n")


def test_a_trim_beyond_the_end_is_refused_dry_or_not(tmp_path: Path) -> None:
    data = tmp_path / "log"
    small_log(data, 5)

    for more in ((), ("--dry-run",)):
        assert "last one is 5" in run("trim", "-d", data, "--before", 7, *more, code=4).stderr
    run("trim", "-d", data, "--before", 6)
    assert values(data) == []


def test_the_status_says_what_a_run_reclaims(data: Path) -> None:
    (stream,) = run_json("compact", "status", "-d", data)["streams"]
    assert set(stream) == {
        "stream", "segments", "entries", "live_entries", "segment_bytes", "live_bytes",
        "dead_bytes", "snapshot_index", "unsettled_entries", "delete_segments", "rewrite_groups",
        "waiting_segments", "reclaimable_bytes",
    }  # fmt: skip
    assert stream["segment_bytes"] == sum(path.stat().st_size for path in segments_of(data))
    assert stream["dead_bytes"] > stream["live_bytes"]
    assert stream["rewrite_groups"] == [[1, 2, 3, 4, 5, 6, 7]]
    assert stream["unsettled_entries"] == 0

    found = run_json("compact", "run", "-d", data)

    assert set(found) == {
        "topic", "full", "deleted_segments", "rewritten_segments", "waiting_segments",
        "reclaimed_bytes", "failures", "seconds",
    }  # fmt: skip
    size = sum(path.stat().st_size for path in segments_of(data))
    assert found["reclaimed_bytes"] == stream["segment_bytes"] - size > stream["dead_bytes"] // 2
    assert found["rewritten_segments"] == 7
    assert run_json("compact", "run", "-d", data, "--full")["full"] is True
    assert run_json("compact", "status", "-d", data)["streams"][0]["dead_bytes"] == 0
    for key in (0, 7, KEYS - 1):
        assert run("get", "-d", data, f"k{key}").stdout == NEWEST + "\n"


def test_a_run_says_what_waits_for_readers(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_encloses_others", lambda store, group: True)

    found = run_json("compact", "run", "-d", data)
    assert (found["rewritten_segments"], found["waiting_segments"]) == (0, 7)
    text = run("compact", "run", "-d", data).stdout
    assert "7 segments wait: somebody still reads a deleted one between them" in text

    monkeypatch.undo()
    assert run_json("compact", "run", "-d", data)["waiting_segments"] == 0
    assert "wait:" not in run("compact", "run", "-d", data).stdout


def test_the_status_hints_at_entries_after_the_snapshot(data: Path) -> None:
    run("append", "-d", data, stdin=b"a\nb\n")

    assert "2 entries came after the last snapshot" in run("compact", "status", "-d", data).stdout


def test_a_run_that_meets_damage_says_so_and_keeps_the_segment(data: Path) -> None:
    victim = segments_of(data)[2]
    flip(victim, 100)

    found = run("compact", "run", "-d", data, "--full", code=3)

    assert "stay as they are" in found.stderr
    assert victim.name in found.stderr
    assert victim.exists()


def test_it_is_explained_why_a_write_is_kept(data: Path) -> None:
    with tidelog.open(data, options=SMALL) as log:
        log.put(b"x", b"1")
        log.put(b"x", b"2")

    found = run_json("compact", "explain", "x", "-d", data)

    assert (found["topic"], found["key"], found["storage_id"]) == ("default", "x", 0)
    texts = [write["explanation"] for write in found["writes"]]
    assert f"is dead: LLSN {ENTRIES + 2} (version {ENTRIES + 2}) replaced it" in texts[0]
    assert "is live: it is the newest write" in texts[1]
    assert run("compact", "explain", "x", "-d", data).stdout.splitlines() == texts
    run("compact", "explain", "nobody", "-d", data, code=4)


def test_a_snapshot_counts_what_is_live(tmp_path: Path) -> None:
    data = tmp_path / "log"
    run("append", "-d", data, "-K:", stdin=b"a:1\nb:2\na:3\n")

    found = run_json("snapshot", "-d", data)

    assert found == {
        "topic": "default",
        "streams": [{"stream": 1, "snapshot_index": 3, "live_entries": 2}],
        "deleted_segments": 0,
    }
    assert "     1         3     2" in run("snapshot", "-d", data).stdout


def test_a_rewrite_moves_the_oldest_live_entries(data: Path) -> None:
    assert run_json("rewrite", "-d", data, "--entries-max", 3) == {"topic": "default", "copied": 3}

    copies = values(data, "--from", "-3", "--format", "%k %w")
    assert [line.split()[0] for line in copies] == [b"k0", b"k1", b"k2"]
    assert run("get", "-d", data, "k0").stdout == NEWEST + "\n"
    assert run("rewrite", "-d", data).stdout.startswith("copied ")


def test_the_figures_of_a_log_agree_with_its_files(data: Path) -> None:
    found = run_json("stats", "-d", data)

    assert set(found) == {"path", "log_id", "topics", "wal", "disk_bytes", "readers"}
    files = [path for path in data.rglob("*") if path.is_file()]
    assert found["path"] == str(data)
    assert found["wal"]["files"] == len(list((data / "wal").iterdir()))
    assert found["wal"]["bytes"] == sum(p.stat().st_size for p in (data / "wal").iterdir())
    assert sum(path.stat().st_size for path in files) == found["disk_bytes"]
    (topic,) = found["topics"]
    assert (topic["topic"], topic["high_watermark"]) == ("default", ENTRIES)
    text = run("stats", "-d", data).stdout
    assert f"topic default: GLSN 1..{ENTRIES}, versions log" in text
    assert found["log_id"] in text


def test_stats_tell_which_readers_must_start_anew(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "log", options=SMALL) as log:
        log.put(b"k", b"v")
        gone = log.delete(b"k").glsn
        for number in range(3):
            log.put(b"other %d" % number, b"")
            log.compact(full=True)

    (topic,) = run_json("stats", "-d", tmp_path / "log")["topics"]
    assert (topic["delete_horizon"], topic["dropped_deletes"]) == (gone + 1, 1)
    text = run("stats", "-d", tmp_path / "log").stdout
    assert f"readers that go on before GLSN {gone + 1} must start anew" in text
