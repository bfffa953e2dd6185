"""Epochs of a datastore: what is recorded is there, what is not never shows."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from pyroaring import BitMap64

import tidelog
from tests.datastore_store.stores import (
    PATH,
    Tried,
    append,
    delete,
    node_of,
    open_store,
    put,
    roll_and_flush,
    shown,
    streams_of,
)
from tidelog.core.session.epochs import BOUNDARY_END
from tidelog.datastore import epoch_store, unrecorded
from tidelog.datastore.blob_garbage import referred_blobs
from tidelog.datastore.epoch_store import DATASTORE_TOPIC, NO_TIME, EpochStore
from tidelog.embedded.engine import Engine
from tidelog.embedded.options import Options
from tidelog.errors import (
    BadOption,
    Busy,
    DiskFull,
    LogClosed,
    LogLocked,
    NotALog,
    StorageFailed,
    UnknownStream,
    WrongLog,
    WrongState,
)
from tidelog.formats.channel_batch import STAMP_KEY, STAMP_STORAGE, encode_channel_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.manifest import TopicManifest
from tidelog.limits import WAL_BACKLOG_FILES_MAX
from tidelog.storage.node_store import NodeStore
from tidelog.storage.os_vfs import OsVfs
from tidelog.testing.disk import Choice, Op, SimDisk

SMALL = Options(wal_file_bytes=64 << 10, background=False)


# -- epochs --------------------------------------------------------------------------------------


def test_nothing_shows_before_its_epoch_is_recorded() -> None:
    tried = Tried(channels=2)
    tried.write(0, 1, put("a", "1", 1))
    tried.store.flush(0)
    assert shown(tried.store) == {}
    assert tried.store.get(1, b"a") is None
    tried.record(1)
    tried.check()
    assert tried.store.get(1, b"a") is not None


def test_an_epoch_takes_the_entries_of_all_channels_up_to_it_and_no_later_ones() -> None:
    tried = Tried(channels=3)
    tried.write(0, 1, put("a", "1", 1))
    tried.write(0, 4, put("a", "2", 2))
    tried.write(1, 2, put("b", "1", 3))
    tried.write(2, 3, put("c", "1", 4))
    tried.record(3)
    tried.check()
    assert {key for _, key in shown(tried.store)} == {b"a", b"b", b"c"}
    tried.record(9)
    tried.check()


def test_an_epoch_without_entries_is_remembered() -> None:
    tried = Tried(channels=2)
    tried.record(7)
    tried.crash()
    assert tried.store.epoch == 7
    tried.commit(1, put("a", "1", 1))
    tried.record(12)
    tried.crash()
    assert tried.store.epoch == 12
    tried.check()


def test_what_was_not_recorded_never_returns_even_when_later_epochs_pass_its_number() -> None:
    tried = Tried(channels=2)
    tried.commit(0, put("a", "1", 1))
    tried.write(1, 5, put("a", "lost", 9))
    tried.store.flush(1)
    tried.reopen()
    tried.check()
    assert tried.store.end_llsn(1) == 1
    tried.write(0, 6, put("b", "1", 2))
    tried.write(1, 6, put("c", "1", 3))
    tried.record(6)
    tried.check()
    tried.crash()
    tried.check()


def test_epochs_do_not_go_back() -> None:
    tried = Tried(channels=1)
    tried.record(5)
    for epoch in (5, 4):
        with pytest.raises(BadOption, match=f"epoch {epoch} comes after 5"):
            tried.store.record(epoch)
    for epoch in (0, -1, 1 << 63):
        with pytest.raises(BadOption, match="is no epoch"):
            tried.store.record(epoch)
    with pytest.raises(WrongState, match="epoch 5 takes no entries: 5 is recorded"):
        tried.write(0, 5, put("a", "1", 1))
    tried.write(0, 8, put("a", "1", 1))
    with pytest.raises(WrongState, match="epoch 7 after 8"):
        tried.write(0, 7, put("a", "1", 1))
    assert tried.store.epoch == 5


def test_batches_must_continue_their_channel() -> None:
    tried = Tried(channels=2)
    tried.commit(0, put("a", "1", 1))
    for llsn in (1, 3):
        with pytest.raises(WrongState, match=f"a batch at LLSN {llsn} was appended, but 2"):
            tried.store.append(0, 2, [encode_channel_batch(0, 2, llsn, [put("b", "1", 2)])])
    assert tried.store.end_llsn(0) == 2
    with pytest.raises(UnknownStream, match="no log channel 2, only 2"):
        tried.store.append(2, 2, [])
    with pytest.raises(UnknownStream):
        tried.store.end_llsn(-1)


# -- cuts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [True, False])
def test_an_aborted_session_leaves_nothing(flushed: bool) -> None:
    tried = Tried(channels=2)
    tried.commit(0, put("a", "1", 1))
    tried.write(0, 2, put("a", "kept", 2))
    begin = tried.store.end_llsn(0)
    tried.write(0, 2, put("a", "aborted", 3))
    if flushed:
        tried.store.flush(0)
    tried.write(1, 2, put("b", "other channel", 4))
    tried.cut(0, begin)
    assert tried.store.end_llsn(0) == begin
    tried.write(0, 2, put("c", "1", 5))
    tried.record(2)
    tried.check()
    tried.crash()
    tried.check()


def test_recorded_entries_cannot_be_cut() -> None:
    tried = Tried(channels=1)
    tried.commit(0, put("a", "1", 1), put("b", "1", 2))
    tried.write(0, 2, put("c", "1", 3), put("d", "1", 4))
    for llsn in (1, 2, 4, 6):
        with pytest.raises(WrongState, match=f"cannot be cut back to LLSN {llsn}"):
            tried.store.cut(0, llsn)
    tried.cut(0, 5)
    tried.record(2)
    tried.check()


def test_all_that_is_unrecorded_can_be_dropped() -> None:
    tried = Tried(channels=2)
    tried.commit(1, put("a", "1", 1))
    tried.write(0, 2, put("a", "2", 2))
    tried.store.flush(0)
    tried.write(1, 4, put("a", "3", 3))
    tried.store.drop_unrecorded()
    tried.model.waiting = []
    assert [tried.store.end_llsn(channel) for channel in (0, 1)] == [1, 2]
    tried.record(9)
    tried.check()


def test_wal_files_that_hold_what_was_cut_back_can_go_one_by_one() -> None:
    """A later file tells what goes of an earlier one, and goes on where that one had ended."""
    tried = Tried(channels=2)
    tried.commit(0, put("a", "1", 1))
    begin = tried.store.end_llsn(0)
    tried.write(0, 2, put("a", "aborted", 2))
    tried.store.flush(0)
    node_of(tried.store).wal.roll()
    tried.write(0, 2, put("a", "aborted too", 3))
    tried.store.flush(0)
    tried.cut(0, begin)
    node_of(tried.store).flush_oldest()
    tried.crash()
    tried.check()
    tried.commit(0, put("b", "1", 4))
    roll_and_flush(tried.store)
    roll_and_flush(tried.store)
    tried.crash()
    tried.check()


# -- restarts ------------------------------------------------------------------------------------


def test_a_log_session_that_runs_across_wal_files_and_a_compaction_survives() -> None:
    tried = Tried(channels=2)
    tried.segment(1, put("a", "1", 1))
    tried.store.set_boundary(1)
    for number in range(6):
        tried.write(0, 2, put(f"k{number}", "x" * 40_000, 10 + number))
        tried.store.flush(0)
        roll_and_flush(tried.store)
        tried.store.compact(full=True)
    tried.write(1, 2, delete("a", 30))
    tried.record(2)
    tried.store.compact(full=True)
    tried.check()
    tried.reopen()
    tried.check()
    tried.crash(Choice.KEPT)
    tried.check()
    assert len(shown(tried.store)) == 6


def test_channels_are_added_and_stay() -> None:
    tried = Tried(channels=1)
    tried.commit(0, put("a", "1", 1))
    tried.store.set_boundary(1)
    tried.store.make_channels(4)
    tried.store.make_channels(2)
    tried.commit(3, put("b", "1", 2))
    tried.crash()
    assert (tried.store.channels, tried.store.boundary) == (4, 1)
    tried.check()
    for count in (0, 5000):
        with pytest.raises(BadOption, match="log channels"):
            tried.store.make_channels(count)


def test_a_boundary_is_kept_and_does_not_go_back() -> None:
    tried = Tried(channels=2)
    tried.store.set_boundary(1 << 100)
    tried.store.set_boundary(1 << 100)
    with pytest.raises(BadOption, match="does not go back"):
        tried.store.set_boundary(5)
    with pytest.raises(BadOption, match="must be below"):
        tried.store.set_boundary(BOUNDARY_END)
    tried.crash()
    assert tried.store.boundary == 1 << 100


def test_a_new_store_takes_on_the_id_of_its_master() -> None:
    disk = SimDisk()
    master = open_store(SimDisk().vfs())
    store = EpochStore(disk.vfs(), PATH, SMALL, configuration_id=master.configuration_id)
    assert store.configuration_id == master.configuration_id
    store.close()
    with pytest.raises(WrongLog, match="holds the datastore"):
        EpochStore(disk.vfs(), PATH, SMALL, configuration_id="ab" * 16)
    for wrong in ("ab", "x" * 32, "", "AB" * 16):
        with pytest.raises(BadOption, match="configuration id"):
            EpochStore(SimDisk().vfs(), PATH, SMALL, configuration_id=wrong)
    with pytest.raises(NotALog, match="does not exist"):
        EpochStore(SimDisk().vfs(), PATH, SMALL, create=False)
    again = EpochStore(disk.vfs(), PATH, SMALL, create=False)
    with pytest.raises(LogLocked):
        EpochStore(disk.vfs(), PATH, SMALL)
    again.close()


def test_a_stamp_is_told_and_not_shown() -> None:
    tried = Tried(channels=2)
    assert tried.store.stamp == ""
    tried.store.set_boundary(1 << 127)
    for epoch, stamp in ((1, b"first"), (2, b"second")):
        append(
            tried.store,
            0,
            epoch,
            Entry(Kind.PUT, stamp, STAMP_KEY, STAMP_STORAGE, epoch << 64),
        )
        before = tried.store.stamp
        tried.store.record(epoch)
        assert (before, tried.store.stamp) == ("" if epoch == 1 else "first", stamp.decode())
    tried.store.compact(full=True)
    assert shown(tried.store) == {}
    assert tried.store.get(STAMP_STORAGE, STAMP_KEY) is None
    again = open_store(tried.disk.after_crash().vfs())
    assert again.stamp == "second"


# -- other logs ----------------------------------------------------------------------------------


def test_a_datastore_is_no_log_for_others(tmp_path: Path) -> None:
    store = EpochStore(OsVfs(), str(tmp_path / "d"))
    append(store, 0, 1, put("a", "1", 1))
    store.record(1)
    store.close()
    with pytest.raises(NotALog, match="holds a datastore: open it with"):
        tidelog.open(tmp_path / "d")
    # It was let go of, and nothing was changed: it can be looked at, and opened again.
    engine = Engine(OsVfs(), str(tmp_path / "d"), SMALL, create=False, only_looks=True)
    assert [topic.name for topic in engine.node.topics.values()] == [DATASTORE_TOPIC]
    engine.close()
    again = EpochStore(OsVfs(), str(tmp_path / "d"), create=False)
    assert len(shown(again)) == 1
    again.close()


def test_a_log_is_no_datastore(tmp_path: Path) -> None:
    tidelog.open(tmp_path / "log").close()
    with pytest.raises(NotALog, match="holds a log, not a datastore"):
        EpochStore(OsVfs(), str(tmp_path / "log"))
    tidelog.open(tmp_path / "log").close()


# -- bounds and failures -------------------------------------------------------------------------


def test_what_waits_in_memory_is_written_out_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecorded, "DATASTORE_QUEUE_BYTES_MAX", 1000)
    tried = Tried(channels=2)
    frames = node_of(tried.store).wal.frames
    for number in range(10):
        tried.write(number % 2, 1, put(f"k{number}", "x" * 300, number))
        assert tried.store._unrecorded.queued_bytes <= 1000
    assert node_of(tried.store).wal.frames >= frames + 3
    tried.record(1)
    tried.check()


def test_too_much_that_is_not_recorded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecorded, "UNRECORDED_BYTES_MAX", 1000)
    tried = Tried(channels=2)
    tried.store.reserve(0, 5000)
    tried.write(0, 1, put("a", "x" * 700, 1))
    with pytest.raises(Busy, match="wait for their epochs"):
        tried.store.reserve(0, 700)
    tried.write(1, 1, put("b", "x" * 700, 2))
    with pytest.raises(Busy, match="wait for their epochs"):
        tried.write(1, 1, put("c", "x" * 700, 3))
    tried.record(1)
    tried.store.reserve(0, 700)
    tried.commit(1, put("c", "x" * 700, 3))
    tried.check()


def test_room_is_not_given_to_two_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them has sent to a replica must find room here, whatever others do meanwhile."""
    monkeypatch.setattr(unrecorded, "UNRECORDED_BYTES_MAX", 1000)
    tried = Tried(channels=2)
    tried.store.reserve(0, 700)
    with pytest.raises(Busy, match="wait for their epochs"):
        tried.store.reserve(1, 700)
    tried.store.reserve(0, 200)
    tried.store.reserve(1, 700)
    tried.write(1, 1, put("a", "x" * 300, 1))
    tried.store.reserve(1, 200)


