"""The disk of a Raft node: what it keeps, what it refuses, and what it does when the disk fails."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.storage.raft_stores import (
    DIRECTORY,
    EMPTY,
    FIRST,
    GROUP,
    NODE,
    ROOM_BYTES,
    entries,
    entry,
    numbered,
    open_store,
    snapshot,
    states,
    voted,
)
from tidelog.core.raft.entries import Membership, Snapshot, SnapshotHead, Stored
from tidelog.core.raft.output import Write
from tidelog.errors import (
    BadOption,
    Busy,
    CorruptData,
    DiskFull,
    LogClosed,
    LogLocked,
    NotALog,
    ReadOnly,
    StorageFailed,
)
from tidelog.invariants import InvariantViolation
from tidelog.storage import raft_log_file
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.raft_store import UNPREPARED_SHARE, RaftStore
from tidelog.testing.disk import Choice, Op, SimDisk
from tidelog.types import NodeId

WRITES = numbered(
    [
        Write(0, voted(1, 2), entries=entries(1, 6)),
        Write(0, voted(2)),
        Write(0, entries=entries(4, 6, term=2)),
        Write(0, snapshot=snapshot(4, term=2)),
        Write(0, voted(3, 1), entries=entries(6, 8, term=3)),
    ]
)
"""A vote, a truncation, a snapshot of our own, and more entries."""


def written(disk: SimDisk, writes: list[Write]) -> RaftStore:
    """An open store with these writes, synced."""
    store, _ = open_store(disk.vfs(), phase="prepare")
    for write in writes:
        store.write(write)
    store.sync()
    return store


def found_on(disk: SimDisk) -> Stored:
    store, found = open_store(disk.vfs(), first=None, phase="check")
    store.close()
    return found


def log_numbers(disk: SimDisk) -> list[int]:
    names = [path.rsplit("/", 1)[1] for path in disk.files()]
    return [int(name.removesuffix(".log")) for name in names if name.endswith(".log")]


# -- what is kept ------------------------------------------------------------------------------


def test_a_new_store_holds_its_first_snapshot_and_nothing_else() -> None:
    store, found = open_store(SimDisk().vfs())
    assert found == EMPTY
    store.close()


def test_a_store_holds_the_same_after_every_start() -> None:
    disk = SimDisk()
    written(disk, WRITES).close()
    expected = states(EMPTY, WRITES)[-1]
    assert [entry.index for entry in expected.entries] == [5, 6, 7]
    assert [found_on(disk) for _ in range(3)] == [expected] * 3


def test_synced_writes_survive_a_power_loss_without_a_close() -> None:
    for number in range(1, len(WRITES) + 1):
        disk = SimDisk()
        written(disk, WRITES[:number])
        left = disk.after_crash(Choice.LOST)
        store, found = open_store(left.vfs(), first=None, phase="check")
        assert found == states(EMPTY, WRITES[:number])[-1]
        assert not store.cut_torn_tail
        store.close()


def test_a_frame_that_a_crash_kept_behind_a_lost_one_never_comes_back() -> None:
    """Not even when the next start writes a frame that is as long as the lost one."""
    disk = SimDisk()
    store = written(disk, WRITES[:1])
    store.write(Write(2, voted(5, 1)))
    store.write(Write(3, entries=entries(6, 7, term=5)))
    left = disk.after_crash([Choice.LOST, Choice.KEPT])
    store, found = open_store(left.vfs(), first=None, phase="resume")
    assert found == states(EMPTY, WRITES[:1])[-1]
    assert store.cut_torn_tail
    store.write(Write(1, voted(6, 3)))
    store.sync()
    expected = states(found, [Write(1, voted(6, 3))])[-1]
    assert found_on(left.after_crash(Choice.LOST)) == expected


def test_a_node_that_is_to_join_a_group_begins_without_voters() -> None:
    nobody = Snapshot(SnapshotHead(FIRST.head.index, FIRST.head.term, Membership(())), b"")
    disk = SimDisk()
    store, found = open_store(disk.vfs(), first=nobody)
    store.write(Write(1, voted(7), snapshot=snapshot(40, term=7), replaces_log=True))
    store.close()
    assert found.snapshot == nobody
    assert found_on(disk) == Stored(voted(7), snapshot(40, term=7), ())


def test_a_first_snapshot_does_not_replace_a_store_that_exists() -> None:
    disk = SimDisk()
    written(disk, WRITES).close()
    store, found = open_store(disk.vfs(), first=FIRST, phase="check")
    store.close()
    assert found == states(EMPTY, WRITES)[-1]


def test_a_start_leaves_one_log_file_and_one_snapshot() -> None:
    disk = SimDisk()
    written(disk, WRITES)
    left = disk.copy()
    for name in ("0000000000000001.log", "0000000000000003.snapshot", "0000000000000099.log.tmp"):
        left.vfs().create(f"{DIRECTORY}/{name}")
    found_on(left)
    assert left.vfs().list_dir(DIRECTORY) == [f"{3:016d}.log", f"{4:016d}.snapshot", "LOCK"]


def test_a_log_without_snapshots_is_copied_into_few_files() -> None:
    """Each file has room for as much as its base, so what is copied stays below what is new."""
    disk = SimDisk()
    store, _ = open_store(disk.vfs())
    store.write(Write(1, voted(1)))
    for index in range(1, 501):
        store.write(Write(index + 1, entries=(entry(index, data=b"x" * 1000),)))
    store.close()
    assert log_numbers(disk)[0] < 12
    assert len(found_on(disk).entries) == 500


def test_a_prepared_file_becomes_the_log_and_no_other_is_made() -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:3])
    store.prepare()
    with patch.object(raft_log_file, "replace_file", side_effect=AssertionError("made")):
        store.write(WRITES[3])
    assert log_numbers(disk) == [2]
    assert found_on(disk.after_crash(Choice.LOST)) == states(EMPTY, WRITES[:4])[-1]


def test_the_next_file_is_prepared_once_a_part_of_this_one_is_in_use() -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:2])
    assert not store.needs_preparing()
    size = ROOM_BYTES // UNPREPARED_SHARE
    store.write(Write(3, entries=entries(6, 7, size=size)))
    assert store.needs_preparing()
    while store.needs_preparing():
        store.prepare()
    assert any(path.endswith(".tmp") for path in disk.files())
    store.close()
    assert all(not path.endswith(".tmp") for path in disk.files())


def test_a_sync_without_a_write_does_not_touch_the_disk() -> None:
    disk = SimDisk()
    store = written(disk, WRITES)
    before = disk.operations
    store.sync()
    assert disk.operations == before
    store.close()


def test_a_store_works_on_real_files(tmp_path: Path) -> None:
    directory = str(tmp_path / "raft")

    def opened() -> tuple[RaftStore, Stored]:
        return RaftStore.open(OsVfs(), directory, node=NODE, group=GROUP, first=FIRST)

    store, found = opened()
    assert found == EMPTY
    for write in WRITES:
        store.write(write)
        store.sync()
    with pytest.raises(LogLocked):
        opened()
    store.close()
    store, found = opened()
    store.close()
    assert found == states(EMPTY, WRITES)[-1]


# -- what is refused ---------------------------------------------------------------------------


def test_a_store_that_should_exist_is_not_made() -> None:
    disk = SimDisk()
    with pytest.raises(NotALog):
        open_store(disk.vfs(), first=None)
    disk.vfs().make_dir(DIRECTORY)
    with pytest.raises(NotALog):
        open_store(disk.vfs(), first=None)
    assert disk.files() == {}


def test_the_store_of_another_node_or_group_is_refused() -> None:
    disk = SimDisk()
    written(disk, WRITES).close()
    for node, group in ((NodeId(3), GROUP), (NODE, bytes(16))):
        with pytest.raises(NotALog, match="belongs to node 2 of group 000102"):
            open_store(disk.vfs(), node=node, group=group, phase="check")
    assert found_on(disk) == states(EMPTY, WRITES)[-1]


def test_a_store_is_open_once() -> None:
    disk = SimDisk()
    store = written(disk, WRITES)
    with pytest.raises(LogLocked):
        open_store(disk.vfs(), phase="check")
    store.close()
    assert found_on(disk) == states(EMPTY, WRITES)[-1]


def test_a_store_is_not_made_among_other_files() -> None:
    disk = SimDisk()
    disk.vfs().make_dir(DIRECTORY)
    disk.vfs().create(f"{DIRECTORY}/manifest")
    with pytest.raises(NotALog, match="manifest"):
        open_store(disk.vfs())


def test_a_file_is_not_a_store() -> None:
    disk = SimDisk()
    disk.vfs().create(DIRECTORY)
    with pytest.raises(NotALog, match="is a file"):
        open_store(disk.vfs())


def test_a_store_is_not_made_in_a_directory_that_is_not_there() -> None:
    with pytest.raises(NotALog, match="no directory"):
        RaftStore.open(SimDisk().vfs(), "/no/raft", node=NODE, group=GROUP, first=FIRST)


def test_a_store_that_lost_its_log_file_is_not_begun_anew() -> None:
    disk = SimDisk()
    written(disk, WRITES).close()
    (number,) = log_numbers(disk)
    disk.vfs().unlink(f"{DIRECTORY}/{number:016d}.log")
    with pytest.raises(CorruptData, match="restore it"):
        open_store(disk.vfs(), first=FIRST)


def test_a_store_that_lost_its_snapshot_does_not_start() -> None:
    disk = SimDisk()
    written(disk, WRITES).close()
    disk.vfs().unlink(f"{DIRECTORY}/{4:016d}.snapshot")
    with pytest.raises(CorruptData, match=r"4\.snapshot is missing"):
        found_on(disk)


def test_a_damaged_log_file_is_not_replaced_by_an_older_one() -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:1])
    older = disk.files()[f"{DIRECTORY}/{1:016d}.log"]
    store.close()
    found_on(disk)
    disk.vfs().create(f"{DIRECTORY}/{1:016d}.log").write_at(0, (older,))
    disk.flip_bit(f"{DIRECTORY}/{2:016d}.log", 100, 0)
    with pytest.raises(CorruptData, match=r"2\.log: offset 64"):
        found_on(disk)


def test_a_log_file_under_the_number_of_another_is_damaged() -> None:
    disk = SimDisk()
    written(disk, WRITES).close()
    (number,) = log_numbers(disk)
    disk.vfs().rename(f"{DIRECTORY}/{number:016d}.log", f"{DIRECTORY}/{9:016d}.log")
    with pytest.raises(CorruptData, match=f"says that it is file {number}"):
        found_on(disk)


@pytest.mark.parametrize("room_bytes", [0, ROOM_BYTES - 1, 1 << 30])
def test_the_room_in_a_file_has_bounds(room_bytes: int) -> None:
    with pytest.raises(BadOption):
        RaftStore.open(
            SimDisk().vfs(), "/raft", node=NODE, group=GROUP, first=FIRST, room_bytes=room_bytes
        )


# -- a node that contradicts itself ------------------------------------------------------------

CONTRADICTIONS = {
    "I3: the term falls": Write(9, voted(1, 2)),
    "I3: a vote is changed": Write(9, voted(2, 3)),
    "I3: a vote is taken back": Write(9, voted(2)),
    "I1: an entry is skipped": Write(9, entries=entries(7, 8, term=2)),
    "I1: entries have a gap": Write(9, entries=(entry(6, 2), entry(8, 2))),
    "I1: an entry lies in the snapshot": Write(9, entries=entries(2, 4, term=2)),
    "I2: terms fall behind the log": Write(9, entries=entries(6, 7, term=1)),
    "I2: terms fall within the write": Write(9, voted(3), entries=(entry(4, 3), entry(5, 2))),
    "I2: an entry is ahead of the node's term": Write(9, entries=entries(6, 7, term=3)),
    "I2: a snapshot is ahead of the node's term": Write(
        9, snapshot=snapshot(9, term=3), replaces_log=True
    ),
    "I4: the snapshot is there already": Write(9, snapshot=snapshot(2), replaces_log=True),
    "I4: our snapshot is ahead of our log": Write(9, snapshot=snapshot(6, term=2)),
    "I4: our snapshot is not of our log": Write(9, snapshot=snapshot(4, term=1)),
    "writes: a number comes twice": Write(2, voted(5)),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_write_that_contradicts_what_is_stored_stops_the_node(name: str) -> None:
    before = numbered(
        [
            Write(0, voted(2, 1), entries=(*entries(1, 4), *entries(4, 6, term=2))),
            Write(0, snapshot=snapshot(2)),
        ]
    )
    disk = SimDisk()
    store = written(disk, before)
    with pytest.raises(InvariantViolation, match=name.split(":", maxsplit=1)[0]):
        store.write(CONTRADICTIONS[name])
    assert found_on(disk.copy()) == states(EMPTY, before)[-1]


# -- a disk that fails -------------------------------------------------------------------------


def test_a_failed_sync_is_final() -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:1])
    disk.fail(Op.SYNC, ".log", errno.EIO)
    store.write(WRITES[1])
    with pytest.raises(StorageFailed):
        store.sync()
    for again in (store.sync, lambda: store.write(WRITES[2]), store.sync):
        with pytest.raises(StorageFailed):
            again()
    store.close()


def test_what_a_start_shows_after_a_failed_sync_is_durable() -> None:
    """The kernel shows pages that it dropped, and calls them clean: a new sync would not help."""
    disk = SimDisk()
    store = written(disk, WRITES[:1])
    disk.fail(Op.SYNC, ".log", errno.EIO)
    store.write(WRITES[1])
    with pytest.raises(StorageFailed):
        store.sync()
    left = disk.copy()
    again, found = open_store(left.vfs(), first=None, phase="resume")
    assert found == states(EMPTY, WRITES[:2])[-1]
    assert found_on(left.after_crash(Choice.LOST)) == found
    again.close()


@pytest.mark.parametrize(
    ("operation", "path", "passed"),
    [
        (Op.WRITE, ".log", 0),
        (Op.SYNC, ".snapshot.tmp", 0),
        (Op.RENAME, ".snapshot.tmp", 0),
        (Op.SYNC_DIR, DIRECTORY, 0),
        (Op.SYNC, ".log.tmp", 0),
        (Op.RENAME, ".log.tmp", 0),
        (Op.SYNC_DIR, DIRECTORY, 1),
        (Op.UNLINK, ".log", 0),
        (Op.UNLINK, ".snapshot", 0),
        (Op.OPEN, ".log", 0),
    ],
)
def test_any_error_of_the_disk_in_a_write_is_final(operation: Op, path: str, passed: int) -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:3])
    disk.fail(operation, path, errno.EIO, after=passed)
    failing = WRITES[4] if operation is Op.WRITE else WRITES[3]
    with pytest.raises(StorageFailed):
        store.write(failing)
    with pytest.raises(StorageFailed):
        store.write(WRITES[4])
    store.close()
    before, after = states(EMPTY, [*WRITES[:3], failing])[-2:]
    for left in (disk.copy(), disk.after_crash(Choice.LOST), disk.after_crash(Choice.KEPT)):
        assert found_on(left) in (before, after)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_an_error_once_a_new_file_has_its_name_is_final(error: int) -> None:
    """What would be written to the file before would not be seen by the next start."""
    disk = SimDisk()
    store = written(disk, WRITES[:3])
    disk.fail(Op.UNLINK, ".log", error)
    with pytest.raises(StorageFailed):
        store.write(WRITES[3])
    with pytest.raises(StorageFailed):
        store.write(WRITES[4])
    store.close()


@pytest.mark.parametrize("path", [".snapshot.tmp", ".log.tmp"])
@pytest.mark.parametrize(("error", "raised"), [(errno.ENOSPC, DiskFull), (errno.EROFS, ReadOnly)])
def test_a_write_can_be_repeated_once_the_disk_has_room(
    path: str, error: int, raised: type[Exception]
) -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:3])
    disk.fail(Op.WRITE, path, error)
    with pytest.raises(raised):
        store.write(WRITES[3])
    assert found_on(disk.copy()) == states(EMPTY, WRITES[:3])[-1]
    store.write(WRITES[3])
    store.write(WRITES[4])
    store.close()
    assert found_on(disk) == states(EMPTY, WRITES)[-1]


def test_a_disk_that_is_full_leaves_the_next_file_to_be_made_when_it_is_needed() -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:3])
    disk.fail(Op.WRITE, ".log.tmp", errno.ENOSPC)
    store.prepare()
    store.prepare()  # Not tried again.
    assert all(not path.endswith(".tmp") for path in disk.files())
    store.write(WRITES[3])
    store.close()
    assert found_on(disk) == states(EMPTY, WRITES[:4])[-1]


def test_a_write_into_a_prepared_file_can_be_repeated_once_the_disk_has_room() -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:3])
    store.prepare()
    disk.fail(Op.WRITE, ".log.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        store.write(WRITES[3])
    assert found_on(disk.copy()) == states(EMPTY, WRITES[:3])[-1]
    store.write(WRITES[3])
    store.close()
    assert found_on(disk) == states(EMPTY, WRITES[:4])[-1]


def test_a_disk_that_fills_up_inside_a_frame_is_final() -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:1])
    disk.fail(Op.WRITE, ".log", errno.ENOSPC, partial=True)
    with pytest.raises(StorageFailed):
        store.write(WRITES[1])
    with pytest.raises(StorageFailed):
        store.write(WRITES[1])
    store.close()
    assert found_on(disk.copy()) == states(EMPTY, WRITES[:1])[-1]


def test_frames_fit_on_a_disk_that_is_full() -> None:
    disk = SimDisk()
    store = written(disk, WRITES[:1])
    disk.capacity_bytes = sum(map(len, disk.files().values()))
    assert disk.free_bytes() == 0
    store.write(WRITES[1])
    store.sync()
    with pytest.raises(DiskFull):
        store.write(Write(3, snapshot=snapshot(4)))
    store.write(Write(3, voted(5)))
    store.close()
    disk.capacity_bytes = None
    assert found_on(disk) == states(EMPTY, [*WRITES[:2], Write(3, voted(5))])[-1]


def test_a_log_that_is_too_large_waits_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_log_file, "RAFT_LOG_FILE_BYTES_MAX", 16 << 10)
    disk = SimDisk()
    store = written(disk, [Write(1, voted(1), entries=entries(1, 6, size=1000))])
    large = Write(2, entries=entries(6, 16, size=1000))
    with pytest.raises(Busy, match="snapshot"):
        store.write(large)
    store.write(Write(2, snapshot=snapshot(5)))
    store.write(Write(3, entries=entries(6, 10, size=1000)))
    store.close()
    assert found_on(disk) == Stored(voted(1), snapshot(5), entries(6, 10, size=1000))


# -- closing -----------------------------------------------------------------------------------


def test_closing_makes_all_writes_durable() -> None:
    disk = SimDisk()
    store, _ = open_store(disk.vfs())
    for write in WRITES:
        store.write(write)
    store.close()
    assert found_on(disk.after_crash(Choice.LOST)) == states(EMPTY, WRITES)[-1]


def test_a_closed_store_takes_no_writes() -> None:
    store, _ = open_store(SimDisk().vfs())
    store.close()
    store.close()
    with pytest.raises(LogClosed):
        store.write(WRITES[0])
    with pytest.raises(LogClosed):
        store.sync()


def test_a_start_that_fails_releases_the_lock() -> None:
    disk = SimDisk()
    written(disk, WRITES).close()
    disk.fail(Op.SYNC, ".log.tmp", errno.EIO)
    with pytest.raises(StorageFailed):
        open_store(disk.vfs(), first=None, phase="check")
    assert found_on(disk) == states(EMPTY, WRITES)[-1]
