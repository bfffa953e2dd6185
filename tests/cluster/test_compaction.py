"""Keys, deletes, trims and compactions on every node, while nodes are killed.

Every node compacts by itself, so nodes may hold different dead entries; what counts for a key is
the same everywhere, and what was trimmed is gone everywhere.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

import tidelog
from tests.cluster.arena import FAULT_SECONDS, Arena
from tests.cluster.workers import Work, Workers
from tidelog.errors import LogError, Trimmed
from tidelog.testing import LocalCluster

KEYS = 50
BATCH = 10
SMALL_FILES = {"storage.wal_file_bytes": "131072"}
WRITES = 200
"""Of keys, between two kills."""
FILLING = bytes(400)


class KeyWriter:
    """Puts and deletes keys, one call at a time, and knows what each key may be."""

    def __init__(self, url: str) -> None:
        self.allowed: dict[bytes, set[bytes | None]] = {key_of(n): {None} for n in range(KEYS)}
        self.writes = 0
        self.compactions = 0
        self.workers = Workers(url, "keys")

    @property
    def works(self) -> tuple[Work, Work]:
        return self._write, self._keep_small

    def _write(self, topic: tidelog.RemoteTopic) -> None:
        for number in count(1):
            if self.workers.stopping.is_set():
                return
            value = None if number % 5 == 0 else b"%d:" % number + FILLING
            keys = [key_of(number * 7 + place) for place in range(1 if value is None else BATCH)]
            before = {key: set(self.allowed[key]) for key in keys}
            for key in keys:
                self.allowed[key].add(value)
            try:
                if value is None:
                    topic.delete(keys[0])
                else:
                    topic.put_batch([(key, value) for key in keys])
            except LogError as error:
                if error.definite:
                    self.allowed |= before
            else:
                self.allowed |= {key: {value} for key in keys}
                self.writes += len(keys)

    def _keep_small(self, topic: tidelog.RemoteTopic) -> None:
        while not self.workers.stopping.wait(0.3):
            try:
                topic.compact(full=self.compactions % 2 == 0)
                self.compactions += 1
            except LogError:
                continue  # A node that was killed; the next one will do.

    def wait_for_writes(self, arena: Arena) -> None:
        enough = self.writes + WRITES
        arena.wait_until(
            lambda: self.writes >= enough or bool(self.workers.failures),
            "keys are written",
            FAULT_SECONDS,
        )


def key_of(number: int) -> bytes:
    return b"key-%d" % (number % KEYS)


@pytest.mark.slow
def test_keys_survive_compactions_and_kills(tmp_path: Path) -> None:
    with (
        LocalCluster(3, directory=tmp_path, streams=1, settings=SMALL_FILES) as cluster,
        Arena(cluster, subscribers=1) as arena,
    ):
        with cluster.connect() as log:
            log.create_topic("keys", streams=2)
        keys = KeyWriter(cluster.url)
        with keys.workers.running(keys.works):
            for victim in (arena.leader, arena.follower):
                keys.wait_for_writes(arena)
                node = victim()
                arena.fault(node.kill)
                keys.wait_for_writes(arena)
                arena.restart(node)
                arena.wait_until_whole()
        assert keys.compactions > 0
        trimmed = trim(arena)
        arena.check_reading()
        check_keys(arena, keys)
        check_trimmed(arena, trimmed)
        arena.check_replicas()


def check_keys(arena: Arena, keys: KeyWriter) -> None:
    for node in arena.storing:
        with tidelog.connect(node.url) as log:
            topic = log.topic("keys")
            for key, allowed in keys.allowed.items():
                record = topic.get(key)
                value = record.value if record is not None else None
                assert value in allowed, f"{key!r} on node {node.id}: {value!r}, not {allowed}"


def trim(arena: Arena) -> int:
    """Half of the topic of keys; where it begins then."""
    with arena.cluster.connect() as log:
        topic = log.topic("keys")
        return topic.trim(topic.high_watermark // 2)


def check_trimmed(arena: Arena, first: int) -> None:
    for node in arena.storing:
        with tidelog.connect(node.url) as log:
            topic = log.topic("keys")
            assert topic.first_available == first
            with pytest.raises(Trimmed) as caught:
                next(topic.read(first - 1))
            assert caught.value.first_available == first
