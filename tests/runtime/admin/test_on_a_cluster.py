"""Administration of real processes: what is asked for happens, and no record is lost over it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

import tidelog
from tests.cli.running import run, run_json
from tidelog.client.blocking import RemoteLog
from tidelog.errors import Sealed, WrongState
from tidelog.interface.cluster_figures import ClusterStatus, ClusterStream
from tidelog.interface.cluster_health import health_of, worst_of
from tidelog.testing.local_cluster import LocalCluster

SECONDS = 60.0
TOKEN = "a-token-of-this-test"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(4, streams=2, replicas=3) as made:
        yield made


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[RemoteLog]:
    with cluster.connect() as connected:
        yield connected


def stream_of(status: ClusterStatus, number: int) -> ClusterStream:
    found = status.stream(number)
    assert found is not None
    return found


def follower_of(stream: ClusterStream) -> int:
    return next(node for node in stream.ensemble if node != stream.leader)


def spare_of(stream: ClusterStream, status: ClusterStatus) -> int:
    return next(node.node for node in status.nodes if node.node not in stream.ensemble)


class Load:
    """Appends in a thread, and what was acknowledged."""

    def __init__(self, log: RemoteLog, stream: int) -> None:
        self._log = log
        self._stream = stream
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.values: list[bytes] = []

    def _run(self) -> None:
        while not self._ended.is_set():
            value = b"%d-%d" % (monotonic() * 1e9, len(self.values))
            self._log.append(value, stream=self._stream, timeout=SECONDS)
            self.values.append(value)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


@contextmanager
def load(log: RemoteLog, stream: int) -> Iterator[Load]:
    """Appends while something is done; all of them must be there at the end, once, in order."""
    begin = log.high_watermark + 1
    work = Load(log, stream)
    work.start()
    try:
        yield work
    finally:
        work.stop()
    found = [record.value for record in log.read(begin) if record.stream == stream]
    assert found == work.values
    assert work.values


def test_a_whole_cluster_is_well(cluster: LocalCluster) -> None:
    wait_until_well(cluster)
    status = run_json("status", "-d", cluster.url)

    assert status["healthy"]
    assert len(status["nodes"]) == 4
    assert all(stream["leader"] for stream in status["streams"])
    assert "4 of 4 nodes answer" in run("doctor", "-d", cluster.url).stdout


def test_a_replica_is_swapped_while_records_come(cluster: LocalCluster, log: RemoteLog) -> None:
    status = log.admin.status()
    stream = stream_of(status, 1)
    old, new = follower_of(stream), spare_of(stream, status)

    with load(log, 1):
        steps = list(log.admin.swap(1, old, new))

    assert "done" in steps[-1].text
    assert set(stream_of(log.admin.status(), 1).ensemble) == {*stream.ensemble, new} - {old}
    assert [step.text for step in log.admin.swap(1, old, new)] == [steps[-1].text]


def test_a_stream_is_contracted_and_expanded(cluster: LocalCluster, log: RemoteLog) -> None:
    stream = stream_of(log.admin.status(), 2)
    old = follower_of(stream)

    with load(log, 2):
        run("stream", "contract", "2", "--from", old, "-d", cluster.url)
        assert old not in stream_of(log.admin.status(), 2).ensemble
        run("stream", "expand", "2", "--to", old, "-d", cluster.url)

    assert stream_of(log.admin.status(), 2).ensemble == stream.ensemble


def test_a_leader_is_moved_to_the_node_that_is_named(cluster: LocalCluster, log: RemoteLog) -> None:
    target = follower_of(stream_of(log.admin.status(), 1))
    log.append(b"before", stream=1)

    run("stream", "move-leader", "1", "--to", target, "-d", cluster.url)

    assert stream_of(log.admin.status(), 1).leader == target
    assert log.append(b"after", stream=1).count == 1


def test_the_leader_is_not_removed(cluster: LocalCluster, log: RemoteLog) -> None:
    leader = stream_of(log.admin.status(), 1).leader
    told = run("stream", "contract", "1", "--from", leader, "-d", cluster.url, code=1)
    assert "let another node lead first" in told.stderr


def test_a_sealed_stream_refuses_appends_until_it_is_unsealed(
    cluster: LocalCluster, log: RemoteLog
) -> None:
    number = log.admin.create_stream("default", replicas=3)
    assert number in log.streams
    assert log.append(b"first", stream=number, timeout=SECONDS).llsn

    run("stream", "seal", number, "-d", cluster.url)
    with pytest.raises(Sealed):
        log.append(b"no more", stream=number, timeout=SECONDS)
    run("stream", "unseal", number, "-d", cluster.url)
    assert log.append(b"again", stream=number, timeout=SECONDS).llsn


def test_a_topic_has_as_many_replicas_as_it_was_made_with(cluster: LocalCluster) -> None:
    run("topic", "create", "pair", "--replicas", "2", "--streams", "2", "-d", cluster.url)
    found = run_json("topic", "describe", "pair", "-d", cluster.url)
    assert [len(placed["replicas"]) for placed in found["placements"]] == [2, 2]


def test_members_of_the_metadata_repository_come_and_go(
    cluster: LocalCluster, log: RemoteLog
) -> None:
    before = log.admin.status().metadata
    added = cluster.add_node(roles="storage,metadata,operator")
    try:
        cluster.wait_until_ready()
        run("mr", "add", added.id, "-d", cluster.url)
        run("mr", "add", added.id, "-d", cluster.url)
        assert log.admin.status().metadata.members == tuple(sorted((*before.members, added.id)))
        run("mr", "transfer", added.id, "-d", cluster.url)
        assert log.admin.status().metadata.leader == added.id
        log.append(b"ordered by the new one", timeout=SECONDS)
        run("mr", "transfer", before.members[0], "-d", cluster.url)
        run("mr", "remove", added.id, "-d", cluster.url)
        assert log.admin.status().metadata.members == before.members
        run("node", "drain", added.id, "-d", cluster.url)
        run("node", "remove", added.id, "-d", cluster.url)
    finally:
        added.stop()
        cluster.nodes.remove(added)


def test_replicas_are_equal_and_glsns_dense(cluster: LocalCluster, log: RemoteLog) -> None:
    for number in range(50):
        log.append_batch([b"x%d" % number] * 20)
    wait_until_level(log)

    found = run_json("verify", "--online", "--all", "-d", cluster.url)

    assert found["healthy"], found
    assert found["entries"] >= 1000
    assert {one["kind"] for one in found["checked"]} == {"replicas", "glsns"}


def test_a_load_is_measured(cluster: LocalCluster) -> None:
    found = run_json("bench", "e2e", "-d", cluster.url, "--rate", "100", "--seconds", "1")
    assert (found["records"], found["missing_records"], found["errors"]) == (100, 0, {})


def test_a_node_that_was_killed_is_named_and_its_streams_are_under_replicated(
    cluster: LocalCluster, log: RemoteLog
) -> None:
    victim = cluster.nodes[2]
    victim.kill()
    try:
        told = run("status", "-d", cluster.url, code=1).stdout
        assert f"node {victim.id}" in told
        assert "does not answer" in told
        run("node", "remove", victim.id, "-d", cluster.url, code=1)
    finally:
        victim.start()
        cluster.wait_until_ready()
    wait_until_well(cluster)


def test_a_node_is_drained_and_removed(cluster: LocalCluster, log: RemoteLog) -> None:
    admin = log.admin
    log.create_topic("spread", streams=4, replicas=2)
    with pytest.raises(WrongState):
        admin.remove_node(4)

    with load(log, 1):
        run("node", "drain", "4", "-d", cluster.url)

    status = admin.status()
    assert all(4 not in stream.ensemble for stream in status.streams)
    assert run_json("verify", "--online", "-d", cluster.url)["healthy"]
    run("node", "drain", "4", "-d", cluster.url)
    run("node", "remove", "4", "-d", cluster.url)
    with tidelog.connect(cluster.url) as again:
        assert again.append(b"still here").count == 1


def test_who_shows_no_token_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(1, streams=1, replicas=1, token=TOKEN) as guarded:
        for arguments in (("status",), ("stream", "seal", "1"), ("operator", "pause")):
            assert "token" in run(*arguments, "-d", guarded.url, code=1).stderr
        monkeypatch.setenv("TIDELOG_TOKEN", TOKEN)
        status = run_json("status", "-d", guarded.url)

    assert not status["operators_paused"]
    assert status["streams"][0]["status"] == "running"


def wait_until_level(log: RemoteLog) -> None:
    """Wait until all replicas of each log stream have stored the same order."""
    deadline = monotonic() + SECONDS
    while not all(is_level(stream) for stream in log.admin.status().streams):
        assert monotonic() < deadline, "replicas do not catch up"


def is_level(stream: ClusterStream) -> bool:
    ends = {one.facts.ordered_end_llsn if one.facts else 0 for one in stream.replicas}
    return len(ends) == 1


def wait_until_well(cluster: LocalCluster) -> None:
    deadline = monotonic() + SECONDS
    pause = threading.Event()
    while not run_status(cluster) and monotonic() < deadline:
        pause.wait(0.2)
    assert run_status(cluster)


def run_status(cluster: LocalCluster) -> bool:
    return worst_of(health_of(cluster.status())) is None
