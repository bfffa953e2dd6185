"""`tidelog blob`: BLOBs in and out of a log."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.cli.running import run, run_json, small_log, spawned
from tests.client.proxy import wait_until
from tests.client.served import Node, node
from tests.client.uploads import LONG
from tidelog.limits import BLOB_PART_BYTES


@pytest.fixture
def data(tmp_path: Path) -> Path:
    small_log(tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scan.bin"
    path.write_bytes(LONG)
    return path


def put(data: Path | str, source: Path) -> str:
    return run("blob", "put", source, "-d", data).stdout.strip()


def test_a_file_goes_in_and_comes_out(data: Path, file: Path, tmp_path: Path) -> None:
    blob = put(data, file)
    target = tmp_path / "copy.bin"
    run("blob", "get", blob, target, "-d", data)
    assert target.read_bytes() == LONG
    assert run("blob", "get", blob, "-d", data).stdout_bytes == LONG
    assert sorted(path.name for path in tmp_path.glob("*.bin*")) == ["copy.bin", "scan.bin"]


def test_the_standard_input_becomes_a_blob(data: Path) -> None:
    found = run_json("blob", "put", "-", "-d", data, stdin=LONG)
    assert (found["topic"], found["size"]) == ("default", len(LONG))
    assert run("blob", "get", found["blob"], "-d", data).stdout_bytes == LONG
    text = run("blob", "put", "-", "-d", data, "-o", "table", stdin=b"abc").stdout
    assert "size   3 B" in text


def test_blobs_are_listed_and_removed(data: Path, file: Path) -> None:
    assert run_json("blob", "ls", "-d", data) == {"topic": "default", "blobs": []}
    blobs = [put(data, file) for _ in range(3)]
    found = run_json("blob", "ls", "-d", data)["blobs"]
    assert [str(info["blob"]) for info in found] == blobs
    assert {(info["size"], info["is_complete"]) for info in found} == {(len(LONG), True)}
    lines = run("blob", "ls", "-d", data).stdout.splitlines()
    assert lines[0].split() == ["BLOB", "SIZE", "WRITTEN", "COMPLETE"]
    assert lines[1].split()[:3] == [blobs[0], "5.0", "MiB"]
    assert run("blob", "rm", *blobs[:2], "-d", data).stdout == "deleted 2 BLOBs of topic default\n"
    assert run_json("blob", "rm", blobs[2], "-d", data)["deleted"] == [int(blobs[2])]
    assert run_json("blob", "ls", "-d", data)["blobs"] == []


def test_collection_keeps_what_records_refer_to(data: Path, file: Path) -> None:
    kept, unused = put(data, file), put(data, file)
    line = json.dumps({"value": "with a scan", "blobs": [int(kept)]})
    run("append", "--jsonl", "-d", data, stdin=f'{{"value": "plain"}}\n{line}\n')
    assert run_json("blob", "collect", "-d", data)["deleted"] == 0
    done = run_json("blob", "collect", "-d", data, "--older-than", "0")
    assert (done["kept"], done["deleted"], done["bytes"]) == (1, 1, len(LONG))
    assert "BLOBs kept         1\n" in run("blob", "collect", "-d", data).stdout
    assert run("blob", "get", kept, "-d", data).stdout_bytes == LONG
    assert "no BLOB" in run("blob", "get", unused, "-d", data, code=4).stderr


def test_records_with_blobs_can_be_copied_by_tail_and_append(data: Path, file: Path) -> None:
    blob = int(put(data, file))
    with tidelog.open(data) as log:
        log.append(b"a", blobs=(blob,))
    lines = run("tail", "-d", data, "-o", "jsonl").stdout.splitlines()[-1:]
    run("append", "--jsonl", "-d", data, stdin="\n".join(lines))
    with tidelog.open(data) as log:
        assert [record.blobs for record in log.read()][-2:] == [(blob,), (blob,)]


def test_what_is_not_there_has_exit_code_4(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    for arguments in (("get", "7", target), ("get", "7"), ("rm", "7")):
        run("blob", *arguments, "-d", data, code=4)
    run("blob", "put", tmp_path / "missing", "-d", data, code=1)
    assert list(tmp_path.glob("copy*")) == []
    run("blob", "get", "seven", "-d", data, code=2)


def test_a_copy_of_a_damaged_blob_gets_no_name(data: Path, file: Path, tmp_path: Path) -> None:
    blob = put(data, file)
    with tidelog.open(data) as log:
        parts = log.topic("default.blobs.parts")
        [last] = [record for record in parts.read() if len(record.value) < BLOB_PART_BYTES]
        parts.put(last.key, last.value[:-1] + b"?")
    target = tmp_path / "copy"
    run("blob", "get", blob, target, "-d", data, code=3)
    assert list(tmp_path.glob("copy*")) == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path / "served") as running:
        yield running


def test_what_a_killed_upload_left_is_collected(served: Node) -> None:
    with (
        tidelog.connect(served.url) as log,
        spawned("blob", "put", "-", "-d", served.url) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(LONG[: 3 * BLOB_PART_BYTES])
        process.stdin.flush()
        wait_until(lambda: len(list(log.list_blobs())) == 1, "the upload has begun")
        parts = log.topic("default.blobs.parts")
        wait_until(lambda: parts.high_watermark == 3, "its parts are in the log")
        process.kill()
        process.wait()
        assert run_json("blob", "ls", "-d", served.url)["blobs"][0]["is_complete"] is False
        assert run_json("blob", "collect", "-d", served.url, "--older-than", "0")["torn"] == 1
        assert {parts.get(record.key) for record in parts.read()} == {None}
        assert list(log.list_blobs()) == []


def test_only_files_are_replaced(data: Path, file: Path, tmp_path: Path) -> None:
    blob = put(data, file)
    pipe, target, link = tmp_path / "pipe", tmp_path / "target", tmp_path / "link"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    small = run("blob", "put", "-", "-d", data, stdin=b"abc").stdout.strip()
    run("blob", "get", small, pipe, "-d", data)
    assert os.read(reading, 100) == b"abc"
    assert pipe.is_fifo()
    os.close(reading)
    link.symlink_to("target")
    for before in (False, True):
        assert target.exists() is before
        run("blob", "get", blob, link, "-d", data)
        assert link.is_symlink()
        assert target.read_bytes() == LONG
    assert "Is a directory" in run("blob", "get", blob, "", "-d", data, code=1).stderr


def test_no_other_file_is_touched(data: Path, file: Path, tmp_path: Path) -> None:
    blob, place = put(data, file), tmp_path / "place"
    place.mkdir()
    (place / "copy.partial").write_bytes(b"mine")
    run("blob", "get", blob, place / "copy", "-d", data)
    run("blob", "get", int(blob) + 1, place / "other", "-d", data, code=4)
    assert sorted(path.name for path in place.iterdir()) == ["copy", "copy.partial"]
    assert (place / "copy.partial").read_bytes() == b"mine"
