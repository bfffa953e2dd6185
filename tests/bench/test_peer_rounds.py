"""Rounds of the benchmark, with systems that are made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from time import monotonic
from xml.etree import ElementTree

import pytest

from bench.peers import installing, running
from bench.peers.goals import BATCHED_SMALL, GOALS, goal_rows, goals_line
from bench.peers.installing import JavaModule, Store
from bench.peers.interface import Client, Cluster, Reading, Variant
from bench.peers.kafka import Kafka
from bench.peers.kafka_clients import LeanKafka
from bench.peers.measuring import measure
from bench.peers.processes import Processes, Unavailable, pause
from bench.peers.running import PeerResults, Row, measure_peers
from bench.peers.spark_reading import Source, SparkReader
from bench.peers.works import SPARK, Kind, Scale
from bench.plots import Bar, bar_chart
from bench.report_peers import peer_plots, peers_section

TINY = Scale(
    rounds=3, seconds=0.001, appends=10, rate_seconds=0.001, disk_bytes=200_000, bytes_max=200_000
)


class Null(Client):
    name = "null"

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        pass

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        return [0.001] * count

    def consume(self, count: int) -> Reading:
        reading = Reading()
        reading.took(1)
        reading.took(count - 1)
        return reading


class NullCluster(Cluster):
    def make_topic(self, name: str, streams: int) -> None:
        pass

    def clients(self, topic: str) -> Sequence[Client]:
        return (Null(),)


@contextmanager
def started(directory: Path) -> Iterator[Cluster]:
    with Processes(directory / "logs") as processes:
        yield NullCluster("1.0", processes, directory)


class NullPeer:
    name = "Null"
    orders_streams = False
    variants = (Variant("default", "nothing"),)

    def install(self, store: Store) -> None:
        pass

    def start(self, variant: Variant, directory: Path) -> AbstractContextManager[Cluster]:
        return started(directory)


class Missing(NullPeer):
    name = "Missing"

    def install(self, store: Store) -> None:
        raise Unavailable("it cannot be fetched\nand more")


class Broken(NullPeer):
    name = "Broken"

    def start(self, variant: Variant, directory: Path) -> AbstractContextManager[Cluster]:
        raise Unavailable("it does not start")


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, told: list[str]) -> PeerResults:
    """Of all three peers."""
    peers = {"null": NullPeer, "missing": Missing, "broken": Broken}
    place = tmp_path_factory.mktemp("peers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "PEERS", peers)
        patch.setattr("bench.peers.processes.QUIET_SECONDS", 0.0)
        return measure_peers(place, place, TINY, list(peers), told.append)


def test_a_peer_that_cannot_be_had_is_named_and_the_others_are_measured(
    results: PeerResults, told: list[str]
) -> None:
    assert "Missing is skipped: it cannot be fetched\nand more" in told
    assert results.skipped == {
        "Missing": "it cannot be fetched",
        "Broken, default": "it does not start",
    }
    assert results.versions == {"Null": "1.0"}


def test_what_a_client_lacks_has_no_figure_and_is_told(
    results: PeerResults, told: list[str]
) -> None:
    kinds = {work.kind for work in results.figures}
    assert Kind.ONE in kinds
    assert kinds.isdisjoint({Kind.SMALL, Kind.RATE, Kind.CONSUME_STREAMS})
    assert "  small appends, 100 B (null): not offered: small appends" in told
    assert "has no figures for appends at a fixed rate, small appends" in peers_section(results)


def test_the_page_names_who_was_left_out_and_every_plot_is_well_formed(
    results: PeerResults,
) -> None:
    page = peers_section(results)
    assert "left out: it cannot be fetched" in page
    for name, text in peer_plots(results).items():
        assert f"plots/{name}" in page
        ElementTree.fromstring(text)


def test_labels_of_plots_are_escaped() -> None:
    text = bar_chart("a < b", "&", [Bar("<script>", 1.0), Bar("nothing", 0.0)])
    root = ElementTree.fromstring(text)
    assert not root.findall(".//{http://www.w3.org/2000/svg}script")


def test_the_clock_of_a_reading_runs_from_its_first_records_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter((0.0, 10.0, 10.5, 11.0))
    monkeypatch.setattr("bench.peers.interface.perf_counter", lambda: next(times))
    reading = Reading()
    for records in (70, 20, 30):
        reading.took(records)
    assert (reading.records, reading.records_per_second) == (120, 50.0)


def test_a_goal_compares_the_best_clients_at_the_durability_it_names() -> None:
    ours = Variant("ordered", "", syncs=True)
    fast, safe = Variant("default", ""), Variant("fsync", "", syncs=True)
    rates = {
        Row("Tidelog", ours, "lean"): 900.0,
        Row("Tidelog", ours, "client"): 500.0,
        Row("NATS JetStream", fast, "lean"): 100.0,
        Row("NATS JetStream", fast, "nats-py"): 10.0,
        Row("NATS JetStream", safe, "lean"): 300.0,
    }
    figures = {row: {"records_per_second": rate} for row, rate in rates.items()}
    rows = goal_rows({BATCHED_SMALL: figures})
    assert [(measured.partition(" ")[0], met) for _, measured, met in rows] == [
        ("9.00", "yes"),
        ("3.00", "no"),
    ]


def test_the_last_line_counts_the_goals_and_names_those_that_are_missed() -> None:
    ours, theirs = Variant("ordered", "", syncs=True), Variant("default", "")
    figures = {
        Row("Tidelog", ours, "lean"): {"records_per_second": 500.0},
        Row("Kafka", theirs, "lean"): {"records_per_second": 100.0},
        Row("NATS JetStream", theirs, "lean"): {"records_per_second": 100.0},
    }
    line = goals_line({BATCHED_SMALL: figures})
    assert f"1 of {len(GOALS)} met, 1 missed, {len(GOALS) - 2} not measured" in line
    assert "8 × NATS JetStream" in line
    assert "Kafka" not in line


def test_files_that_are_not_what_the_lock_says_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retrieve(module: JavaModule, place: Path) -> None:
        place.mkdir(parents=True)
        (place / "some.jar").write_bytes(content)

    monkeypatch.setattr(installing, "retrieve", retrieve)
    lock = tmp_path / "lock"
    lock.write_text(f"{sha256(b'right').hexdigest()}  some.jar\n")
    store, module = Store(tmp_path / "store"), JavaModule("g", "n", "1")
    content = b"wrong"
    with pytest.raises(Unavailable, match=r"some\.jar"):
        store.jars(module, lock)
    content = b"right"
    assert [jar.name for jar in store.jars(module, lock)] == ["some.jar"]


def test_the_reason_of_a_program_that_fails_is_one_line(tmp_path: Path) -> None:
    said = r"printf '\t:: spark#kafka;9: not found\n\n\t::::\n'; exit 1"
    with pytest.raises(Unavailable, match=r"^no connector: spark#kafka;9: not found$"):
        installing._run(["sh", "-c", said], tmp_path, "no connector")


def test_a_source_of_spark_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    source = Source("some connector", "kafka", {}, Unavailable("no connector: not found"))

    class Unread(NullCluster):
        def spark_readers(self, topic: str) -> Sequence[Client]:
            return (SparkReader(source, tmp_path / "spark"),)

    with Processes(tmp_path / "logs") as processes:
        found = list(measure(Unread("1.0", processes, tmp_path), TINY))
    assert [(m.client, m.failure) for m in found if m.work == SPARK] == [
        ("some connector", "no connector: not found")
    ]


def test_without_java_kafka_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="no Java"):
        Kafka().install(Store(tmp_path))


def test_no_process_outlives_its_block(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("shell", ["sh", "-c", "sleep 300 & echo up; wait"])
        processes.wait_for(lambda: "up" in processes.log_tails(), "it does not start")
        tree = processes.pids._tree()
        assert len(tree) == 2
    deadline = monotonic() + 10.0  # The system may take a moment to end what was killed.
    while any(map(is_alive, tree)) and monotonic() < deadline:
        pause(0.01)
    assert not [pid for pid in tree if is_alive(pid)]


def is_alive(pid: int) -> bool:
    """Whether it is there, and not only waits for its parent to hear of its end."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_process_that_ends_is_told_with_its_output(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("short", ["sh", "-c", "echo no licence; exit 3"])
        with pytest.raises(Unavailable, match=r"(?s)\(3\).*no licence"):
            processes.wait_for(lambda: False, "nobody listens")


def test_several_batches_become_one_of_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(LeanKafka, "unit_bytes", 250)
    monkeypatch.setattr(LeanKafka, "run", lambda _, work: work)
    monkeypatch.setattr(LeanKafka, "frame", lambda _, values: len(values))
    monkeypatch.setattr(
        LeanKafka, "_spread", lambda _, size, count, *__: sent.append((size, count))
    )
    LeanKafka(0, "t").append_batches([b"x" * 50, b"y" * 50], 5)
    assert sent == [(4, 2), (2, 1)]
