"""Start and end of the service: addresses, signals, restarts, and what is under way at the end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.running import run_json
from tests.client.proxy import wait_until
from tests.embedded.logs import gated
from tests.replica_service.local_replica import LocalReplica
from tests.replica_service.raw_master import Connection, RawMaster
from tests.replica_service.replica_process import ReplicaProcess, run_tidelog
from tests.security.material import TOKEN, WRONG_TOKEN, client, pem
from tidelog.core.session.messages import (
    Ack,
    BlobWrite,
    Error,
    ErrorCode,
    GroupCommit,
    LogChannelFlush,
    LogEntryWrite,
    SessionBegun,
)
from tidelog.core.session.output import Prepare
from tidelog.embedded.options import Options
from tidelog.errors import ConnectionLost, DiskFull, LogError, LogLocked
from tidelog.formats.messages import Hello, Refused, decode_answer, encode_message
from tidelog.formats.wire import encode_frame
from tidelog.invariants import InvariantViolation
from tidelog.limits import KIB, MIB
from tidelog.net.endpoint import parse_endpoint
from tidelog.replica_service.replica_store import ReplicaStore
from tidelog.replica_service.service import ServiceOptions
from tidelog.storage.os_vfs import OsVfs
from tidelog.testing.disk import SimDisk


def test_a_port_in_use_is_told_and_nothing_else_happens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        done = run_tidelog("replica", "--data", str(tmp_path / "data"), "--listen", address)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tidelog: cannot listen at {address}: ")
    assert not done.stdout


def test_a_directory_that_is_in_use_is_told(tmp_path: Path) -> None:
    with LocalReplica.at(tmp_path / "data") as replica, RawMaster(replica):
        done = run_tidelog(
            "replica", "--data", str(tmp_path / "data"), "--listen", "tcp://127.0.0.1:0"
        )
    assert done.returncode == 6
    assert "open in another process" in done.stderr


def test_an_empty_directory_has_one_service_and_is_free_after_it(tmp_path: Path) -> None:
    with LocalReplica.at(tmp_path / "data"):
        done = run_tidelog(
            "replica", "--data", str(tmp_path / "data"), "--listen", "tcp://127.0.0.1:0"
        )
        assert done.returncode == 6
        assert "open in another process" in done.stderr
    recorded: dict[int, int] = {}
    with LocalReplica.at(tmp_path / "data") as again, RawMaster(again, recorded) as master:
        assert isinstance(master.write(0, 1, b"a"), Ack)


def test_a_directory_stays_locked_when_its_store_could_not_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, wanted = str(tmp_path / "data"), Prepare(1, "ab" * 16, 1)
    store = ReplicaStore(OsVfs(), path)
    store.open()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        with pytest.raises(DiskFull):
            store.prepare(wanted)
    with pytest.raises(LogLocked):
        ReplicaStore(OsVfs(), path).open()
    assert store.prepare(wanted)
    store.close()
    again = ReplicaStore(OsVfs(), path)
    again.open()
    again.close()


def test_a_directory_below_a_file_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "data", tmp_path / "none" / "data"):
        done = run_tidelog("replica", "--data", str(path), "--listen", "tcp://127.0.0.1:0")
        assert done.returncode == 4
        assert "there is no directory" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_service_in_order(tmp_path: Path, number: int) -> None:
    """With connections that wait for nothing, and after them it starts again."""
    recorded: dict[int, int] = {}
    path = f"unix://{tmp_path / 'socket'}"
    with ReplicaProcess(tmp_path / "data", endpoint=path) as replica:
        assert replica.address == path
        with RawMaster(replica, recorded) as master, Connection(replica.address) as idle:
            assert isinstance(master.write(0, 1, b"a"), Ack)
            assert isinstance(master.commit(1), Ack)
            assert isinstance(master.write(0, 2, b"b"), Ack)
            replica.ask_to_stop(number)
            assert master.control.is_hung_up
            assert master.lane().is_hung_up
            assert idle.is_hung_up
        assert replica.wait() == 0
        assert replica.errors() == ""
    assert not (tmp_path / "socket").exists()
    with LocalReplica.at(tmp_path / "data") as again, RawMaster(again, recorded) as master:
        assert again.epoch == 1
        assert isinstance(master.write(0, 2, b"b"), Ack)
        assert isinstance(master.commit(2), Ack)


def test_a_request_in_work_is_answered_before_the_service_ends() -> None:
    vfs, gate = gated(SimDisk())
    with LocalReplica(vfs) as replica, RawMaster(replica) as master:
        assert isinstance(master.write(0, 1, b"a", flush=False), Ack)
        lane = master.lane()
        with gate.shut():
            lane.send(LogChannelFlush())
            gate.wait_until_held()
            replica.ask_to_stop()
            wait_until(lambda: not replica.service.is_ready, "it stops")
            with pytest.raises(OSError, match="refused"):
                Connection(replica.address)
        assert isinstance(lane.answer(), Ack)
        assert lane.is_hung_up
        master.close()
        replica.wait()


def test_a_request_that_comes_during_the_stop_is_not_begun() -> None:
    vfs, gate = gated(SimDisk())
    with LocalReplica(vfs) as replica, RawMaster(replica) as master:
        slow, late = master.lane(0), master.lane(1)
        assert isinstance(master.write(0, 1, b"a", flush=False), Ack)
        with gate.shut():
            slow.send(LogChannelFlush())
            gate.wait_until_held()
            replica.ask_to_stop()
            wait_until(lambda: not replica.service.is_ready, "it stops")
            batch = master.batch(1, 1, b"late")
            late.send(LogEntryWrite(1, session_begin=True, session_end=True), batch.data)
        assert isinstance(slow.answer(), Ack)
        with pytest.raises(ConnectionLost):
            late.answer()
        master.close()
        replica.wait()


def test_a_frame_that_waited_for_room_is_not_begun_during_the_stop() -> None:
    vfs, gate = gated(SimDisk(), suffix=".1")  # The parts of the first BLOB.
    options = ServiceOptions(in_flight_bytes_max=MIB)
    with LocalReplica(vfs, options) as replica, RawMaster(replica) as master:
        slow, late = master.lane(0), master.lane(1)
        with gate.shut():
            slow.send(BlobWrite(1, 0, MIB), b"x" * MIB)
            gate.wait_until_held()
            late.send(BlobWrite(2, 0, 8 * KIB), b"x" * 8 * KIB)
            wait_until(lambda: bool(replica.service._room._waiting), "it waits for room")
            replica.ask_to_stop()
            wait_until(lambda: not replica.service.is_ready, "it stops")
        assert isinstance(slow.answer(), Ack)
        with pytest.raises(ConnectionLost):
            late.answer()
        master.close()
        replica.wait()
        assert replica.service.counters.requests["BlobWrite"] == 1


def test_log_channels_share_a_sync() -> None:
    """While one sync runs, all channels that flush meanwhile wait for the one after it."""
    vfs, gate = gated(SimDisk())
    with LocalReplica(vfs) as replica, RawMaster(replica, channels=8) as master:
        for channel in range(8):
            assert isinstance(master.write(channel, 1, b"a", flush=False), Ack)
        lanes = [master.lane(channel) for channel in range(8)]
        with gate.shut():
            lanes[0].send(LogChannelFlush())
            gate.wait_until_held()
            for lane in lanes[1:]:
                lane.send(LogChannelFlush())
            wait_until(
                lambda: replica.service.counters.requests["LogChannelFlush"] == 8, "all flush"
            )
            gate.let_pass(2)
            for lane in lanes:
                assert isinstance(lane.answer(), Ack)


def test_a_group_commit_is_refused_while_the_store_is_at_a_write_of_its_epoch() -> None:
    vfs, gate = gated(SimDisk())
    with LocalReplica(vfs) as replica, RawMaster(replica) as master:
        lane, batch = master.lane(), master.batch(0, 1, b"a")
        with gate.shut():
            lane.send(LogEntryWrite(1, True, True, flush=True), batch.data)
            gate.wait_until_held()
            assert master.control.error(GroupCommit(1)) is ErrorCode.LOG_SESSION_OPEN
        assert isinstance(lane.answer(), Ack)
        assert isinstance(master.commit(1), Ack)


def test_a_slow_disk_for_one_channel_holds_no_other_request_back() -> None:
    vfs, gate = gated(SimDisk())
    with LocalReplica(vfs) as replica, RawMaster(replica) as master:
        assert isinstance(master.write(0, 1, b"a", flush=False), Ack)
        master.lane(1)
        with gate.shut():
            master.lane(0).send(LogChannelFlush())
            gate.wait_until_held()
            assert isinstance(master.write(1, 1, b"b", flush=False), Ack)
            with Connection(replica.address) as other:
                assert other.error(LogChannelFlush())
        assert isinstance(master.lane(0).answer(), Ack)


def test_pages_tell_whether_the_service_lives_and_is_ready(tmp_path: Path) -> None:
    with ReplicaProcess(tmp_path / "data") as replica, RawMaster(replica) as master:
        for page, text in (("healthz", b"alive\n"), ("readyz", b"ready\n")):
            with urlopen(f"{replica.http}/{page}", timeout=10) as answer:
                assert answer.read() == text
        assert isinstance(master.write(0, 1, b"a", b"b"), Ack)
        master.blob(0, 5, b"blob")
        assert isinstance(master.commit(1), Ack)
        metrics = replica.metrics()
        for name, value in {
            "epoch": 1, "boundary": 0, "channels": 1, "session{open}": 1,
            "session{listening}": 0, "sessions_total": 1, "entries_total": 2,
            "group_commits_total": 1, "blobs_total": 1, "blob_bytes_total": 4,
            "requests_total{LogEntryWrite}": 1, "open_connections": 2, "held_bytes": 0,
        }.items():  # fmt: skip
            assert metrics[name] == value, name
        for name in ("entry_bytes", "fsyncs", "fsync_seconds", "appends", "append_seconds"):
            assert metrics[f"{name}_total"] > 0, name


def test_a_session_waits_for_what_the_store_still_does_for_a_dead_one() -> None:
    vfs, gate = gated(SimDisk())
    with LocalReplica(vfs) as replica, RawMaster(replica) as dead:
        assert isinstance(dead.write(0, 1, b"lost", flush=False), Ack)
        with gate.shut():
            dead.lane(0).send(LogChannelFlush())
            gate.wait_until_held()
            dead.close()
            wait_until(lambda: not replica.service.counters.connections, "all are gone")
            control = Connection(replica.address)
            control.send(dead.session_begin())
            wait_until(
                lambda: replica.service.counters.requests["SessionBegin"] == 2, "it was heard"
            )
            assert replica.state == "listening"
            with Connection(replica.address) as second:
                assert second.error(dead.session_begin()) is ErrorCode.SESSION_OPEN
                assert second.is_hung_up
        with control:
            assert isinstance(control.answer(), SessionBegun)
            assert replica.state == "open"
        with RawMaster(replica) as master:
            assert isinstance(master.write(0, 1, b"again"), Ack)
            assert isinstance(master.commit(1), Ack)


@pytest.mark.parametrize("name", ["core", "store"])
def test_a_broken_invariant_ends_the_service(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing after it can be trusted, so no request is answered as if nothing had happened."""

    def broken(*_: object, **__: object) -> None:
        raise InvariantViolation("this cannot be")

    options = ServiceOptions(stop_seconds=0.1)
    with LocalReplica(options=options) as replica, RawMaster(replica) as master:
        lane = master.lane()
        if name == "core":
            monkeypatch.setattr(replica.service.sessions.core, "done", broken)
        else:
            monkeypatch.setattr(ReplicaStore, "carry_out", broken)
        batch = master.batch(0, 1, b"a")
        lane.send(LogEntryWrite(1, session_begin=True, flush=True), batch.data)
        if name == "store":
            answer = lane.answer()
            assert isinstance(answer, Error)
            assert answer.code == ErrorCode.WRITE_FAILED
        else:
            with pytest.raises(ConnectionLost):
                lane.answer()
        master.close()
        with pytest.raises(LogError, match="this cannot be"):
            replica.wait()


