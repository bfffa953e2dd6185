"""The commands on a log that a node serves, and the commands that serve one."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

import pytest

import tidelog
from tests.cli.running import PROCESS_SECONDS, ended, run, run_json, spawned
from tidelog.server.node import NodeOptions
from tidelog.testing import LocalCluster


@contextmanager
def node(data: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`tidelog serve` in a process of its own; yields its URL."""
    arguments = ("--listen", "tcp://127.0.0.1:0", "--http", "none", *options)
    with spawned("serve", "-d", data, *arguments) as process:
        assert process.stdout is not None
        word, address = process.stdout.readline().decode().split()
        assert word == "ready"
        yield address.replace("tcp://", "tidelog://"), process


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with node(tmp_path_factory.mktemp("node") / "log", "--streams", "2") as (found, _):
        yield found


def test_a_directory_below_a_file_is_not_there(tmp_path: Path) -> None:
    """Nothing is damaged then."""
    (tmp_path / "file").touch()
    for name in ("log", "deep/log"):
        data = tmp_path / "file" / name
        for command in (("append",), ("stats",), ("serve", "--http", "none")):
            assert "damaged" not in run(*command, "-d", data, code=4).stderr


def test_what_is_appended_to_a_node_can_be_read_and_found(url: str) -> None:
    run("topic", "create", "letters", "-d", f"{url}/letters", "--streams", "2")
    appended = run_json("append", "-d", f"{url}/letters", "-K", "=", stdin="a=1\nb=2\na=3\n")

    assert (appended["topic"], appended["records"]) == ("letters", 3)
    lines = run("tail", "-d", f"{url}/letters", "--format", "%k=%v\\n").stdout.splitlines()
    assert sorted(lines) == ["a=1", "a=3", "b=2"]
    assert run("get", "a", "-d", url, "-t", "letters").stdout == "3\n"
    run("get", "nobody", "-d", f"{url}/letters", code=4)


def test_a_tail_follows_what_comes(url: str) -> None:
    run("append", "-d", url, stdin="before\n")
    with spawned("tail", "-d", url, "--from", "latest", "-f", "-n", "2") as tail:
        # It may still be on its way, and begins with what comes once it is there.
        deadline = monotonic() + PROCESS_SECONDS
        with tidelog.connect(url) as log:
            while tail.poll() is None and monotonic() < deadline:
                log.append(b"after")
        assert ended(tail)[0].splitlines() == [b"after", b"after"]


def test_topics_of_a_node_are_listed_and_described(url: str) -> None:
    run("topic", "create", "wide", "-d", url, "--streams", "3", "--versions", "explicit")
    run("topic", "add-streams", "wide", "2", "-d", url)

    found = run_json("topic", "describe", "wide", "-d", url)

    assert len(found["streams"]) == 5
    assert (found["key_streams"], found["versions"]) == (3, "explicit")
    assert "wide" in [topic["topic"] for topic in run_json("topic", "list", "-d", url)["topics"]]


def test_a_cluster_need_not_have_a_topic_yet() -> None:
    with LocalCluster(1, topic="") as cluster:
        url = cluster.url
        assert run_json("topic", "list", "-d", url) == {"topics": []}
        assert run_json("stats", "-d", url)["topics"] == []
        assert "there is no topic 'orders'" in run("tail", "-d", url, "-t", "orders", code=4).stderr

        run("topic", "create", "orders", "--streams", "2", "-d", url)
        assert run_json("append", "-d", url, "-t", "letters", stdin="a\n")["records"] == 1

        found = run_json("topic", "list", "-d", url)["topics"]
        assert [(one["topic"], one["streams"]) for one in found] == [("letters", 1), ("orders", 2)]


def test_the_figures_of_a_node_show_who_reads(url: str) -> None:
    run("topic", "create", "read", "-d", url)
    run("append", "-d", f"{url}/read", stdin="v\n" * 10)
    with tidelog.connect(f"{url}/read") as topic:
        topic.find_end(4, reader="report")
    shown = run("stats", "-d", url).stdout
    assert shown.splitlines()[-1].split()[:4] == ["report", "read", "4", "7"]
    (reader,) = run_json("stats", "-d", url)["readers"]
    assert (reader["name"], reader["lag"]) == ("report", 7)


