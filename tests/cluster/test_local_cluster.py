"""Clusters of real processes for tests: they come up, can be hurt, and leave nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

import tidelog
from tests.cli.running import PROCESS_SECONDS, run, spawned
from tidelog.errors import Unauthorized, Unreachable
from tidelog.runtime.identity import DRAWN_NODE_BEGIN
from tidelog.runtime.local_layout import HOST, load_layout, new_layout, save_layout
from tidelog.runtime.local_nodes import free_ports
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_directory import take_lock
from tidelog.storage.os_vfs import OsVfs
from tidelog.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_what_is_appended_before_and_after_the_death_of_a_leader_is_read_in_order(
    cluster: LocalCluster,
) -> None:
    with cluster.connect() as log:
        before = [log.append(b"before %d" % number).glsn for number in range(20)]
        leader = cluster.leader_of(1)
        leader.kill()
        assert not leader.is_running
        after = [log.append(b"after %d" % number).glsn for number in range(20)]
        values = [record.value for record in log.read(before[0], after[-1] + 1)]
    assert values == [b"before %d" % n for n in range(20)] + [b"after %d" % n for n in range(20)]

    assert cluster.leader_of(1) is not leader
    leader.start()
    cluster.wait_until_ready()
    assert leader.is_ready
    assert len({node.id for node in cluster.nodes}) == 3


def test_every_node_serves_clients_and_tells_of_itself(cluster: LocalCluster) -> None:
    for node in cluster.nodes:
        with tidelog.connect(node.url) as log:
            assert log.append(b"hello").glsn
        status, text = node.page("/metrics")
        assert status == 200
        for role in ("storage", "metadata", "operator"):
            assert f'tidelog_up{{role="{role}"}} 1.0' in text
        assert "process_resident_memory_bytes" in text
        assert node.page("/healthz")[0] == 200
    assert cluster.metadata_leader() in cluster.nodes


def test_a_node_that_stands_still_does_not_stop_the_others(cluster: LocalCluster) -> None:
    victim = cluster.leader_of(2)
    victim.pause()
    try:
        with cluster.connect() as log:
            for number in range(20):
                log.append(b"%d" % number)
    finally:
        victim.resume()
    cluster.wait_until_ready()


def test_the_directory_of_a_node_that_runs_is_taken(cluster: LocalCluster) -> None:
    config = cluster.nodes[0].config
    with spawned("node", "start", "--config", config) as second:
        _, errors = second.communicate(timeout=PROCESS_SECONDS)
    assert second.returncode == 6
    assert b"is open in another process" in errors


def test_a_node_joins_by_asking_another_one(cluster: LocalCluster, tmp_path: Path) -> None:
    made = run("node", "init", "-d", tmp_path / "d", "--join", "--ask", cluster.nodes[0].url)
    assert cluster.nodes[0].identity.cluster_id.hex() in made.stdout

    node = cluster.add_node()
    cluster.wait_until_ready()
    assert node.id >= DRAWN_NODE_BEGIN
    with tidelog.connect(node.url) as log:
        assert log.append(b"through the new one").glsn
    node.stop()
    cluster.wait_until_ready()
    assert (node.exit_code, node.is_running) == (0, False)
    cluster.nodes.remove(node)


def test_a_cluster_with_a_token_lets_nobody_else_in() -> None:
    with LocalCluster(1, token="a-long-enough-secret", streams=1) as cluster:
        assert (
            not list(cluster.directory.glob("node-1.toml"))
            or "secret" not in (cluster.directory / "node-1.toml").read_text()
        )
        with cluster.connect() as log:
            log.append(b"hello")
        with pytest.raises(Unauthorized), tidelog.connect(cluster.url) as log:
            log.append(b"hello")
        (pid,) = [node.pid for node in cluster.nodes]
    assert not cluster.directory.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_a_node_that_cannot_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    cluster = LocalCluster(1, directory=tmp_path, settings={"timing.suspect": "0.1"})
    with pytest.raises(Unreachable, match=r"timing\.suspect is at least twice"):
        cluster.start()
    assert not any(node.is_running for node in cluster.nodes)


def test_nodes_end_with_the_program_that_started_them(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tidelog.testing import LocalCluster\n"
        "cluster = LocalCluster(1, directory=Path(sys.argv[1]), topic='')\n"
        "cluster.start(); print(cluster.nodes[0].pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        process.kill()
    deadline = monotonic() + PROCESS_SECONDS
    while Path(f"/proc/{pid}").exists() and _state(pid) != "Z":
        assert monotonic() < deadline, "the node outlived the program that started it"
        subprocess.run([sys.executable, "-c", ""], check=True)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def test_up_starts_a_cluster_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = free_ports(HOST).clients
    arguments = ("up", "-d", "data", "--nodes", 1, "--port", port)
    for round_number in (1, 2):
        with spawned(*arguments) as process:
            text = _read_until(process, b"Ctrl-C")
            url = re.findall(r"at (tidelog://\S+),", text)[0]
            assert f"{tmp_path}/data/node-1.log" in text, "another terminal may be elsewhere"
            assert run("append", "-d", url, stdin="hello\n").stdout.startswith("appended 1 record")
            assert run("tail", "-d", url).stdout.splitlines() == ["hello"] * round_number
            process.send_signal(signal.SIGINT)
            assert process.wait(PROCESS_SECONDS) == 0
        for pid in re.findall(r"process (\d+)", text):
            assert not Path(f"/proc/{pid}").exists()
    assert "holds a cluster" in run("up", "-d", tmp_path / "data", "--embedded", code=4).stderr


def test_up_starts_no_node_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the environment is that of another one."""
    theirs = tmp_path / "theirs"
    run("node", "init", "-d", theirs, "--new-cluster", "--id", 1)
    before = sorted(theirs.rglob("*"))
    monkeypatch.setenv("TIDELOG_NODE__DATA", str(theirs))
    port = free_ports(HOST).clients
    with spawned("up", "-d", tmp_path / "data", "--nodes", 1, "--port", port) as process:
        _read_until(process, b"Ctrl-C")
        process.send_signal(signal.SIGINT)
        assert process.wait(PROCESS_SECONDS) == 0
    assert sorted(theirs.rglob("*")) == before


