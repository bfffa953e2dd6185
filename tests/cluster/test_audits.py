"""Audits of a cluster that is being written to, compacted, led anew and filled up: no findings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.pipeline.audits import LocalSteps
from tidelog.client.blocking import RemoteLog, RemoteTopic
from tidelog.client.replica_reading import connect_node
from tidelog.net.endpoint import parse_endpoint
from tidelog.pipeline.auditing.closer import AskedNodes
from tidelog.pipeline.auditing.findings import AuditSummary
from tidelog.pipeline.auditing.running import run
from tidelog.pipeline.auditing.targets import find_targets
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.soak

SECONDS = 20.0
AUDITS = 12
COMPACT_EVERY = 40
SMALL_FILES = {"storage.wal_file_bytes": "65536"}


def audit_of(cluster: LocalCluster) -> AuditSummary:
    """An audit whose tasks run here, one after the other."""
    targets = find_targets(cluster.url, None, SECONDS)
    nodes = {
        number: connect_node(parse_endpoint(where), timeout=SECONDS)
        for number, where in targets.endpoints.items()
    }
    try:
        steps = LocalSteps(nodes, targets.topic_of())
        return run(targets, steps, AskedNodes(targets, SECONDS), lambda _: None)
    finally:
        for node in nodes.values():
            node.close()


class Load(threading.Thread):
    """Appends and puts, and compacts now and then, until it is stopped."""

    def __init__(self, log: RemoteLog, keyed: RemoteTopic) -> None:
        super().__init__(name="tidelog-test-load")
        self._log = log
        self._keyed = keyed
        self._ended = threading.Event()
        self.rounds = 0

    def run(self) -> None:
        while not self._ended.is_set():
            self.rounds += 1
            self._log.append_batch([b"x%d" % self.rounds * 10] * 20)
            self._keyed.put_batch([(b"k%d" % key, b"%d" % self.rounds * 30) for key in range(20)])
            if self.rounds % COMPACT_EVERY == 0:
                self._keyed.compact(full=True)

    def stop(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def load(log: RemoteLog, keyed: RemoteTopic) -> Iterator[Load]:
    thread = Load(log, keyed)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


def test_an_audit_of_a_busy_cluster_has_no_findings() -> None:
    with LocalCluster(3, streams=2, settings=SMALL_FILES) as cluster, cluster.connect() as log:
        keyed = log.create_topic("keyed", streams=2, replicas=3)
        with load(log, keyed) as running:
            for number in range(AUDITS):
                if number == AUDITS // 2:
                    for _ in log.admin.move_leader(1):
                        pass
                summary = audit_of(cluster)
                assert summary.findings == ()
                assert summary.is_complete
        assert running.rounds > COMPACT_EVERY, "the load went on, and was compacted"


def test_a_replica_that_was_filled_up_has_what_the_others_have() -> None:
    with LocalCluster(3, streams=1, settings=SMALL_FILES) as cluster, cluster.connect() as log:
        for number in range(3):
            log.put_batch([(b"k%d" % key, b"%d" % number * 500) for key in range(100)])
            log.compact(full=True)
        stream = log.admin.status().streams[0]
        node = next(one for one in stream.ensemble if one != stream.leader)
        for _ in log.admin.contract(stream.stream, node):
            pass
        for _ in log.admin.expand(stream.stream, node):
            pass
        log.append(b"one more")
        summary = audit_of(cluster)
        assert summary.findings == ()
        assert {one.node for one in summary.replicas} == {1, 2, 3}
