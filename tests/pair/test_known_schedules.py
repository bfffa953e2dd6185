"""Known bad schedules between a real master and a real replica, made to happen by a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.client.proxy import wait_until
from tests.datastore.stores import LONG, SMALL, Notices, commit, open_store, put
from tests.pair.frame_proxy import FrameProxy, Verdict
from tests.replica_service.broken_disk_replica import BrokenVfs, Fault
from tests.replica_service.replica_process import BROKEN_DISK, ReplicaProcess
from tidelog.cli.restore_files import restore
from tidelog.core.session.messages import (
    Ack,
    Answer,
    BlobWrite,
    ErrorCode,
    GroupCommit,
    Request,
)
from tidelog.core.session.output import Durability
from tidelog.datastore.datastore import Datastore
from tidelog.errors import LogError, ReplicaRefused, ReplicationFailed, StorageFailed
from tidelog.limits import MIB

DISK_FAULT = "sync\nEIO\n.wal\n"


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[ReplicaProcess]:
    with ReplicaProcess(tmp_path / "replica") as running:
        yield running


def group_commits(proxy: FrameProxy) -> list[int]:
    return [request.epoch for _, request in proxy.requests if isinstance(request, GroupCommit)]


def assert_refused(master: Path, replica: str) -> None:
    store = Datastore(master, replicas=replica, options=SMALL)
    store.create_channel()
    with pytest.raises(ReplicaRefused) as caught:
        store.ready()
    store.close()
    assert caught.value.code == ErrorCode.WRONG_POSITION


def test_a_group_commit_waits_for_the_flush_of_a_session_that_ends_slowly(
    tmp_path: Path, replica: ReplicaProcess
) -> None:
    """S2: the epoch is over long since, and other channels have gone on to later ones."""
    with FrameProxy(replica.address) as proxy, ThreadPoolExecutor(1) as pool:
        notices = Notices()
        store, (slow, quick) = open_store(
            tmp_path / "master", channels=2, replicas=[proxy.endpoint], notices=notices
        )
        with store:
            store.switch_epoch(1)
            commit(store, 1)
            store.switch_epoch(3)
            lane = slow.number

            def hold_its_acks(at: int, message: Request | Answer) -> Verdict:
                is_its = at == lane and isinstance(message, Ack)
                return Verdict.HOLD if is_its else Verdict.PASS

            proxy.judge = hold_its_acks
            ending = pool.submit(put, slow, b"slow", b"value", 3 << 64)
            proxy.wait_until_held()
            store.switch_epoch(4)
            put(quick, b"quick", b"value", 4 << 64)
            store.switch_epoch(5)
            # They take turns with group commits: one that was due would be among them.
            for boundary in (1, 2, 3):
                store.set_gc_boundary(boundary)
            assert max(group_commits(proxy)) < 3
            assert max(notices.epochs(Durability.STORED)) < 3
            assert not ending.done()
            proxy.release()
            ending.result(LONG)
            store.wait_for(4, timeout=LONG)
            assert group_commits(proxy)[-1] == 4
            assert replica.epoch == 4


def test_a_group_commit_that_is_lost_leaves_the_master_ahead_and_is_noticed(
    tmp_path: Path, replica: ReplicaProcess
) -> None:
    """S4: the master recorded the epoch, the order for the replica never arrived."""
    with FrameProxy(replica.address) as proxy:
        store, [channel] = open_store(tmp_path / "master", replicas=[proxy.endpoint])
        with store:
            store.switch_epoch(1)
            commit(store, 1)
            put(channel, b"key", b"value", 2 << 64)
            proxy.judge = lambda _, message: (
                Verdict.CUT if isinstance(message, GroupCommit) else Verdict.PASS
            )
            store.switch_epoch(3)
            store.wait_for(2, Durability.STORED, timeout=LONG)
            with pytest.raises(ReplicationFailed):
                store.wait_for(2, timeout=LONG)
            assert store.last_epoch == 2
    assert replica.epoch == 1
    replica.wait_for("listening")
    assert_refused(tmp_path / "master", replica.address)
    assert replica.stop() == 0
    # The operator copies the newer side; then they are a pair again.
    restore(str(tmp_path / "master"), str(tmp_path / "copy"), lambda _: None)
    with ReplicaProcess(tmp_path / "copy") as copied:
        store, [channel] = open_store(tmp_path / "master", replicas=[copied.address])
        with store:
            store.switch_epoch(3)
            put(channel, b"key", b"newer", 3 << 64)
            commit(store, 3)
            assert copied.epoch == 3


def test_a_master_that_cannot_record_what_its_replica_has_falls_behind_and_is_noticed(
    tmp_path: Path, replica: ReplicaProcess
) -> None:
    """S4, in the other direction: the order left before the master's own write failed."""
    fault = tmp_path / "fault"
    store, [channel] = open_store(
        tmp_path / "master", replicas=[replica.address], vfs=BrokenVfs(Fault(fault))
    )
    with store:
        store.switch_epoch(1)
        commit(store, 1)
        put(channel, b"key", b"value", 2 << 64)
        fault.write_text("write\nEIO\n.wal\n")
        store.switch_epoch(3)
        with pytest.raises(StorageFailed):
            store.wait_for(2, Durability.STORED, timeout=LONG)
        wait_until(lambda: replica.epoch == 2, "the replica has committed")
    fault.unlink()
    replica.wait_for("listening")
    assert_refused(tmp_path / "master", replica.address)


