"""A log in each of its faces: embedded, served over TCP, over TLS, over a Unix socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tidelog
from tests.client.served import Node, node, socket_path
from tests.security.material import client, server
from tidelog.interface.handles import LogHandle

FACES = ("embedded", "tcp", "tls", "unix")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Node]:
    """A node on TCP."""
    with node(tmp_path / "log") as running:
        yield running


@pytest.fixture(params=FACES)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogHandle]:
    """The same log, however it is reached."""
    with ExitStack() as stack:
        if request.param == "embedded":
            yield stack.enter_context(tidelog.open(tmp_path / "log"))
            return
        endpoint = "tcp://127.0.0.1:0"
        if request.param == "unix":
            endpoint = f"unix://{stack.enter_context(socket_path())}"
        if request.param == "tls":
            endpoint = "tls://127.0.0.1:0"
        security = server() if request.param == "tls" else None
        running = stack.enter_context(node(tmp_path / "log", endpoint, security=security))
        yield stack.enter_context(tidelog.connect(running.url, security=client()))
