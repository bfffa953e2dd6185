"""BLOBs: registered first, taken by entries or deleted with their pool."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.datastore.stores import commit, open_store, put
from tidelog.datastore import log_channel
from tidelog.datastore.blob_parts import parts_of
from tidelog.datastore.datastore import Datastore
from tidelog.errors import (
    BadEntry,
    BadOption,
    CorruptData,
    DiskFull,
    LogClosed,
    ReadOnly,
    StaleWrite,
    WrongState,
)
from tidelog.limits import BLOB_PART_BYTES, ENTRY_BLOBS_MAX
from tidelog.storage.blob_store import BlobStore, BlobWriter
from tidelog.storage.os_vfs import OsFile, OsVfs


def bytes_of(store: Datastore, blob: int) -> bytes:
    with store.open_blob(blob) as reader:
        return reader.read_at(0, reader.size)


def test_only_what_an_entry_took_outlives_its_pool(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path / "store")
    with store:
        store.switch_epoch(1)
        pool = store.blob_pool()
        taken, left = pool.register_data(b"taken"), pool.register_data(b"left")
        with channel.session():
            channel.add_entry(1, b"a", b"", 1, [taken])
        pool.release()
        pool.release()
        commit(store, 1)
        store.compact(full=True)
        assert bytes_of(store, taken) == b"taken"
        with pytest.raises(BadEntry, match="does not exist"):
            store.open_blob(left)
    store, _ = open_store(tmp_path / "store")
    with store:
        found = store.get(1, b"a")
        assert found is not None
        assert found.blobs == (taken,)
        assert bytes_of(store, taken) == b"taken"


def test_a_released_pool_takes_nothing(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "store")
    with store:
        with store.blob_pool() as pool:
            blob = pool.register_data(b"x")
        with pytest.raises(WrongState, match="blob_pool"):
            pool.register_data(b"y")
        with pytest.raises(WrongState, match="blob_pool"):
            pool.register_file(tmp_path / "file")
        with pytest.raises(WrongState, match="blob_pool"):
            pool.duplicate(blob)


@pytest.mark.parametrize("size", [0, 1, BLOB_PART_BYTES, 2 * BLOB_PART_BYTES + 1])
@pytest.mark.parametrize("temporary", [True, False])
def test_a_file_becomes_a_blob(tmp_path: Path, size: int, temporary: bool) -> None:
    path = tmp_path / "file"
    data = bytes(range(256)) * (size // 256 + 1)
    path.write_bytes(data[:size])
    store, _ = open_store(tmp_path / "store")
    with store, store.blob_pool() as pool:
        blob = pool.register_file(path, temporary=temporary)
        assert path.exists() != temporary
        assert bytes_of(store, blob) == data[:size]


def test_a_duplicate_is_a_blob_of_its_own(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "store")
    with store, store.blob_pool() as pool:
        with store.blob_pool() as other:
            source = other.register_data(b"shared")
            copy = pool.duplicate(source)
        assert copy != source
        assert bytes_of(store, copy) == b"shared"
        with pytest.raises(BadEntry):
            pool.duplicate(source)


def test_what_entries_refer_to_piles_up_no_more_than_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a log session might become too large for a batch, and could not end."""
    monkeypatch.setattr(log_channel, "SESSION_BUFFER_BYTES", 16 << 10)
    store, [channel] = open_store(tmp_path / "store")
    with store, store.blob_pool() as pool:
        store.switch_epoch(1)
        blob = pool.register_data(b"x")
        kept = store._run().store
        with channel.session():
            channel.add_entry(1, b"a", b"", 1, [blob] * ENTRY_BLOBS_MAX)
            assert kept.end_llsn(channel.number) == 1
            channel.add_entry(1, b"b", b"", 1, [blob] * ENTRY_BLOBS_MAX)
            assert kept.end_llsn(channel.number) == 3


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_is_no_file_is_refused_and_the_store_goes_on(tmp_path: Path, name: str) -> None:
    store, [channel] = open_store(tmp_path / "store")
    with store, store.blob_pool() as pool:
        for temporary in (True, False):
            with pytest.raises(BadOption, match="no file"):
                pool.register_file(tmp_path / name, temporary=temporary)
        store.switch_epoch(1)
        put(channel, b"a", b"", 1)
        commit(store, 1)


def test_a_blob_of_an_aborted_session_is_free_again(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path / "store")
    with store:
        store.switch_epoch(1)
        pool = store.blob_pool()
        aborted, again = pool.register_data(b"aborted"), pool.register_data(b"again")
        channel.begin_session()
        channel.add_entry(1, b"a", b"", 1, [aborted, again])
        channel.abort_session()
        store.compact(full=True)
        with channel.session():
            channel.add_entry(1, b"a", b"", 1, [again])
        pool.release()
        commit(store, 1)
        assert bytes_of(store, again) == b"again"
        with pytest.raises(BadEntry):
            store.open_blob(aborted)


def test_a_blob_that_is_not_needed_any_more_goes_with_compaction(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path / "store")
    with store:
        blobs: list[int] = []
        store.switch_epoch(1)
        for epoch in (1, 2):
            with store.blob_pool() as pool, channel.session():
                blobs.append(pool.register_data(b"%d" % epoch))
                channel.add_entry(1, b"a", b"", epoch, blobs[-1:])
            commit(store, epoch)
        store.set_gc_boundary(2)
        store.compact(full=True)
        assert bytes_of(store, blobs[1]) == b"2"
        with pytest.raises(BadEntry):
            store.open_blob(blobs[0])


