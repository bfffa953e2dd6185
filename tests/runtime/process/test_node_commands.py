"""`tidelog node init`, `node start` and `config show`: what they make, say and refuse."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import PROCESS_SECONDS, run, run_json, spawned
from tidelog.runtime import new_node
from tidelog.runtime.identity import DRAWN_NODE_BEGIN, new_cluster_id
from tidelog.runtime.new_node import METADATA_NAME

CLUSTER = bytes(range(16)).hex()


@pytest.fixture(autouse=True)
def no_configuration_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDELOG_CONFIG", "TIDELOG_DATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    """A node writes its logs its own way; here it runs in the process of the tests."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def config_of(path: Path, data: Path, **more: str) -> Path:
    lines = [
        "[node]",
        f'data = "{data}"',
        f'peers = "unix://{path}/peers"',
        'http = "none"',
        *(f"{key} = {value}" for key, value in more.items()),
    ]
    file = path / "node.toml"
    file.write_text("\n".join(lines))
    return file


def test_the_first_node_draws_a_cluster_and_the_others_share_it(tmp_path: Path) -> None:
    first = ("--new-cluster", "--members", "1,2,3")
    made = run_json("node", "init", "-d", tmp_path / "a", *first, "--id", 1)
    assert (made["node"], made["members"]) == (1, [1, 2, 3])

    shared = ("--cluster-id", made["cluster_id"])
    other = run_json("node", "init", "-d", tmp_path / "b", *first, "--id", 2, *shared)
    assert (other["node"], other["cluster_id"]) == (2, made["cluster_id"])
    assert (tmp_path / "a" / METADATA_NAME).is_dir()


def test_the_first_node_says_what_to_do_on_the_others_and_these_say_nothing(tmp_path: Path) -> None:
    options = ("--new-cluster", "--id", 1, "--members", "1,2,3")
    text = run("node", "init", "-d", tmp_path / "a", *options).stdout
    for number in (2, 3):
        (line,) = [line for line in text.splitlines() if line.startswith(f"on node {number}: ")]
        command = line.partition(": tidelog ")[2].replace("DIR", str(tmp_path / f"{number}"))
        told = run(*command.split()).stdout
        assert f"is node {number} of cluster" in told
        assert "--id" not in told