@pytest.mark.parametrize("background", [True, False])
def test_wal_files_that_wait_for_their_epoch_hold_nobody_back(background: bool) -> None:
    """Only a record helps them: it must get through whatever lies before it."""
    options = Options(
        wal_file_bytes=64 << 10, background=background, append_timeout_seconds=20, tick_seconds=600
    )
    tried = Tried(channels=2, options=options)
    for number in range(12):
        tried.write(number % 2, 1, put(f"k{number}", "x" * 50_000, number + 1))
        tried.store.flush(number % 2)
    assert node_of(tried.store).backlog > WAL_BACKLOG_FILES_MAX
    tried.record(1)
    tried.check()
    tried.store.compact(full=True)
    assert node_of(tried.store).backlog == 0
    tried.check()
    tried.reopen()
    tried.check()
    tried.store.close()


def test_a_full_disk_leaves_everything_as_it_was() -> None:
    tried = Tried(channels=2)
    tried.commit(0, put("a", "1", 1))
    tried.write(1, 2, put("b", "x" * 50_000, 2))
    tried.store.flush(1)
    tried.write(0, 2, put("c", "x" * 50_000, 3))
    tried.disk.capacity_bytes = sum(map(len, tried.disk.files().values()))
    for call in (
        lambda: tried.store.flush(0),
        lambda: tried.store.record(2),
        lambda: tried.store.set_boundary(1),
    ):
        with pytest.raises(DiskFull):
            call()
        assert (tried.store.epoch, tried.store.boundary) == (1, 0)
    assert tried.store.failure is None
    tried.disk.capacity_bytes = None
    tried.record(2)
    tried.check()
    tried.crash()
    tried.check()