def test_a_pool_that_outlives_its_datastore_touches_nothing(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "store")
    pool = store.blob_pool()
    blob = pool.register_data(b"x")
    store.close()
    with pytest.raises(LogClosed):
        pool.register_data(b"y")
    store, _ = open_store(tmp_path / "store")
    with store:
        pool.release()
        assert bytes_of(store, blob) == b"x"
        store.compact(full=True)
        with pytest.raises(BadEntry):
            store.open_blob(blob)


def test_what_is_registered_during_close_replaces_no_blob_of_who_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = open_store(tmp_path / "store")
    pool = store.blob_pool()
    opened: list[tuple[Datastore, int]] = []
    begin = BlobStore.begin

    def late(blobs: BlobStore, blob: int, size: int) -> BlobWriter:
        monkeypatch.undo()
        store.close()
        other, _ = open_store(tmp_path / "store")
        opened.append((other, other.blob_pool().register_data(b"theirs")))
        return begin(blobs, blob, size)

    monkeypatch.setattr(BlobStore, "begin", late)
    with pytest.raises(LogClosed):
        pool.register_data(b"mine")
    [(other, blob)] = opened
    with other:
        assert bytes_of(other, blob) == b"theirs"


def test_a_damaged_blob_is_not_sent_to_its_last_byte(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "store")
    with store:
        blob = store.blob_pool().register_data(bytes(2 * BLOB_PART_BYTES + 5))
        file = tmp_path / "store" / "blobs" / f"{blob:02x}" / f"{blob:016x}.blob"
        damaged = bytearray(file.read_bytes())
        damaged[BLOB_PART_BYTES] ^= 1
        file.write_bytes(damaged)
        sent: list[int] = []
        with store.open_blob(blob) as reader, pytest.raises(CorruptData, match=f"BLOB {blob}"):
            sent.extend(len(part) for _, part in parts_of(reader))
        assert sent == [BLOB_PART_BYTES, BLOB_PART_BYTES]


def test_an_old_blob_stays_while_a_log_session_refers_to_it(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path / "store")
    with store:
        store.switch_epoch(1)
        with store.blob_pool() as pool, channel.session():
            blob = pool.register_data(b"old")
            channel.add_entry(1, b"a", b"", 1, [blob])
        commit(store, 1)
        put(channel, b"a", b"", 2)
        commit(store, 2)
        store.set_gc_boundary(2)
        with channel.session():
            channel.add_entry(1, b"b", b"", 3, [blob])
            store.compact(full=True)
        commit(store, 3)
        assert bytes_of(store, blob) == b"old"


def test_a_blob_whose_pool_went_before_its_log_session_was_aborted_is_garbage(
    tmp_path: Path,
) -> None:
    store, [channel] = open_store(tmp_path / "store")
    with store:
        store.switch_epoch(1)
        channel.begin_session()
        with store.blob_pool() as pool:
            blob = pool.register_data(b"x")
            channel.add_entry(1, b"a", b"", 1, [blob])
        store.compact(full=True)
        assert bytes_of(store, blob) == b"x"
        channel.abort_session()
        store.compact(full=True)
        with pytest.raises(BadEntry):
            store.open_blob(blob)


def test_a_blob_of_a_refused_entry_is_free_again(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path / "store")
    with store:
        store.switch_epoch(1)
        store.set_gc_boundary(5)
        pool = store.blob_pool()
        blob = pool.register_data(b"x")
        with channel.session():
            with pytest.raises(StaleWrite):
                channel.add_entry(1, b"a", b"", 5, [blob])
            pool.release()
            with pytest.raises(BadEntry, match="does not exist"):
                channel.add_entry(1, b"a", b"", 6, [blob])


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_a_temporary_file_with_another_name_is_copied(tmp_path: Path, link: str) -> None:
    kept, path = tmp_path / "kept", tmp_path / "temporary"
    kept.write_bytes(b"mine")
    if link == "symbolic":
        path.symlink_to(kept)
    else:
        path.hardlink_to(kept)
    store, _ = open_store(tmp_path / "store")
    with store, store.blob_pool() as pool:
        blob = pool.register_file(path, temporary=True)
        assert bytes_of(store, blob) == b"mine"
        assert not path.exists()
        assert kept.read_bytes() == b"mine"


def test_a_temporary_file_that_cannot_be_taken_away_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, path = tmp_path / "kept", tmp_path / "temporary"
    path.write_bytes(b"mine")
    kept.hardlink_to(path)
    unlink = OsVfs.unlink

    def refuse(vfs: OsVfs, name: str) -> None:
        if name == str(path):
            raise PermissionError(errno.EPERM, "not yours")
        unlink(vfs, name)

    monkeypatch.setattr(OsVfs, "unlink", refuse)
    store, _ = open_store(tmp_path / "store")
    with store, store.blob_pool() as pool:
        with pytest.raises(ReadOnly):
            pool.register_file(path, temporary=True)
        assert not list(tmp_path.glob("store/blobs/*/*"))
        assert path.read_bytes() == b"mine"


def test_a_temporary_file_for_which_there_is_no_room_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: OsFile, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        raise OSError(errno.ENOSPC, "no room")

    path = tmp_path / "temporary"
    path.write_bytes(b"mine")
    store, _ = open_store(tmp_path / "store")
    with store, store.blob_pool() as pool:
        with monkeypatch.context() as patched:
            patched.setattr(OsFile, "write_at", full)
            with pytest.raises(DiskFull):
                pool.register_file(path, temporary=True)
        assert path.read_bytes() == b"mine"
        assert bytes_of(store, pool.register_file(path, temporary=True)) == b"mine"
