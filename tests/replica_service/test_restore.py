"""`tidelog restore`: all that was group-committed, checked, or nothing at all."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.cli.running import flip, run, run_json
from tests.replica_service.raw_master import RawMaster
from tests.replica_service.replica_process import ReplicaProcess
from tidelog.cli.restore_files import Copying, restore
from tidelog.cli.session import Marks, marks_of
from tidelog.core.session.messages import Ack
from tidelog.datastore.epoch_store import EpochStore
from tidelog.embedded.options import Options
from tidelog.errors import BadOption
from tidelog.formats.channel_batch import encode_channel_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.limits import KIB
from tidelog.storage.os_vfs import OsFile, OsVfs

SMALL = Options(background=False, wal_file_bytes=64 * KIB)
ROUNDS = 12
KEYS = 50


class Filling:
    """A datastore to restore: two channels, an epoch in each round, one BLOB for each of them."""

    def __init__(self, path: Path) -> None:
        self.store = EpochStore(OsVfs(), str(path), SMALL)
        self.store.make_channels(2)
        self.blobs: list[int] = []

    def round(self, epoch: int) -> None:
        blob = self.store.blobs.next_id()
        with self.store.blobs.begin(blob, 4) as writer:
            writer.write(0, b"blob")
            writer.finish()
        self.blobs.append(blob)
        for channel in range(2):
            self.append(channel, epoch, blobs=(blob,))

    def append(self, channel: int, epoch: int, *, blobs: tuple[int, ...] = ()) -> None:
        entries = [
            Entry(Kind.PUT, b"%d" % epoch * 100, b"%d-%d" % (channel, key),
                  write_version=epoch << 64 | key, blobs=blobs)
            for key in range(KEYS)
        ]  # fmt: skip
        end = self.store.end_llsn(channel)
        batch = encode_channel_batch(channel, epoch, end, entries)
        self.store.append(channel, epoch, [batch])
        self.store.flush(channel)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    filling = Filling(path)
    for epoch in range(1, ROUNDS + 1):
        filling.round(epoch)
        filling.store.record(epoch)
        if epoch == ROUNDS // 2:
            filling.store.set_boundary(epoch << 64)
            filling.store.compact(full=True)
    filling.append(0, ROUNDS + 1)  # Flushed, and never recorded.
    filling.store.close()
    return path


def contents(path: Path) -> dict[tuple[int, bytes], Any]:
    store = EpochStore(OsVfs(), str(path), SMALL, create=False)
    try:
        return {(e.storage_id, e.key): (e.value, e.write_version) for e in store.entries()}
    finally:
        store.close()


def marks_but_of_the_lock(path: Path) -> Marks:
    return tuple(mark for mark in marks_of(str(path)) if not mark[0].endswith("/LOCK"))


def nothing_is_left(tmp_path: Path, *but: str) -> bool:
    """Neither a target nor anything of the work on it."""
    return sorted(path.name for path in tmp_path.iterdir()) == sorted(("source", *but))


def test_the_copy_holds_what_was_committed_and_nothing_else(source: Path, tmp_path: Path) -> None:
    assert list(source.rglob("*.segment")), "compaction has made segments"
    before = marks_but_of_the_lock(source)
    found = run_json("restore", "--from", source, "--to", tmp_path / "new")
    assert marks_but_of_the_lock(source) == before
    assert found["epoch"] == ROUNDS
    assert found["entries"] == 2 * KEYS
    assert found["blobs"] == 1
    assert found["channels"] == 2
    assert found["boundary"] == ROUNDS // 2 << 64
    copied = contents(tmp_path / "new")
    assert copied == contents(source)
    assert {version >> 64 for _, version in copied.values()} == {ROUNDS}
    assert nothing_is_left(tmp_path, "new")


def test_people_are_told_what_was_restored(source: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    text = run("restore", "--from", source, "--to", tmp_path / "new").stdout
    assert text.startswith(f"restored epoch {ROUNDS} to {tmp_path / 'new'}: 100 entries, 1 BLOBs (")


def test_what_was_flushed_but_not_committed_is_not_restored(tmp_path: Path) -> None:
    """The master dies between the replica's flush and the group commit, then the replica."""
    with ReplicaProcess(tmp_path / "source") as replica, RawMaster(replica) as master:
        assert isinstance(master.write(0, 1, b"old", b"both"), Ack)
        assert isinstance(master.commit(1), Ack)
        assert isinstance(master.write(0, 2, b"new", b"both"), Ack)
        assert isinstance(master.write(1, 2, b"new too"), Ack)
        replica.kill()
    found = run_json("restore", "--from", tmp_path / "source", "--to", tmp_path / "new")
    assert (found["epoch"], found["entries"]) == (1, 2)
    restored = contents(tmp_path / "new")
    assert {key: value for (_, key), (value, _) in restored.items()} == {
        b"old": b"1",
        b"both": b"1",
    }