def test_a_failed_sync_is_final() -> None:
    tried = Tried(channels=2)
    tried.commit(0, put("a", "1", 1))
    tried.disk.fail(Op.SYNC, ".wal", errno.EIO)
    tried.write(0, 2, put("b", "1", 2))
    with pytest.raises(StorageFailed, match="fsync"):
        tried.store.record(2)
    assert isinstance(tried.store.failure, StorageFailed)
    for call in (
        lambda: tried.store.record(3),
        lambda: tried.store.flush(0),
        lambda: append(tried.store, 0, 3, put("c", "1", 3)),
        lambda: tried.store.set_boundary(1),
    ):
        with pytest.raises(StorageFailed):
            call()
    assert tried.store.epoch == 1
    tried.store.close()
    tried.crash()
    tried.check()


def test_a_closed_store_says_so() -> None:
    tried = Tried(channels=1)
    tried.write(0, 1, put("a", "1", 1))
    tried.store.close()
    tried.store.close()
    for call in (
        lambda: append(tried.store, 0, 1, put("b", "1", 2)),
        lambda: tried.store.flush(0),
        lambda: tried.store.record(1),
        lambda: tried.store.entries(),
        lambda: tried.store.get(1, b"a"),
        lambda: tried.store.compact(),
    ):
        with pytest.raises(LogClosed):
            call()