def _read_until(process: subprocess.Popen[bytes], end: bytes) -> str:
    assert process.stdout is not None
    lines: list[bytes] = []
    while not (lines and lines[-1].startswith(end)):
        lines.append(process.stdout.readline())
        assert lines[-1], (b"".join(lines), process.communicate()[1])
    return b"".join(lines).decode()


def test_up_tells_of_a_port_that_is_taken(tmp_path: Path) -> None:
    import socket

    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        found = run("up", "-d", tmp_path / "data", "--port", port, code=1)
    assert f"port {port}" in found.stderr


def test_up_leaves_a_cluster_alone_that_another_one_runs(tmp_path: Path) -> None:
    """It would give the nodes other ports as they run."""
    layout = new_layout(bytes(16), [HOST], [free_ports(HOST)])
    save_layout(layout, tmp_path)
    lock = take_lock(FailStopVfs(OsVfs()), str(tmp_path))
    port = free_ports(HOST).clients
    assert "another process" in run("up", "-d", tmp_path, "--port", port, code=6).stderr
    lock.release()
    assert load_layout(tmp_path) == layout


def test_up_needs_a_directory_and_a_port(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        assert "cannot be a directory" in run("up", "-d", path, code=4).stderr
    assert "--embedded" in run("up", "-d", tmp_path / "data", "--port", 0, code=1).stderr
    assert "holds no cluster" not in run("up", "-d", tmp_path / "data", "--port", 0, code=1).stderr


def test_up_leaves_other_things_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    assert "holds no cluster" in run("up", "-d", tmp_path, code=4).stderr
