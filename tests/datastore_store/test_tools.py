"""Tools that only look work on the directory of a datastore; those that write refuse it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run, run_json
from tests.datastore_store.stores import append, delete, put, roll_and_flush
from tidelog.datastore.epoch_store import DATASTORE_TOPIC, EpochStore
from tidelog.embedded.options import Options
from tidelog.storage.os_vfs import OsVfs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Writes that other channels hide, a BLOB, and entries that were not recorded."""
    path = tmp_path / "data"
    store = EpochStore(OsVfs(), str(path), Options(wal_file_bytes=64 << 10, background=False))
    store.make_channels(2)
    with store.blobs.begin(300, 4) as writer:
        writer.write(0, b"blob")
        writer.finish()
    append(store, 0, 1, put("a", "hidden", 1), put("b", "shown", 2, blobs=(300,)))
    store.record(1)
    roll_and_flush(store)
    append(store, 1, 2, delete("a", 3), put("c", "shown", 4))
    store.record(2)
    store.set_boundary(4)
    roll_and_flush(store)
    append(store, 0, 3, put("d", "unrecorded", 5))
    store.flush(0)
    store.close()
    return path


def test_a_sound_datastore_verifies(data: Path) -> None:
    found = run_json("verify", "-d", data, "--deep")
    assert found["healthy"]


def test_a_blob_that_is_missing_is_found(data: Path) -> None:
    (data / "blobs" / "2c" / f"{300:016x}.blob").unlink()
    found = run_json("verify", "-d", data, "--deep", code=3)
    problems = [finding["problem"] for finding in found["findings"] if finding["problem"]]
    assert problems == ["BLOB 300 is missing, and 0 others"]


def test_entries_can_be_looked_at_in_their_order_and_only_recorded_ones(data: Path) -> None:
    shown = run("tail", "-d", data, "--topic", DATASTORE_TOPIC).stdout
    assert "c\tshown" in shown
    assert "unrecorded" not in shown


def test_what_writes_refuses_a_datastore(data: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*.segment")}
    for command in (("append",), ("snapshot",), ("topic", "create", "x")):
        result = run(*command, "-d", data, stdin=b"line\n", code=4)
        assert "holds a datastore" in result.stderr
    assert {path: path.read_bytes() for path in data.rglob("*.segment")} == before