def test_a_node_trims_and_compacts(url: str) -> None:
    run("topic", "create", "old", "-d", url)
    for _ in range(3):
        run("append", "-d", f"{url}/old", "-K", "=", stdin="k=v\n" * 100)

    trimmed = run_json("trim", "-d", f"{url}/old", "--before", "101")
    assert (trimmed["trimmed"], trimmed["first_available"]) == (100, 101)
    run("snapshot", "-d", f"{url}/old")
    assert run_json("compact", "run", "--full", "-d", f"{url}/old")["failures"] == []
    (stream,) = run_json("compact", "status", "-d", f"{url}/old")["streams"]
    assert stream["live_entries"] == stream["entries"] == 1
    assert "is live" in run("compact", "explain", "k", "-d", f"{url}/old").stdout
    assert run_json("rewrite", "-d", f"{url}/old")["copied"] == 1
    assert "old" in [topic["topic"] for topic in run_json("stats", "-d", url)["topics"]]


def test_what_needs_files_says_so(url: str) -> None:
    assert "directory" in run("trim", "-d", url, "--before", "1", "--dry-run", code=2).stderr
    run("verify", "-d", url, code=4)


def test_a_node_that_is_not_there_is_told(tmp_path: Path) -> None:
    socket = tmp_path / "nobody.sock"
    found = run("stats", "-d", f"tidelog+unix://{socket}", code=5)
    assert "cannot connect" in found.stderr
    assert str(socket) in found.stderr


def test_a_wrong_address_is_told() -> None:
    assert "no port" in run("stats", "-d", "tidelog://host:port", code=1).stderr
    assert "tcp://" in run("serve", "-d", "x", "--listen", "http://x", code=1).stderr


def test_a_stopped_node_leaves_a_sound_log(tmp_path: Path) -> None:
    data = tmp_path / "log"
    with node(data) as (url, process):
        run("append", "-d", url, stdin="one\ntwo\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROCESS_SECONDS) == 0

    assert run_json("verify", "-d", data)["healthy"]
    assert run("tail", "-d", data).stdout.splitlines() == ["one", "two"]


def test_up_in_one_process_tells_what_to_try(tmp_path: Path) -> None:
    arguments = ("-d", tmp_path / "log", "--port", "0", "--http", "127.0.0.1:0")
    with spawned("up", "--embedded", *arguments) as process:
        assert process.stdout is not None
        lines: list[bytes] = []
        while not (lines and b"Ctrl-C" in lines[-1]):
            lines.append(process.stdout.readline())
            assert lines[-1], "the node ended"
        text = b"".join(lines).decode()
        url = text.split(" at ")[1].split()[0]
        assert run("append", "-d", url, stdin="hello\n").stdout.startswith("appended 1 record")
        (page,) = [word for word in text.split() if word.endswith("/metrics")]
        with urlopen(page, timeout=PROCESS_SECONDS) as answer:
            assert b"tidelog" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(PROCESS_SECONDS) == 0


def faults_of(process: subprocess.Popen[bytes]) -> int:
    """How many pages of memory the system has given to a process so far."""
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
    return int(stat.rpartition(")")[2].split()[7])


def test_a_node_reads_page_after_page_with_the_memory_that_it_has(tmp_path: Path) -> None:
    """Fresh memory for every page costs a node more than all else that it does for one."""
    with tidelog.open(str(tmp_path / "log"), streams=2) as log:
        for number in range(1000):
            log.append_batch([bytes(100)] * 1000, stream=log.streams[number % 2])
    with node(tmp_path / "log") as (url, process), tidelog.connect(url) as served:

        def read() -> int:
            before, end = faults_of(process), served.high_watermark + 1
            pages = served.read_pages(1, end, streams=served.streams[:1], bytes_max=8 << 20)
            assert sum(piece.end - piece.begin for page in pages for _, piece in page) == 500_000
            return faults_of(process) - before

        read()
        assert min(read() for _ in range(3)) < 3_000  # The pages have 13,000 of the system's.


def test_how_long_stages_are_kept_can_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    async def note(*_: object, node_options: NodeOptions, **__: object) -> None:
        told.append(node_options.stage_seconds)

    monkeypatch.setattr("tidelog.server.serve.serve", note)
    for options in ([], ["--stage-seconds", "86400"]):
        run("serve", "--data", str(tmp_path), *options)
    assert told == [3600.0, 86400.0]
