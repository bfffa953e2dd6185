"""Damaged files of one stream cost that replica its log, and nobody else anything."""

from __future__ import annotations

import errno

import pytest

from tests.storage_replica.twin import (
    CLUSTER,
    FILE_BYTES,
    PATH,
    STREAM,
    TOPIC,
    Twin,
    open_disk,
    values,
)
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.output import HardState, Write
from tidelog.core.replica.state import Stored
from tidelog.errors import CorruptData, DiskFull, NotALog, StorageFailed, WrongCluster
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.replica_disk import ReplicaDisk
from tidelog.testing.disk import Op, SimDisk
from tidelog.types import Llsn, StreamId, Term

OTHER = StreamId(2)


@pytest.fixture
def twin() -> Twin:
    return two_streams()


def two_streams() -> Twin:
    twin = Twin()
    for stream in (STREAM, OTHER):
        twin.become_member(stream, 4)
        twin.append("a" * 1000, "b", stream=stream, term=4)
        twin.order(stream=stream)
    twin.flush()
    for stream in (STREAM, OTHER):
        twin.append("c", stream=stream, term=4)
        twin.order(stream=stream)
    twin.sync()
    twin.disk.close()
    return twin


def segment_of(twin: Twin, stream: StreamId = STREAM) -> str:
    (path,) = [
        path
        for path in twin.sim.files()
        if f"/{stream:016d}/" in path and path.endswith(".segment")
    ]
    return path


def test_a_damaged_segment_makes_its_replica_incomplete_and_leaves_the_others(twin: Twin) -> None:
    path = segment_of(twin)
    twin.sim.truncate(path, 100)
    disk = open_disk(twin.sim.vfs(), phase="next")
    found = disk.stored(STREAM)
    assert list(disk.damaged) == [STREAM]
    had = EntryId(Term(4), Llsn(3))
    assert found == Stored(hard_state=HardState(Term(4), is_complete=False, had=had))
    assert disk.stored(OTHER).end == 4
    assert path in twin.sim.files(), "there may be nothing better left anywhere"


def test_a_missing_segment_is_damage_and_no_end_of_the_log(twin: Twin) -> None:
    twin.sim.vfs().unlink(segment_of(twin))
    disk = open_disk(twin.sim.vfs(), phase="next")
    found = disk.stored(STREAM).hard_state
    assert found is not None
    assert not found.is_complete


def test_what_was_given_up_is_given_up_for_good(twin: Twin) -> None:
    path = segment_of(twin)
    twin.sim.truncate(path, 100)
    open_disk(twin.sim.vfs(), phase="next").close()
    again = open_disk(twin.sim.vfs(), phase="after")
    assert not again.damaged
    assert again.stored(STREAM).end == 1
    again.close()


def test_a_replica_that_gives_itself_up_keeps_its_term_and_the_head_that_it_had(twin: Twin) -> None:
    disk = open_disk(twin.sim.vfs(), phase="next")
    disk.give_up(STREAM)
    disk.sync()
    had = EntryId(Term(4), Llsn(3))
    expected = Stored(hard_state=HardState(Term(4), is_complete=False, had=had))
    assert disk.stored(STREAM) == expected
    disk.close()
    assert open_disk(twin.sim.vfs(), phase="after").stored(STREAM) == expected


def test_giving_up_never_takes_back_a_term_that_was_just_begun(twin: Twin) -> None:
    disk = open_disk(twin.sim.vfs(), phase="next")
    disk.begin(STREAM, TOPIC, Write(1, hard_state=HardState(Term(9), is_complete=True)))
    disk.begin(STREAM, TOPIC, Write(2, batches=(values(9, 4, "new"),)))
    disk.give_up(STREAM)
    disk.sync()
    had = EntryId(Term(9), Llsn(4))
    expected = Stored(hard_state=HardState(Term(9), is_complete=False, had=had))
    assert disk.stored(STREAM) == expected


def test_a_read_that_meets_damage_tells_it_and_answers_nothing(twin: Twin) -> None:
    twin.sim.flip_bit(segment_of(twin), 500, 3)
    disk = open_disk(twin.sim.vfs(), phase="next")
    assert disk.reader(STREAM).batches(Llsn(1), 1000) is None
    assert "checksum" in disk.damage(STREAM)
    assert not disk.damage(OTHER)


def test_a_damaged_wal_frame_before_others_keeps_the_node_from_opening(twin: Twin) -> None:
    (path,) = [path for path in twin.sim.files() if path.endswith("2.wal")]
    twin.sim.flip_bit(path, 70, 1)
    twin.disk.node.lock_file.release()
    with pytest.raises(CorruptData, match=r"WAL.*wipe"):
        open_disk(twin.sim.vfs(), phase="next")


def test_the_directory_of_another_cluster_is_refused(twin: Twin) -> None:
    other = bytes(reversed(CLUSTER))
    with pytest.raises(WrongCluster):
        ReplicaDisk.open(
            twin.sim.vfs(), PATH, cluster_id=other, wal_file_bytes=FILE_BYTES, create=False
        )


def test_a_log_of_its_own_is_no_directory_of_a_storage_node() -> None:
    sim = SimDisk()
    node = open_node_store(sim.vfs(), PATH, StoreOptions(FILE_BYTES, log_id=CLUSTER))
    node.add_topic("mine", streams=1, versions="log")
    node.close()
    with pytest.raises(NotALog):
        ReplicaDisk.open(sim.vfs(), PATH, cluster_id=CLUSTER, wal_file_bytes=FILE_BYTES)


def test_a_full_disk_leaves_the_writes_queued_until_there_is_room() -> None:
    twin = Twin()
    twin.become_member()
    twin.sync()
    twin.sim.fail(Op.WRITE, ".wal", errno.ENOSPC, times=1)
    twin.append("x" * FILE_BYTES)
    with pytest.raises(DiskFull):
        twin.disk.sync()
    assert twin.disk.has_begun
    twin.check_seen()
    twin.sync()
    twin.crash()
    twin.check()


def test_a_full_disk_can_refuse_a_new_stream_and_take_it_later() -> None:
    twin = Twin()
    twin.sim.fail(Op.CREATE, "manifest.tmp", errno.ENOSPC, times=1)
    twin.become_member()
    with pytest.raises(DiskFull):
        twin.disk.sync()
    twin.restart()
    twin.check()


def test_a_failed_sync_is_final() -> None:
    twin = Twin()
    twin.become_member()
    twin.sync()
    twin.sim.fail(Op.SYNC, ".wal", errno.EIO, times=1)
    twin.append("x")
    for _ in range(2):
        with pytest.raises(StorageFailed):
            twin.disk.sync()