def test_a_flush_tells_what_the_disk_took() -> None:
    tried = Tried(channels=1)
    assert tried.store.flush(0) == NO_TIME
    tried.write(0, 1, put("a", "1", 1))
    node_of(tried.store).wal.write_ns = 0
    tried.store.flush(0)
    assert node_of(tried.store).wal.write_ns > 0
    assert tried.store.flush(0) == NO_TIME


def test_channels_are_written_side_by_side_while_epochs_are_recorded(tmp_path: Path) -> None:
    """Many threads and the worker; all that was recorded is there after a restart."""
    options = Options(wal_file_bytes=64 << 10, snapshot_bytes=64 << 10, tick_seconds=0.01)
    store = EpochStore(OsVfs(), str(tmp_path / "d"), options)
    store.make_channels(4)
    turn = threading.Barrier(5)
    problems: list[BaseException] = []

    def work(channel: int) -> None:
        try:
            for epoch in range(1, 31):
                entries = [put(f"{channel} {n % 7}", "x" * 300, epoch * 100 + n) for n in range(20)]
                append(store, channel, epoch, *entries)
                store.flush(channel)
                turn.wait(30)
                turn.wait(30)
        except BaseException as error:
            problems.append(error)
            turn.abort()

    threads = [threading.Thread(target=work, args=(channel,)) for channel in range(4)]
    for thread in threads:
        thread.start()
    for epoch in range(1, 31):
        turn.wait(30)
        store.record(epoch)
        turn.wait(30)
        if epoch % 10 == 0:
            store.set_boundary(epoch * 100)
            store.compact(full=epoch == 20)
    for thread in threads:
        thread.join()
    assert not problems
    expected = {
        (1, f"{channel} {n}".encode()): 3000 + max(range(n, 20, 7))
        for channel in range(4)
        for n in range(7)
    }
    assert {place: version for place, (_, version, _) in shown(store).items()} == expected
    store.close()
    store = EpochStore(OsVfs(), str(tmp_path / "d"), options)
    assert {place: version for place, (_, version, _) in shown(store).items()} == expected
    assert store.epoch == 30
    store.close()


