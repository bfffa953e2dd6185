"""Audits on Spark of real nodes: sound ones, and ones whose files were changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

import tidelog
from tests.cli.running import run
from tests.spark.damage import flip_byte, rewrite_segment, segments_of
from tests.spark.nodes import Node
from tidelog.cli.failures import ExitCode
from tidelog.formats.entry import Entry
from tidelog.formats.wal import FILE_HEADER_BYTES, Frame, decode_file_header, decode_frame
from tidelog.pipeline import AuditProgress, AuditSummary, Finding, FindingKind, audit
from tidelog.pipeline.auditing import task_watch
from tidelog.runtime.local_nodes import LocalNode
from tidelog.testing.local_cluster import LocalCluster

STREAMS = 2
BATCHES, BATCH = 60, 100
ENTRIES = BATCHES * BATCH
SMALL_FILES = {"storage.wal_file_bytes": "65536"}
"""So that there are segments soon."""
WAL_SECONDS = 60.0
SMALL = tidelog.Options(background=False, wal_file_bytes=64 * 1024)


@pytest.fixture(scope="module")
def small() -> Iterator[LocalCluster]:
    """Three nodes with entries in several segments of each stream, and in memory."""
    with LocalCluster(3, streams=STREAMS, settings=SMALL_FILES) as running:
        with running.connect() as log:
            for number in range(BATCHES):
                log.append_batch([b"%d.%d" % (number, i) * 20 for i in range(BATCH)])
        yield running


def kinds(summary: AuditSummary) -> list[FindingKind]:
    return [one.kind for one in summary.findings]


def of_kind(summary: AuditSummary, kind: FindingKind) -> Finding:
    [one] = [one for one in summary.findings if one.kind is kind]
    return one


def test_a_sound_cluster_has_no_findings(
    spark: SparkSession, small: LocalCluster, tmp_path: Path
) -> None:
    """A leader was moved, so that there are control entries; one topic has keys to compact."""
    with small.connect() as log:
        for _ in log.admin.move_leader(1):
            pass
        keyed = log.create_topic("keyed", streams=1, replicas=3)
        for round_ in range(3):
            keyed.put_batch([(b"k%d" % key, b"%d" % round_ * 400) for key in range(60)])
        keyed.compact(full=True)
    told: list[AuditProgress] = []
    summary = audit(small.url, spark=spark, report=tmp_path / "report.html", progress=told.append)
    assert summary.findings == ()
    assert summary.left_out == ()
    assert len(summary.replicas) == 3 * (STREAMS + 1)
    topics = {one.topic: one for one in summary.topics}
    assert topics["default"].present == topics["default"].high_watermark >= ENTRIES
    assert topics["keyed"].high_watermark >= 180
    assert summary.entries >= 3 * ENTRIES
    assert all(one.files for one in summary.replicas if one.topic == "default")
    assert list(dict.fromkeys(one.step for one in told)) == ["plan", "read", "order", "look closer"]
    assert "sound" in (tmp_path / "report.html").read_text()


def test_damage_on_three_nodes_is_found_and_named(spark: SparkSession, small: LocalCluster) -> None:
    """A flipped byte in a segment, a replica that diverged, and a flipped byte in a WAL."""
    flipped, diverged, wal = small.nodes
    for node in (flipped, diverged):
        node.kill()
    place = flipped.directory / "storage"
    segment = segments_of(place, 1)[-1]
    flip_byte(segment, segment.stat().st_size // 3)
    other = diverged.directory / "storage"
    begin, _ = rewrite_segment(other, segments_of(other, 2)[-1], change=Forger())
    for node in (flipped, diverged):
        node.start()
    small.wait_until_ready()
    wait_until_led(small)
    file = wal_in_use(small, wal)
    flip_byte(file, FILE_HEADER_BYTES + 40 + 24 + 8)
    summary = audit(small.url, topics=["default"], spark=spark)
    unreadable = of_kind(summary, FindingKind.UNREADABLE)
    assert (unreadable.nodes, unreadable.stream) == ((flipped.id,), 1)
    assert segment.name in unreadable.what
    found = of_kind(summary, FindingKind.DIVERGED)
    assert diverged.id in found.nodes
    assert (found.stream, found.llsn_begin, found.llsn_end) == (2, begin, begin + 1)
    assert f"'forged' on node {diverged.id}" in found.what
    files = {(one.nodes, one.file) for one in summary.findings if one.kind is FindingKind.FILE}
    assert ((wal.id,), f"wal/{file.name}") in files
    assert {one.nodes for one in summary.findings if one.file.endswith(segment.name)} == {
        (flipped.id,)
    }
    assert set(kinds(summary)) == {
        FindingKind.UNREADABLE,
        FindingKind.DIVERGED,
        FindingKind.FILE,
    }


class Forger:
    """Gives the first entry of a segment another value."""

    def __init__(self) -> None:
        self._left = 1

    def __call__(self, entries: list[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
        if not self._left:
            return entries
        self._left -= 1
        llsn, entry = entries[0]
        return [(llsn, replace(entry, value=b"forged")), *entries[1:]]


def wal_in_use(cluster: LocalCluster, node: LocalNode) -> Path:
    """The newest WAL file of a node, once it has a frame: before that, all of it is old bytes."""
    deadline = monotonic() + WAL_SECONDS
    with cluster.connect() as log:
        while monotonic() < deadline:
            log.append(b"to be damaged")
            file = max((node.directory / "storage" / "wal").glob("*.wal"))
            data = file.read_bytes()
            salt = decode_file_header(data).salt
            if isinstance(decode_frame(data, FILE_HEADER_BYTES, salt), Frame):
                return file
    raise AssertionError(f"node {node.id} writes nothing")


def wait_until_led(cluster: LocalCluster) -> None:
    for stream in range(1, STREAMS + 1):
        cluster.leader_of(stream)


@pytest.mark.soak
def test_a_node_that_is_down_is_left_out_and_told(spark: SparkSession, small: LocalCluster) -> None:
    """The last one of the cluster: the node stays down."""
    small.nodes[2].kill()
    wait_until_led(small)
    summary = audit(small.url, topics=["default"], spark=spark)
    assert {(one.node, one.why) for one in summary.left_out} == {
        (small.nodes[2].id, "its node does not answer")
    }
    assert not summary.is_complete
    assert all(small.nodes[2].id not in one.nodes for one in summary.findings)


def test_tasks_that_are_done_are_told_while_a_job_runs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_watch, "LOOK_SECONDS", 0.01)
    told: list[tuple[int, int]] = []
    spark.sparkContext.setJobGroup("mine", "of the caller")
    with task_watch.watched(spark, "test", lambda done, tasks: told.append((done, tasks))):
        while not told:
            spark.range(0, 4, 1, 4).count()
    assert all(0 <= done <= tasks for done, tasks in told)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"


# -- a node by itself ------------------------------------------------------------------------------


@pytest.fixture
def single() -> Iterator[Node]:
    """A node that is down, with two log streams in segments."""
    with TemporaryDirectory(prefix="tidelog-") as directory:
        node = Node(Path(directory))
        with tidelog.open(node.data, streams=STREAMS, options=SMALL) as log:
            for number in range(40):
                log.append_batch([b"%d.%d" % (number, i) * 20 for i in range(BATCH)])
        try:
            yield node
        finally:
            node.kill()


def test_a_node_by_itself_is_audited_and_its_damage_is_named(
    spark: SparkSession, single: Node, tmp_path: Path
) -> None:
    """GLSNs that two log streams have, and a flipped byte; told by the command."""
    segments = segments_of(single.data, 2)
    rewrite_segment(single.data, segments[1], shift_glsns=-3)
    flip_byte(segments[-1], 300)
    single.start()
    report = tmp_path / "report.html"
    told = run(
        *("pipeline", "audit", "--from", single.url(), "--report", report, "-o", "json"),
        code=ExitCode.DAMAGED,
    )
    assert spark is not None, "the command works with the session that is there"
    assert "plan: 2 replicas on 1 nodes" in told.stderr
    found = msgspec.json.decode(told.stdout, type=Told)
    assert not found.is_sound
    doubled = next(one for one in found.findings if one.kind is FindingKind.DOUBLED)
    assert doubled.glsn_end - doubled.glsn_begin == 3
    assert "log stream 1 has it at LLSN" in doubled.what
    unreadable = next(one for one in found.findings if one.kind is FindingKind.UNREADABLE)
    assert (unreadable.stream, unreadable.nodes) == (2, (1,))
    assert segments[-1].name in unreadable.what
    gaps = [one for one in found.findings if one.kind is FindingKind.MISSING_GLSNS]
    assert 3 in {one.glsn_end - one.glsn_begin for one in gaps}
    assert "GLSN given twice" in report.read_text()


class Told(msgspec.Struct):
    is_sound: bool
    findings: list[Finding]