def test_a_broken_disk_of_the_replica_reaches_the_master_and_nothing_is_propagated(
    tmp_path: Path,
) -> None:
    """S8"""
    path = tmp_path / "replica"
    with ReplicaProcess(path, program=BROKEN_DISK) as replica:
        notices = Notices()
        store, [channel] = open_store(
            tmp_path / "master", replicas=[replica.address], notices=notices
        )
        with store:
            store.switch_epoch(1)
            put(channel, b"key", b"value", 1 << 64)
            commit(store, 1)
            Path(f"{path}.fault").write_text(DISK_FAULT)
            with pytest.raises(ReplicationFailed):
                put(channel, b"key", b"newer", 2 << 64)
            with pytest.raises(ReplicationFailed):
                channel.begin_session()
        assert max(notices.epochs(Durability.PROPAGATED)) == 1
        assert replica.wait() == 1
        Path(f"{path}.fault").unlink()
    restore(str(path), str(tmp_path / "restored"), lambda _: None)
    with Datastore(tmp_path / "restored") as restored:
        restored.create_channel()
        restored.ready()
        assert [(entry.key, entry.value) for entry in restored.entries()] == [(b"key", b"value")]


def test_a_blob_that_is_cut_off_leaves_nothing_on_the_replica(
    tmp_path: Path, replica: ReplicaProcess
) -> None:
    """S9: not while the service lives on, and not after it was killed."""
    data = bytes(range(256)) * (4 * MIB // 256)

    def try_to_send(proxy: FrameProxy) -> None:
        store, [channel] = open_store(tmp_path / "master", replicas=[proxy.endpoint])
        proxy.judge = lambda _, message: (
            Verdict.CUT if isinstance(message, BlobWrite) and message.offset else Verdict.PASS
        )
        with store, store.blob_pool() as pool:
            store.switch_epoch(store.last_epoch + 1)
            blob = pool.register_data(data)
            with pytest.raises(LogError), channel.session() as session:
                session.add_entry(1, b"key", b"", 1 << 64, [blob])

    with FrameProxy(replica.address) as proxy:
        try_to_send(proxy)
        replica.wait_for("listening")
        assert [lane for lane, request in proxy.requests if isinstance(request, BlobWrite)]
    with FrameProxy(replica.address) as proxy:
        try_to_send(proxy)
        replica.kill()
    with ReplicaProcess(tmp_path / "replica") as restarted:
        assert not [path for path in (tmp_path / "replica" / "blobs").rglob("*") if path.is_file()]
        store, [channel] = open_store(tmp_path / "master", replicas=[restarted.address])
        with store, store.blob_pool() as pool:
            epoch = store.last_epoch + 1
            store.switch_epoch(epoch)
            blob = pool.register_data(data)
            with channel.session() as session:
                session.add_entry(1, b"key", b"", epoch << 64, [blob])
            commit(store, epoch)
        assert restarted.stop() == 0
    restored = restore(str(tmp_path / "replica"), str(tmp_path / "restored"), lambda _: None)
    assert (restored.entries, restored.blobs) == (1, 1)