# -- BLOBs ---------------------------------------------------------------------------------------


def make_blob(store: EpochStore, blob: int) -> None:
    with store.blobs.begin(blob, 4) as writer:
        writer.write(0, b"data")
        writer.finish()


def test_blobs_go_when_no_entry_refers_to_them_any_more() -> None:
    tried = Tried(channels=3)
    for blob in (1, 2, 3, 4, 5):
        make_blob(tried.store, blob)
    tried.segment(0, put("a", "1", 1, blobs=(1, 2)))
    tried.segment(1, put("b", "1", 2, blobs=(3,)))
    tried.store.compact(full=True)
    assert tried.store.blobs.ids() == [1, 2, 3, 4, 5]
    tried.segment(1, put("a", "2", 3, blobs=(2,)))
    tried.store.set_boundary(20)
    for number in range(3):
        tried.segment(0, put("last", str(number), 30 + number))
        tried.store.compact(full=True)
    tried.write(2, 9, put("c", "1", 50, blobs=(4,)))
    tried.store.compact(full=True)
    # 1 is gone with its entry; 2 has another one; 4 waits for its epoch, 5 for an entry.
    assert tried.store.blobs.ids() == [2, 3, 4, 5]
    tried.store.drop_unrecorded()
    tried.model.waiting = []
    tried.store.compact()
    assert tried.store.blobs.ids() == [2, 3]
    tried.check()


def test_blobs_that_no_entry_came_to_refer_to_go_after_a_restart() -> None:
    tried = Tried(channels=1)
    make_blob(tried.store, 1)
    make_blob(tried.store, 2)
    tried.commit(0, put("a", "1", 1, blobs=(2,)))
    tried.reopen()
    tried.store.compact()
    assert tried.store.blobs.ids() == [2]


def test_an_entry_cannot_refer_to_a_blob_that_is_not_there() -> None:
    tried = Tried(channels=1)
    with pytest.raises(WrongState, match="refers to BLOB 3, which is not there"):
        tried.write(0, 1, put("a", "1", 1, blobs=(3,)))
    assert tried.store.end_llsn(0) == 1


def test_a_blob_that_is_referred_to_while_garbage_is_collected_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = Tried(channels=1)
    make_blob(tried.store, 1)
    tried.commit(0, put("a", "1", 1, blobs=(1,)))
    tried.segment(0, delete("a", 2))
    tried.segment(0, put("last", "", 3))
    tried.store.set_boundary(2)

    def refer_meanwhile(node: NodeStore, topic: TopicManifest) -> BitMap64:
        found = referred_blobs(node, topic)
        tried.commit(0, put("b", "1", 9, blobs=(1,)))
        return found

    tried.store.compact(full=True)
    monkeypatch.setattr(epoch_store, "referred_blobs", refer_meanwhile)
    make_blob(tried.store, 1)
    tried.store.blobs.forget_fresh()
    tried.store.compact(full=True)
    assert tried.store.blobs.ids() == [1]
    assert streams_of(tried.store)[0].end_llsn == 5
