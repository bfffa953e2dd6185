"""Logs for tests: a served node, which may be killed and started again, or a whole cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import tidelog
from tests.process.children import Child

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog
    from tidelog.testing import LocalCluster


class Served(Protocol):
    """A log that can be reached, whatever it runs on."""

    def url(self, topic: str = "default") -> str: ...

    def connect(self, topic: str = "default") -> RemoteLog: ...


class OnCluster:
    """A cluster with the names that a node has."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def url(self, topic: str = "default") -> str:
        return self.cluster.url_of(topic)

    def connect(self, topic: str = "default") -> RemoteLog:
        return tidelog.connect(self.url(topic))


class Node:
    """One log in one directory, always found under the same URL."""

    def __init__(self, directory: Path, *, stage_seconds: float | None = None) -> None:
        self.data = directory / "log"
        self._socket = directory / "node.sock"
        self.stage_seconds = stage_seconds
        """How long staged rows wait to be published, from the next start on; None: as usual."""
        self._child: Child | None = None

    def url(self, topic: str = "default") -> str:
        return f"tidelog+unix://{self._socket}?topic={topic}"

    def connect(self, topic: str = "default") -> RemoteLog:
        return tidelog.connect(self.url(topic))

    def start(self) -> None:
        assert self._child is None, "the node runs"
        arguments = [str(self.data), f"unix://{self._socket}"]
        if self.stage_seconds is not None:
            arguments.append(str(self.stage_seconds))
        self._child = Child("tests.spark.node_main", *arguments)
        self._child.wait_for(b"ready")

    def kill(self) -> None:
        """SIGKILL, as a crash would be."""
        if self._child is not None:
            with self._child:
                pass
            self._child = None


@contextmanager
def running_node(*, stage_seconds: float | None = None) -> Iterator[Node]:
    # Not below pytest's directory: the path of a Unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="tidelog-") as directory:
        node = Node(Path(directory), stage_seconds=stage_seconds)
        node.start()
        try:
            yield node
        finally:
            node.kill()
