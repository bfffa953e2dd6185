"""What tasks share, and what a read does while the log changes.  With a node, without Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from tests.spark.nodes import Node, running_node
from tidelog.client.blocking import RemoteTopic
from tidelog.errors import LogClosed, Trimmed, UnknownTopic, Unreachable, WrongLog
from tidelog.spark.connections import CONNECTIONS, Connections
from tidelog.spark.options import Connection, ReadOptions, batch_options
from tidelog.spark.partitions import GlsnRange
from tidelog.spark.source import read_range

DEADLINE_SECONDS = 30.0


def options_of(node: Node, topic: str = "default", **more: str) -> ReadOptions:
    return batch_options({"endpoint": node.url(topic), **more})


def connection_of(node: Node, topic: str = "default", **more: str) -> Connection:
    return options_of(node, topic, **more).connection


@pytest.fixture
def connections() -> Iterator[Connections]:
    kept = Connections(idle_seconds=0.2)
    yield kept
    kept.close()


def wait_until_closed(topic: RemoteTopic) -> None:
    deadline, pause = monotonic() + DEADLINE_SECONDS, threading.Event()
    while monotonic() < deadline:
        try:
            topic.position()
        except LogClosed:
            return
        pause.wait(0.02)
    raise AssertionError("the connection is still open")


def test_one_connection_serves_all_tasks_of_a_process(node: Node, connections: Connections) -> None:
    connection = connection_of(node)
    with (
        connections.topic(connection, soon=True) as one,
        connections.topic(connection, soon=False) as another,
    ):
        assert one is another
        with connections.topic(connection_of(node, timeoutMs="5000"), soon=False) as other:
            assert other is not one


def test_a_connection_that_nobody_uses_is_closed(node: Node, connections: Connections) -> None:
    connection = connection_of(node)
    with connections.topic(connection, soon=False) as topic:
        threading.Event().wait(0.5)  # Longer than a connection may be idle, but it is in use.
        assert topic.high_watermark >= 0
    wait_until_closed(topic)
    with connections.topic(connection, soon=False) as again:
        assert again is not topic
        assert again.high_watermark >= 0


def test_a_failed_connection_is_not_kept(node: Node, connections: Connections) -> None:
    nowhere = batch_options({"endpoint": "tidelog://127.0.0.1:1", "connectTimeoutMs": "100"})
    with (
        pytest.raises(Unreachable),
        connections.topic(nowhere.connection, soon=True),
    ):
        pass
    with (
        pytest.raises(UnknownTopic),
        connections.topic(connection_of(node, "nowhere"), soon=False),
    ):
        pass
    with connections.topic(connection_of(node), soon=True) as topic:
        assert topic.high_watermark >= 0


def test_another_log_in_the_same_place_is_noticed_and_then_used() -> None:
    connections = Connections()
    with running_node() as fresh:
        connection = connection_of(fresh)
        with connections.topic(connection, soon=True) as topic:
            topic.append(b"of the first log")
        fresh.kill()
        shutil.rmtree(fresh.data)
        fresh.start()
        with pytest.raises(WrongLog), connections.topic(connection, soon=False) as topic:
            topic.position()
        with connections.topic(connection, soon=False) as topic:
            assert topic.high_watermark == 0
        connections.close()


# -- a trim in the middle of a read --------------------------------------------------------------


def glsns_of(batches: Iterator[Any]) -> list[int]:
    return [glsn for batch in batches for glsn in batch["glsn"].to_pylist()]


def test_a_trim_in_the_middle_of_a_read_ends_it_or_is_skipped(node: Node, topic: str) -> None:
    with node.connect() as log:
        events = log.create_topic(topic)
        for _ in range(40):
            events.append_batch([bytes(1000)] * 1000)
        wanted = GlsnRange(1, events.high_watermark + 1)
        strict = read_range(options_of(node, topic), ["glsn"], wanted)
        lax = read_range(options_of(node, topic, failOnDataLoss="false"), ["glsn"], wanted)
        begun = [next(strict)["glsn"].to_pylist(), next(lax)["glsn"].to_pylist()]
        assert begun[0][0] == begun[1][0] == 1
        events.trim(35_001)
        with pytest.raises(Trimmed, match=r"the first available is 35001.*failOnDataLoss=false"):
            glsns_of(strict)
        glsns = begun[1] + glsns_of(lax)
    CONNECTIONS.close()
    assert glsns == sorted(set(glsns)), "nothing comes twice"
    assert glsns[-5000:] == list(range(35_001, 40_001))
    assert len(glsns) < 40_000


# -- registration --------------------------------------------------------------------------------


def test_the_format_can_be_looked_up_where_arrow_is_missing() -> None:
    """Spark imports it to look up any format, so it must not fail."""
    program = (
        "import sys; sys.modules['pyarrow'] = None; import pyspark_tidelog as p; "
        "print(p.DefaultSource.name(), [m for m in sys.modules if m.startswith('tidelog.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    name, modules = done.stdout.split(maxsplit=1)
    assert name == "tidelog"
    assert "client" not in modules
