"""A datastore and ``tidelog replica`` as a process: sockets of all kinds, death, restore."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.datastore.stores import (
    LONG,
    SMALL,
    Notices,
    commit,
    contents,
    open_store,
    put,
    stored_at,
)
from tests.embedded.test_closing import fork, wait_for
from tests.replica_service.replica_process import ReplicaProcess
from tests.security.material import TOKEN, WRONG_TOKEN, client, pem
from tidelog.core.session.output import Durability
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.endpoints import ENVIRONMENT
from tidelog.datastore.log_channel import LogChannel
from tidelog.errors import LogClosed, LogError, ReplicationFailed, Unauthorized
from tidelog.net.security import ClientSecurity


def test_a_pair_from_its_first_epoch_to_a_restart_on_either_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = tmp_path / "master", tmp_path / "replica"
    with ReplicaProcess(theirs) as replica:
        monkeypatch.setenv(ENVIRONMENT, replica.address)
        store = Datastore(mine, options=SMALL)
        channels = [store.create_channel() for _ in range(2)]
        with store:
            store.ready()
            store.switch_epoch(1)
            put(channels[0], b"k1", b"v1", 1)
            assert (store.last_epoch, replica.epoch) == (0, 0)
            commit(store, 1)
            assert (store.last_epoch, replica.epoch) == (1, 1)
            put(channels[1], b"k2", b"v2", 2)
            assert (store.last_epoch, replica.epoch) == (1, 1)
            commit(store, 2)
            assert (store.last_epoch, replica.epoch) == (2, 2)
        assert replica.state == "listening"
        assert replica.stop() == 0
    monkeypatch.delenv(ENVIRONMENT)
    expected = {(1, b"k1"): (b"v1", 1, ()), (1, b"k2"): (b"v2", 2, ())}
    assert stored_at(mine) == stored_at(theirs) == expected


def test_a_killed_replica_stops_the_master_and_keeps_what_was_propagated(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "master", tmp_path / "replica"
    notices = Notices()
    with ReplicaProcess(theirs) as replica:
        store, [channel] = open_store(mine, replicas=[replica.address], notices=notices)
        with store:
            store.switch_epoch(1)
            epoch = 1
            for number in range(20):
                put(channel, b"%d" % number, b"", number + 1)
                commit(store, epoch)
                epoch += 1
            replica.kill()
            with pytest.raises(ReplicationFailed):
                put(channel, b"late", b"", 100)
            with pytest.raises(ReplicationFailed):
                store.switch_epoch(epoch + 1)
    assert notices.epochs(Durability.PROPAGATED) == list(range(1, 21))
    expected = {(1, b"%d" % number): (b"", number + 1, ()) for number in range(20)}
    assert stored_at(mine) == stored_at(theirs) == expected


def write_one(
    path: Path, replica: str, security: ClientSecurity | None = None
) -> tuple[Datastore, LogChannel]:
    store = Datastore(path, replicas=[replica], options=SMALL, security=security)
    channel = store.create_channel()
    store.ready()
    store.switch_epoch(1)
    put(channel, b"a", bytes(300_000), 1)
    return store, channel


def test_a_unix_socket_does_as_well(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with ReplicaProcess(tmp_path / "replica", endpoint=f"unix://{socket}") as replica:
        store, _ = write_one(tmp_path / "master", replica.address)
        with store:
            commit(store, 1)
        assert replica.epoch == 1


def test_with_tls_and_a_token_only_those_who_have_them_come_in(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    options = [
        f"--tls-cert={pem('server')}",
        f"--tls-key={pem('server.key')}",
        f"--tls-client-ca={pem('ca')}",
        f"--token-file={tokens}",
    ]
    with ReplicaProcess(tmp_path / "replica", *options, endpoint="tls://127.0.0.1:0") as replica:
        strangers = [
            ClientSecurity(token=TOKEN),
            client(token=TOKEN),
            client("client", token=WRONG_TOKEN),
            client("client"),
            client("client", ca="other_ca", token=TOKEN),
        ]
        for security in strangers:
            with pytest.raises(Unauthorized):
                write_one(tmp_path / "master", replica.address, security)
        plain = replica.address.replace("tls://", "tcp://")
        with pytest.raises(LogError):
            write_one(tmp_path / "master", plain, ClientSecurity(token=TOKEN))
        store, channel = write_one(
            tmp_path / "master", replica.address, client("client", token=TOKEN)
        )
        with store:
            with store.blob_pool() as pool, channel.session():
                blob = pool.register_data(bytes(2_500_000))
                channel.add_entry(1, b"b", b"", 2, [blob])
            commit(store, 1)
            assert len(contents(store)) == 2
        assert replica.epoch == 1


def test_a_forked_process_leaves_the_datastore_and_its_connections_alone(tmp_path: Path) -> None:
    with ReplicaProcess(tmp_path / "replica") as replica:
        store, [channel] = open_store(tmp_path / "master", replicas=[replica.address])
        with store:
            store.switch_epoch(1)
            channel.begin_session()
            pool = store.blob_pool()

            def work() -> None:
                for call in (channel.end_session, channel.abort_session, store.compact):
                    with pytest.raises(LogClosed, match="forked"):
                        call()
                pool.release()
                store.close()

            wait_for(fork(work))
            channel.add_entry(1, b"a", b"", 1, [pool.register_data(b"blob")])
            channel.end_session()
            commit(store, 1)
            assert replica.epoch == 1


def test_a_replica_that_dies_while_the_master_waits_ends_the_wait(tmp_path: Path) -> None:
    options = replace(SMALL, ack_timeout_seconds=LONG)
    with ReplicaProcess(tmp_path / "replica") as replica:
        store, [channel] = open_store(
            tmp_path / "master", replicas=[replica.address], options=options
        )
        with store:
            store.switch_epoch(1)
            put(channel, b"a", b"", 1)
            replica.kill()
            store.switch_epoch(2)
            with pytest.raises(ReplicationFailed):
                store.wait_for(1, timeout=LONG)