def test_a_target_that_is_not_empty_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "precious").write_text("data")
    assert "not empty" in run("restore", "--from", source, "--to", tmp_path / "new", code=1).stderr
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["precious"]
    (tmp_path / "file").touch()
    run("restore", "--from", source, "--to", tmp_path / "file", code=1)
    run("restore", "--from", source, "--to", source / "inside", code=1)
    run("restore", "--from", source, "--to", tmp_path / "none" / "new", code=1)
    assert nothing_is_left(tmp_path, "new", "file")


def test_a_mount_point_is_refused_before_anything_is_copied(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")
    (tmp_path / "volume").mkdir()
    copied: list[int] = []
    with pytest.raises(BadOption, match="mount point"):
        restore(str(source), str(tmp_path / "volume"), copied.append)
    assert not copied
    restore(str(source), str(tmp_path / "volume" / "new"), copied.append)
    assert copied


def test_a_source_in_use_is_refused(source: Path, tmp_path: Path) -> None:
    store = EpochStore(OsVfs(), str(source), SMALL, create=False)
    try:
        text = run("restore", "--from", source, "--to", tmp_path / "new", code=6).stderr
    finally:
        store.close()
    assert "open in another process" in text
    assert nothing_is_left(tmp_path)


def test_a_source_that_is_no_datastore_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with tidelog.open(tmp_path / "log", options=SMALL) as log:
        log.append(b"x")
    for name in ("none", "empty", "log"):
        text = run("restore", "--from", tmp_path / name, "--to", tmp_path / "new", code=4).stderr
        assert "no datastore" in text
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("pattern", ["manifest*", "wal/*.wal", "streams/*/*.segment"])
def test_damage_is_told_and_nothing_is_made(source: Path, tmp_path: Path, pattern: str) -> None:
    damaged = max(source.glob(pattern), key=lambda path: path.stat().st_size)
    flip(damaged, damaged.stat().st_size // 2 if "wal" not in pattern else 200)
    text = run("restore", "--from", source, "--to", tmp_path / "new", code=3).stderr
    assert text.startswith("tidelog: ")
    assert nothing_is_left(tmp_path)


def test_a_blob_that_is_missing_is_told(source: Path, tmp_path: Path) -> None:
    newest = max(source.glob("blobs/*/*.blob"))
    newest.unlink()
    text = run("restore", "--from", source, "--to", tmp_path / "new", code=3).stderr
    assert f"BLOB {int(newest.stem, 16)}" in text
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize("place", [0, -1])
def test_a_blob_that_is_damaged_is_told(source: Path, tmp_path: Path, place: int) -> None:
    newest = max(source.glob("blobs/*/*.blob"))
    flip(newest, place % newest.stat().st_size)
    text = run("restore", "--from", source, "--to", tmp_path / "new", code=3).stderr
    assert f"BLOB {int(newest.stem, 16)}" in text
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize("call", ["write_at", "sync"])
def test_a_copy_that_fails_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    calls = 0
    real = getattr(OsFile, call)

    def failing(file: OsFile, *args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, *args)

    monkeypatch.setattr(OsFile, call, failing)
    assert "No space" in run("restore", "--from", source, "--to", tmp_path / "new", code=1).stderr
    assert nothing_is_left(tmp_path)


def test_the_work_of_a_restore_that_was_killed_is_told(source: Path, tmp_path: Path) -> None:
    (tmp_path / ".new.restoring").mkdir()
    text = run("restore", "--from", source, "--to", tmp_path / "new", code=1).stderr
    assert str(tmp_path / ".new.restoring") in text
    assert nothing_is_left(tmp_path, ".new.restoring")


def test_names_of_one_file_stay_so_and_links_stay_links(tmp_path: Path) -> None:
    """An interrupted compaction leaves both behind, and tells by them how far it came."""
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "below").mkdir(parents=True)
    new.mkdir()
    (old / "first").write_text("data")
    (old / "below" / "second").hardlink_to(old / "first")
    (old / "link").symlink_to("first")
    (old / "left.tmp").write_text("of an interrupted write")
    Copying(lambda _: None).copy_directory(str(old), str(new))
    assert (new / "below" / "second").samefile(new / "first")
    assert not (new / "first").samefile(old / "first")
    assert (new / "link").readlink() == Path("first")
    assert not (new / "left.tmp").exists()


def test_a_directory_that_cannot_be_written_to_can_be_restored_from(
    source: Path, tmp_path: Path
) -> None:
    (source / "LOCK").unlink()
    run("restore", "--from", source, "--to", tmp_path / "new")
    assert not (source / "LOCK").exists()
    assert contents(tmp_path / "new")


def test_a_copy_is_not_tied_to_its_source(source: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (source / "blobs").rename(elsewhere)
    (source / "blobs").symlink_to("../elsewhere")
    shown = run("restore", "--from", source, "--to", tmp_path / "target", code=1).stderr
    assert "leads to ../elsewhere" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "source"]