def test_large_batches_are_taken_while_others_are_served(tmp_path: Path) -> None:
    with LocalReplica.at(tmp_path / "data") as replica:
        with RawMaster(replica) as master:
            keys = [b"%d" % n + b"k" * 1000 for n in range(2000)]
            for channel in range(2):
                batch = master.batch(channel, 1, *keys)
                master.lane(channel).send(LogEntryWrite(1, True, True), batch.data)
                master.took(channel, 1, batch)
            for channel in range(2):
                assert isinstance(master.lane(channel).answer(), Ack)
            damaged = bytearray(master.batch(0, 1, *keys).data)
            damaged[-1] ^= 1
            code = master.lane(0).error(LogEntryWrite(1, True, True), bytes(damaged))
            assert code is ErrorCode.BAD_ENTRIES
            assert isinstance(master.commit(1), Ack)
            # It hangs up before anything could be decoded.
            batch = master.batch(0, 2, *keys)
            master.lane(0).send(LogEntryWrite(2, True, True), batch.data)
        with RawMaster(replica, master.recorded) as master:
            assert isinstance(master.write(0, 2, b"next"), Ack)


def test_a_new_boundary_has_the_replica_compacted(tmp_path: Path) -> None:
    """What is restored is the same, and overwritten entries and BLOBs are gone."""
    options = Options(background=False, wal_file_bytes=64 * KIB)
    with (
        LocalReplica(OsVfs(), path=str(tmp_path / "data"), store_options=options) as replica,
        RawMaster(replica) as master,
    ):
        keys = [b"%d" % n + b"k" * 500 for n in range(50)]
        for epoch in range(1, 11):
            master.blob(0, epoch, b"blob")
            assert isinstance(master.write(0, epoch, *keys, blobs=(epoch,)), Ack)
            assert isinstance(master.commit(epoch), Ack)
        assert len(list(tmp_path.glob("data/blobs/*/*.blob"))) == 10
        assert isinstance(master.boundary(9 << 64 | len(keys)), Ack)
        wait_until(lambda: replica.service.counters.compactions == 1, "it is compacted")
        assert replica.service.counters.compaction_failures == 0
        assert len(list(tmp_path.glob("data/blobs/*/*.blob"))) < 10
        assert isinstance(master.write(0, 11, b"after"), Ack)
        assert isinstance(master.commit(11), Ack)
    found = run_json("restore", "--from", tmp_path / "data", "--to", tmp_path / "new")
    assert (found["epoch"], found["entries"], found["blobs"]) == (11, 51, 1)


