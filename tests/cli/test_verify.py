"""`tidelog verify`: finds damage in every kind of file, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.cli.running import (
    SMALL,
    flip,
    keyed_log,
    make_keyed,
    run,
    run_json,
    segments_of,
    small_log,
)
from tidelog.formats.batch import encode_values
from tidelog.formats.live_index import LiveIndex, decode_live_index, encode_live_index
from tidelog.formats.wal import FILE_HEADER_BYTES, decode_file_header, scan_file
from tidelog.interface.appends import Part


@pytest.fixture
def data(tmp_path: Path) -> Path:
    keyed_log(tmp_path / "log")
    return tmp_path / "log"


def problems(found: dict[str, Any]) -> dict[str, str]:
    """Kind of each finding that is a problem → the problem."""
    return {f["kind"]: f["problem"] for f in found["findings"] if f["problem"]}


def newest_wal(data: Path) -> Path:
    return sorted((data / "wal").glob("*.wal"))[-1]


@pytest.mark.parametrize("deep", [(), ("--deep",)])
def test_a_sound_log_is_called_sound(data: Path, deep: tuple[str, ...]) -> None:
    found = run_json("verify", "-d", data, *deep)

    assert set(found) == {"path", "healthy", "findings"}
    assert found["healthy"] is True
    for finding in found["findings"]:
        assert set(finding) == {"kind", "name", "entries", "bytes", "problem", "note"}
    kinds = {finding["kind"] for finding in found["findings"]}
    assert kinds >= {"manifest", "wal", "segment", "snapshot", "live", "log"}
    assert ("topic" in kinds) == bool(deep)
    named = {f["name"] for f in found["findings"] if f["kind"] not in ("log", "topic", "stream")}
    files = {str(p.relative_to(data)) for p in data.rglob("*") if p.is_file()}
    assert named == files - {"LOCK"}


def test_a_sound_log_gets_one_line_unless_all_is_asked_for(data: Path) -> None:
    assert run("verify", "-d", data).stdout.startswith("sound: ")
    assert run("verify", "-d", data, "--all").stdout.count("\n") > 5


@pytest.mark.parametrize("kind", ["manifest", "wal", "segment", "snapshot", "live"])
@pytest.mark.parametrize("place", ["begin", "middle"])
def test_a_flipped_bit_is_found_and_named_by_file(data: Path, kind: str, place: str) -> None:
    path = {
        "manifest": data / "manifest",
        "wal": newest_wal(data),
        "segment": segments_of(data)[0],
        "snapshot": next(data.glob("streams/*/*.snapshot")),
        "live": next(data.glob("streams/*/*.live")),
    }[kind]
    middle = FILE_HEADER_BYTES + 60 if kind == "wal" else path.stat().st_size // 2
    flip(path, middle if place == "middle" else 9)
    before = path.read_bytes()

    found = run_json("verify", "-d", data, code=3)

    assert found["healthy"] is False
    assert kind in problems(found)
    (finding,) = [f for f in found["findings"] if f["kind"] == kind and f["problem"]]
    assert finding["name"] == str(path.relative_to(data))
    table = run("verify", "-d", data, code=3)
    assert path.name in table.stdout
    assert f"in {data}" in table.stderr
    assert path.read_bytes() == before


def test_damage_in_one_file_hides_none_in_another(data: Path) -> None:
    (data / "manifest").write_bytes(b"nonsense")
    flip(newest_wal(data), FILE_HEADER_BYTES + 60)
    flip(segments_of(data)[0], 200)
    flip(segments_of(data)[-1], -3)

    found = run_json("verify", "-d", data, code=3)

    broken = [f["name"] for f in found["findings"] if f["problem"] and f["kind"] != "log"]
    assert len(broken) == 4
    assert problems(found)["log"].startswith("it cannot be opened")


@pytest.mark.parametrize("which", ["manifest", "wal", "segment", "stream"])
def test_what_is_missing_is_found(data: Path, which: str) -> None:
    if which == "manifest":
        (data / "manifest").unlink()
    elif which == "wal":
        for path in (data / "wal").iterdir():
            path.unlink()
    elif which == "segment":
        segments_of(data)[-1].unlink()
    else:
        (data / "streams").rename(data / "elsewhere")

    assert not run_json("verify", "-d", data, code=3)["healthy"]


def test_a_file_of_another_log_is_found(data: Path, tmp_path: Path) -> None:
    make_keyed(tmp_path / "other")
    segments_of(data)[0].write_bytes(segments_of(tmp_path / "other")[0].read_bytes())

    assert "belongs to another log" in problems(run_json("verify", "-d", data, code=3))["segment"]


def test_a_segment_under_a_wrong_name_is_found(data: Path) -> None:
    first, second = segments_of(data)[:2]
    second.write_bytes(first.read_bytes())

    assert "says that it is segment" in problems(run_json("verify", "-d", data, code=3))["segment"]


def test_a_write_that_was_cut_short_is_no_damage(tmp_path: Path) -> None:
    data = tmp_path / "log"
    with tidelog.open(data, options=SMALL) as log:
        log.append(b"one")
        crashed = {p: p.read_bytes() for p in data.rglob("*") if p.is_file()}
        log.append(b"two")
        log.append(b"three")
        wal = newest_wal(data)
        frames = scan_file(wal.read_bytes(), decode_file_header(wal.read_bytes())).frames
        torn = bytearray(crashed[wal])
        begin, end = frames[1].offset, frames[1].end_offset - 8
        torn[begin:end] = wal.read_bytes()[begin:end]
    for path, content in crashed.items():
        path.write_bytes(content)
    wal.write_bytes(torn)

    found = run_json("verify", "-d", data)

    (finding,) = [f for f in found["findings"] if f["kind"] == "wal"]
    assert (finding["note"], finding["entries"]) == ("ends in a write that was cut short", 1)


def test_a_lost_frame_that_a_snapshot_has_seen_is_damage(tmp_path: Path) -> None:
    data = tmp_path / "log"
    small_log(data, 1)
    manifest = (data / "manifest").read_bytes()
    with tidelog.open(data, options=SMALL) as log:
        log.put(b"k", b"acknowledged")
        log.snapshot()
    (data / "manifest").write_bytes(manifest)  # As if the process had died.
    wal = newest_wal(data)
    content = bytearray(wal.read_bytes())
    last = scan_file(content, decode_file_header(content)).frames[-1]
    content[last.offset : last.end_offset] = bytes(last.end_offset - last.offset)
    wal.write_bytes(content)

    found = problems(run_json("verify", "-d", data, code=3))

    assert "the WAL lost frames that were durable" in found["log"]
    assert "lost frames" in run("get", "k", "-d", data, code=3).stderr


def test_what_an_interruption_left_behind_is_noted_and_left_alone(data: Path) -> None:
    stream = segments_of(data)[0].parent
    left = [data / "wal" / "x.spare.tmp", stream / "1-2.compacting", stream / "stranger"]
    for path in left:
        path.write_bytes(b"x")

    found = run_json("verify", "-d", data)

    notes = {f["name"].rsplit("/")[-1]: f["note"] for f in found["findings"]}
    assert "interrupted write" in notes["x.spare.tmp"]
    assert "interrupted compaction" in notes["1-2.compacting"]
    assert notes["stranger"] == "not a file of the log"
    assert all(path.exists() for path in left)


def test_only_a_deep_look_compares_live_indexes_with_the_entries(data: Path) -> None:
    path = next(data.glob("streams/*/*.live"))
    found = decode_live_index(path.read_bytes())
    stored = {
        item["llsn"]
        for segment in segments_of(data)
        for item in run_json("dump", "segment", segment, "--entries", "--limit", 0)["items"]
    }
    wrong = found.live.copy()
    lost = wrong.max()
    wrong.remove(lost)
    wrong.add(min(stored - set(found.live)))  # A dead entry instead, so that the count fits.
    path.write_bytes(encode_live_index(LiveIndex(found.term, found.index, wrong)))

    assert run_json("verify", "-d", data)["healthy"] is True
    deep = problems(run_json("verify", "-d", data, "--deep", code=3))
    assert deep == {"stream": f"LLSN {lost} is live, but the live indexes lack it"}


def test_a_topic_is_read_in_order_when_looked_at_deeply(tmp_path: Path) -> None:
    data = tmp_path / "log"
    small_log(data, 7)

    found = run_json("verify", "-d", data, "--deep")

    (topic,) = [f for f in found["findings"] if f["kind"] == "topic"]
    assert (topic["name"], topic["entries"], topic["note"]) == ("default", 7, "read in order")


def staged_log(data: Path) -> tidelog.Log:
    """A log whose WAL refers to one stage file, and a stage in another."""
    log = tidelog.open(str(data))
    body = encode_values([bytes(300_000)], timestamp_us=1)
    published, _ = (log.stage([Part(log.streams[0], body)]) for _ in range(2))
    log.publish("writer", 1, [published])
    return log


def test_stage_files_are_checked_with_what_refers_to_them(tmp_path: Path) -> None:
    data = tmp_path / "log"
    staged_log(data).close()
    found = run_json("verify", "-d", data)
    assert found["healthy"] is True
    stages = [f for f in found["findings"] if f["kind"] == "stage"]
    assert [f["entries"] for f in stages] == [1, 1]
    records = run_json("dump", "wal", newest_wal(data))["items"]
    (staged,) = [item for item in records if item["type"] == "staged"]
    assert staged["content"] == "1 entries, their columns in stage file 1 at offset 88"

    first, second = sorted((data / "stages").iterdir())
    flip(second, 1000)
    assert "checksum" in problems(run_json("verify", "-d", data, code=3))["stage"]
    second.rename(second.with_name("0000000000000007.stage"))
    flip(first, 1000)
    found = problems(run_json("verify", "-d", data, code=3))
    assert set(found) == {"stage", "log"}


def test_a_stage_file_that_was_never_named_is_no_problem(tmp_path: Path) -> None:
    """A stop may leave one half written: the log does not know of it, and removes it."""
    data = tmp_path / "log"
    staged_log(data).close()
    half = data / "stages" / "0000000000000009.stage"
    half.write_bytes(b"half a batch")
    found = run_json("verify", "-d", data)
    assert found["healthy"] is True
    assert [f["note"] for f in found["findings"] if f["name"] == f"stages/{half.name}"] == [
        "nothing refers to it; the next opening removes it"
    ]
    tidelog.open(str(data)).close()
    assert not half.exists()


def test_a_name_of_digits_that_are_no_ascii_is_no_number(data: Path) -> None:
    (data / "streams" / "²").mkdir()
    (data / "wal" / "²².wal").write_bytes(b"")
    names = {found["name"]: found["note"] for found in run_json("verify", "-d", data)["findings"]}
    assert names["wal/²².wal"] == "not a file of the log"
