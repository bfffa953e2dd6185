"""Compaction plans made by Spark: equal to the engine's own, and harmless whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from tests.process.children import ROOT
from tests.spark.nodes import Node
from tidelog.cli.pipeline_compact_plan import command
from tidelog.client.blocking import RemoteTopic
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.live_index import decode_live_index
from tidelog.pipeline import PlanProgress, compact_plan
from tidelog.pipeline.compaction_plan.planning import ROWS_MAX
from tidelog.testing.local_cluster import LocalCluster

BOUNDARY = 200 << 70
STORAGES = (0, 1, (1 << 64) - 1)
QUIET = 2
"""A storage whose keys are written once: what a rewrite copies, whatever chance does elsewhere."""
KEYS = tuple(f"k{number}".encode() for number in range(40))


def fill(topic: RemoteTopic, random: Random, count: int, above: int = 0) -> None:
    """Entries of all kinds, with versions above this in any order if they are explicit."""
    explicit = topic.versions == "explicit"
    for _ in range(count):
        key, storage = random.choice(KEYS), random.choice(STORAGES)
        number = random.randrange(1, 400) << random.choice((0, 70))
        version = above + number if explicit else None
        match random.randrange(40):
            case 0:
                topic.delete_storage(storage, write_version=version)
            case 1 | 2 | 3 | 4 | 5:
                topic.append(b"an entry that only a trim removes", key=key)
            case number if number < 15:
                topic.delete(key, storage_id=storage, write_version=version)
            case number:
                topic.put(key, b"v" * number, storage_id=storage, write_version=version)


def engine_live(node: Node, streams: Sequence[int]) -> dict[int, BitMap64]:
    """The live indexes of the engine's last snapshots, from its files."""
    found = {}
    for stream in streams:
        (path,) = (node.data / "streams" / f"{stream:016d}").glob("*.live")
        found[stream] = decode_live_index(path.read_bytes()).live
    return found


def planned_live(directory: Path) -> dict[int, BitMap64]:
    return {
        int(path.stem): decode_live_index(path.read_bytes()).live
        for path in directory.glob("*.live")
    }


def values(topic: RemoteTopic) -> dict[tuple[int, bytes], bytes | None]:
    """What every key reads as."""
    found = {}
    for storage in STORAGES:
        for key in KEYS:
            record = topic.get(key, storage_id=storage)
            found[storage, key] = None if record is None else record.value
    return found


@pytest.mark.parametrize("versions", ["log", "explicit"])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 9))]
)
def test_a_plan_equals_the_engines_own(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path, versions: str, seed: int
) -> None:
    with node.connect() as log:
        made = log.create_topic(topic, streams=2, versions=versions)
        random, explicit = Random(f"{versions} {seed}"), versions == "explicit"
        for number in range(1, 10):
            version = number if explicit else None
            made.put(b"quiet %d" % number, b"v", storage_id=QUIET, write_version=version)
        fill(made, random, 250)
        if explicit:
            made.set_gc_boundary(BOUNDARY)
        # Some of it is gone, and copies are at the head of the log.
        made.compact(full=True)
        assert made.rewrite(entries_max=10) > 0
        fill(made, random, 200, above=BOUNDARY)
        if explicit:
            made.set_gc_boundary(2 * BOUNDARY)
        told: list[PlanProgress] = []
        summary = compact_plan(
            node.url(topic), buckets=3, directory=tmp_path, progress=told.append, spark=spark
        )
        made.snapshot()
        expected = engine_live(node, made.streams)
    assert planned_live(tmp_path) == expected
    assert summary.live == sum(map(len, expected.values()))
    assert summary.dead > 50
    assert summary.outcomes == ()
    assert [each.step for each in told] == ["read", "judged"]


def test_an_applied_plan_leaves_every_live_entry_and_nothing_else(
    spark: SparkSession, node: Node, topic: str
) -> None:
    with node.connect() as log:
        made = log.create_topic(topic, streams=1)
        fill(made, Random(1), 300)
        made.trim(40)
        before = values(made)
        summary = compact_plan(node.url(topic), apply=True, full=True, spark=spark)
        assert values(made) == before
        left = sum(1 for _ in made.read())
    assert summary.refused == 0
    dead = sum(outcome.dead for outcome in summary.outcomes)
    # Deletes stay that hide what was trimmed and is still on disk: no plan can see that.
    doubtful = sum(outcome.doubtful for outcome in summary.outcomes)
    assert dead > 50
    assert dead + doubtful == summary.dead
    assert left == summary.live + doubtful


def test_the_replicas_of_a_cluster_compact_by_a_plan(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    with cluster.connect() as log:
        made = log.create_topic(topic, streams=2, replicas=3)
        fill(made, Random(3), 300)
        before = values(made)
        told: list[PlanProgress] = []
        summary = compact_plan(
            cluster.url_of(topic), apply=True, full=True, progress=told.append, spark=spark
        )
        assert values(made) == before
        live = {stream.stream: stream.snapshot_entries for stream in made.stats().streams}
        places = [(stream, node) for stream in made.streams for node in (1, 2, 3)]
    assert summary.refused == 0
    assert sorted((each.stream, each.node) for each in summary.outcomes) == places
    assert sum(each.dead for each in summary.outcomes) > 100
    assert live == {each.stream: each.live for each in summary.streams}
    assert [each.step for each in told] == ["read", "judged", "offered", "offered"]


def test_the_command_tells_what_it_found_and_what_became_of_it(
    spark: SparkSession, node: Node, topic: str
) -> None:
    with node.connect() as log:
        log.create_topic(topic).put_batch([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    arguments = ["--from", node.url(topic), "--apply"]
    told = CliRunner().invoke(command, arguments)
    assert told.exit_code == 0, told.stderr
    fields = dict(line.split(maxsplit=1) for line in told.stdout.splitlines())
    assert (fields["live"], fields["dead"], fields["dropped"], fields["refused"]) == tuple("2110")
    assert "judged them: 1 are dead" in told.stderr
    again = json.loads(CliRunner().invoke(command, [*arguments, "-o", "json"]).stdout)
    assert [stream["dead"] for stream in again["streams"]] == [1]


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_log_larger_than_the_memory_of_workers_is_planned(
    node: Node, topic: str, tmp_path: Path
) -> None:
    """Without folding the same workers run out of memory."""
    keys = [b"key-%08d" % number for number in range(50_000)]
    rounds = 60
    with node.connect() as log:
        # With GLSNs as versions the node itself would drop most of it on the way to segments.
        made = log.create_topic(topic, versions="explicit")
        for number in range(1, rounds + 1):
            made.write([Entry(Kind.PUT, b"v", key, write_version=number) for key in keys])
        made.set_gc_boundary(rounds)
    done = {}
    for rows_max in (ROWS_MAX, 1 << 40):
        command = [sys.executable, "-m", "tests.spark.plan_memory_job", node.url(topic)]
        command += [str(tmp_path / str(rows_max)), str(rows_max)]
        done[rows_max] = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=180, cwd=ROOT
        )
    folding, gathering = done.values()
    assert folding.returncode == 0, folding.stderr
    assert folding.stdout.split() == [str(len(keys)), str(len(keys) * (rounds - 1))]
    assert gathering.returncode != 0
    assert "MemoryError" in gathering.stderr