def test_a_boundary_that_moves_during_a_compaction_has_another_one_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, go_on = threading.Event(), threading.Event()
    compact = ReplicaStore.compact

    def wait(store: ReplicaStore) -> list[str]:
        began.set()
        assert go_on.wait(10)
        return compact(store)

    monkeypatch.setattr(ReplicaStore, "compact", wait)
    with LocalReplica() as replica, RawMaster(replica) as master:
        assert isinstance(master.boundary(1), Ack)
        assert began.wait(10)
        for boundary in (2, 3):
            assert isinstance(master.boundary(boundary), Ack)
        go_on.set()
        wait_until(lambda: replica.service.counters.compactions == 2, "both are done")


def test_a_replica_speaks_tls_and_asks_for_certificate_and_token(tmp_path: Path) -> None:
    token_file = tmp_path / "tokens"
    token_file.write_text(f"{TOKEN}\n")
    token_file.chmod(0o600)
    options = (
        "--tls-cert", pem("server"), "--tls-key", pem("server.key"),
        "--tls-client-ca", pem("ca"), "--token-file", str(token_file),
    )  # fmt: skip
    with ReplicaProcess(tmp_path / "data", *options, endpoint="tls://127.0.0.1:0") as replica:
        assert replica.address.startswith("tls://")
        context = client("client").for_endpoint(parse_endpoint(replica.address)).ssl_context()
        assert context is not None
        with RawMaster(replica, token=TOKEN, context=context) as master:
            master.blob(0, 1, b"b" * MIB)
            assert isinstance(master.write(0, 1, b"a", blobs=(1,)), Ack)
            assert isinstance(master.commit(1), Ack)
        with Connection(replica.address, greet=False, context=context) as stranger:
            hello = encode_message(Hello("test", token=WRONG_TOKEN))
            stranger.send_bytes(encode_frame(hello, request=0))
            assert isinstance(decode_answer(stranger.receive()), Refused)
        with Connection(replica.address, greet=False) as stranger:
            stranger.send_bytes(encode_frame(encode_message(Hello("test")), request=0))
            assert isinstance(decode_answer(stranger.receive()), Refused)


@pytest.mark.parametrize(("name", "code"), [("identity", 4), ("streams/1/1.segment", 3)])
def test_a_directory_that_holds_something_else_is_told(
    tmp_path: Path, name: str, code: int
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"mine")
    done = run_tidelog("replica", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:0")
    assert (done.returncode, done.stdout) == (code, "")
    assert "no log" in done.stderr or "manifest is missing" in done.stderr
