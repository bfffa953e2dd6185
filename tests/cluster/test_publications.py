"""Publications and named positions while nodes are killed and stopped: each once, none lost."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest

import tidelog
from tests.cluster.arena import FAULT_SECONDS, Arena
from tests.cluster.workers import Work, Workers
from tidelog.errors import LogError, RevisionConflict
from tidelog.formats.batch import encode_values
from tidelog.interface.appends import Part
from tidelog.testing import LocalCluster

TOPIC = "published"
STREAMS = 2
STAGES = 3
"""Of one publication, each with a record for every log stream."""
MORE = 3
"""Publications and stored positions that must succeed before and after a fault."""
TURNS = 10
POSITION = "reader"


class Publishers:
    """Each publishes numbered batches; whatever fails is staged and published anew."""

    def __init__(self, url: str) -> None:
        self.workers = Workers(url, TOPIC)
        self.done: dict[int, int] = {}
        """Publisher → the last batch that was published."""
        self.stored = 0

    @property
    def works(self) -> tuple[Work, ...]:
        return (
            lambda topic: self._publish(topic, 1),
            lambda topic: self._publish(topic, 2),
            self._store_positions,
        )

    def wait_for_more(self, arena: Arena) -> None:
        stored, published = self.stored + MORE, sum(self.done.values()) + MORE
        arena.wait_until(
            lambda: (
                bool(self.workers.failures)
                or (self.stored >= stored and sum(self.done.values()) >= published)
            ),
            "publications and positions go on",
            FAULT_SECONDS,
        )

    def _publish(self, topic: tidelog.RemoteTopic, publisher: int) -> None:
        for batch in count(1):
            for attempt in count(1):
                if self.workers.stopping.is_set():
                    return
                try:
                    stages = [
                        topic.stage(parts(topic, publisher, batch, attempt, stage))
                        for stage in range(STAGES)
                    ]
                    topic.publish(f"publisher-{publisher}", batch, stages)
                except LogError:
                    continue
                self.done[publisher] = batch
                break

    def _store_positions(self, topic: tidelog.RemoteTopic) -> None:
        """Compare and set: a conflict can only be with what this very thread had stored."""
        revision = 0
        while not self.workers.stopping.is_set():
            try:
                topic.store_position(POSITION, revision + 1, expected=revision)
            except RevisionConflict:
                found = topic.position_of(POSITION)
                assert (found.revision, found.glsn) == (revision + 1, revision + 1)
            except LogError:
                continue
            revision += 1
            self.stored = revision


def parts(
    topic: tidelog.RemoteTopic, publisher: int, batch: int, attempt: int, stage: int
) -> list[Part]:
    return [
        Part(
            stream,
            encode_values([b"%d %d %d %d" % (publisher, batch, attempt, stage)], timestamp_us=1),
        )
        for stream in topic.streams
    ]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_publications_are_made_once_whoever_is_killed(tmp_path: Path) -> None:
    with (
        LocalCluster(3, directory=tmp_path, streams=1) as cluster,
        Arena(cluster, subscribers=0) as arena,
    ):
        with cluster.connect() as log:
            log.create_topic(TOPIC, streams=STREAMS)
        publishers = Publishers(cluster.url)
        with publishers.workers.running(publishers.works):
            for _ in range(TURNS):
                arena.wait_until_whole()
                publishers.wait_for_more(arena)
                node = arena.leader()
                arena.fault(node.kill)
                publishers.wait_for_more(arena)
                arena.restart(node)
                arena.wait_until_whole()
                node = arena.leader()
                arena.fault(node.pause)
                publishers.wait_for_more(arena)
                node.resume()
        arena.check_reading()
        check_published(arena, publishers)
        arena.check_replicas()


def check_published(arena: Arena, publishers: Publishers) -> None:
    """All of one attempt and nothing of the others, for every batch, on every node."""
    for node in arena.storing:
        with tidelog.connect(node.url) as log:
            topic = log.topic(TOPIC)
            assert topic.position_of(POSITION).revision >= publishers.stored
            found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
            for record in topic.read():
                publisher, batch, attempt, stage = map(int, record.value.split())
                found[publisher, batch].append((attempt, stage))
        for publication, pieces in found.items():
            attempts = {attempt for attempt, _ in pieces}
            assert len(attempts) == 1, f"{publication} was published twice: {pieces}"
            assert len(pieces) == STAGES * STREAMS, f"{publication} is there in part: {pieces}"
        for publisher, last in publishers.done.items():
            lost = [batch for batch in range(1, last + 1) if (publisher, batch) not in found]
            assert not lost, f"publications {lost} of {publisher} are lost"
