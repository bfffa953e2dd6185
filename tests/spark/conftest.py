"""What Spark tests share: a session for the run, a node or a cluster for each module."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest
from pyspark.sql import SparkSession

from tests.conftest import leaked_threads
from tests.spark.nodes import Node, running_node
from tests.spark.sessions import spark_session
from tidelog.testing.local_cluster import LocalCluster

_TOPICS = count(1)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three nodes with all roles; a test that kills one of them starts it again."""
    with LocalCluster(nodes=3) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A name that no other test of the run has used."""
    return f"topic-{next(_TOPICS)}"


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Our own threads end; those and the sockets between Python and the JVM come and go."""
    before = frozenset(threading.enumerate())
    yield
    ours = [thread for thread in threading.enumerate() if "tidelog" in thread.name]
    if any(thread not in before for thread in ours):
        left = [t.name for t in leaked_threads(before) if "tidelog" in t.name]
        assert not left, f"left behind: {left}"