def test_a_node_that_joins_draws_its_number(tmp_path: Path) -> None:
    made = run_json("node", "init", "-d", tmp_path, "--join", "--cluster-id", CLUSTER)
    assert made["node"] >= DRAWN_NODE_BEGIN
    assert (made["cluster_id"], made["members"]) == (CLUSTER, [])


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--new-cluster", "--join"),
        ("--new-cluster",),
        ("--new-cluster", "--id", "1", "--members", "x"),
        ("--join",),
        ("--join", "--cluster-id", CLUSTER, "--id", "1"),
        ("--join", "--cluster-id", CLUSTER, "--ask", "tidelog://127.0.0.1:1"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(tmp_path: Path, options: tuple[str, ...]) -> None:
    run("node", "init", "-d", tmp_path / "d", *options, code=2)
    assert not (tmp_path / "d").exists()


def test_a_directory_is_made_a_node_once(tmp_path: Path) -> None:
    join = ("node", "init", "-d", tmp_path, "--join", "--cluster-id", CLUSTER)
    run(*join)
    assert "belongs to node" in run(*join, code=1).stderr


@pytest.mark.parametrize("when", ["before it has an identity", "before its log has its name"])
def test_a_directory_whose_making_was_cut_short_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    data, makes = tmp_path / "d", ("node", "init", "-d", tmp_path / "d", "--new-cluster", "--id", 1)

    def killed(*_: object) -> None:
        raise SystemExit(9)

    step = "create_identity" if "identity" in when else "finish_node"
    with monkeypatch.context() as patch:
        patch.setattr(new_node, step, killed)
        run(*makes, code=9)
    assert not (data / METADATA_NAME).exists()

    if "identity" in when:
        run(*makes)
    else:
        assert "belongs to node 1" in run(*makes, code=1).stderr
    with spawned("node", "start", "-c", config_of(tmp_path, data)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready ")
    assert (data / METADATA_NAME).is_dir()


def test_a_directory_below_a_file_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    data = tmp_path / "file" / "d"
    join = ("--join", "--cluster-id", CLUSTER)
    assert "is a file" in run("node", "init", "-d", data, *join, code=4).stderr
    assert "is a file" in run("node", "init", "-d", tmp_path / "file", *join, code=4).stderr
    assert "is a file" in run("node", "start", "-c", config_of(tmp_path, data), code=4).stderr


def test_only_the_end_of_a_pipe_can_be_waited_for(tmp_path: Path) -> None:
    """A file is never at its end for the event loop, which would abort the process."""
    data = tmp_path / "d"
    run("node", "init", "-d", data, "--new-cluster", "--id", 1)
    start = [sys.executable, "-m", "tidelog", "node", "start", "--until-eof"]
    start += ["-c", str(config_of(tmp_path, data))]
    with Path(os.devnull).open() as null:
        found = subprocess.run(
            start, stdin=null, capture_output=True, check=False, timeout=PROCESS_SECONDS
        )
    assert found.returncode == 1
    assert b"standard input" in found.stderr


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    join = ("node", "init", "-d", tmp_path, "--join", "--cluster-id", CLUSTER)
    assert "not empty" in run(*join, code=4).stderr


def test_a_node_does_not_start_without_an_identity(tmp_path: Path) -> None:
    found = run("node", "start", "-c", config_of(tmp_path, tmp_path / "nothing"), code=4)
    assert "tidelog node init" in found.stderr


def test_a_node_does_not_start_with_a_directory_of_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("node", "init", "-d", tmp_path / "d", "--join", "--cluster-id", CLUSTER)
    monkeypatch.setenv("TIDELOG_CLUSTER__ID", new_cluster_id().hex())
    found = run("node", "start", "-c", config_of(tmp_path, tmp_path / "d"), code=1)
    assert f"belongs to cluster {CLUSTER}" in found.stderr


def test_a_node_without_its_raft_log_does_not_begin_anew(tmp_path: Path) -> None:
    data = tmp_path / "d"
    run("node", "init", "-d", data, "--new-cluster", "--id", 1)
    (data / METADATA_NAME).rename(tmp_path / "lost")
    config = config_of(tmp_path, data)
    assert "without its Raft log" in run("node", "start", "-c", config, code=4).stderr


def test_a_node_that_knows_no_metadata_node_says_so(tmp_path: Path) -> None:
    data = tmp_path / "d"
    run("node", "init", "-d", data, "--join", "--cluster-id", CLUSTER)
    config = config_of(tmp_path, data, roles='["operator"]')
    assert "cluster.metadata is missing" in run("node", "start", "-c", config, code=1).stderr


def test_a_wrong_configuration_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    config = config_of(tmp_path, tmp_path / "d", lissten='"x"')
    found = run("node", "start", "-c", config, code=1)
    assert f"{config}:5: there is no key node.lissten: is node.listen meant?" in found.stderr


def test_the_configuration_is_shown_with_origins_and_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, tmp_path / "d")
    monkeypatch.setenv("TIDELOG_LOG__FORMAT", "json")
    text = run("config", "show", "-c", config, "--origin").stdout
    assert f'peers = ["unix://{tmp_path}/peers"]  # {config}:3' in text
    assert 'format = "json"  # environment TIDELOG_LOG__FORMAT' in text
    assert 'level = "info"  # default' in text

    (tmp_path / "again.toml").write_text(text)
    monkeypatch.delenv("TIDELOG_LOG__FORMAT")
    shown = json.loads(run("config", "show", "-c", tmp_path / "again.toml", "-o", "json").stdout)
    assert shown["log.format"]["value"] == "json"
    assert shown["node.roles"]["value"] == ["storage", "metadata", "operator"]
