"""Listening at an address: what is refused, and what is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.net.pairs import Recorder, run
from tests.server.raw import socket_path
from tidelog.errors import BadAddress
from tidelog.net.connection import FrameConnection
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.http_pages import HttpPages, Watched
from tidelog.net.listening import listen


def accept() -> FrameConnection:
    recorder = Recorder()
    recorder.connection = FrameConnection(recorder)
    return recorder.connection


def test_the_socket_of_who_listens_there_by_now_is_not_removed(tmp_path: Path) -> None:
    """One that stops takes no connections while it answers what is in work."""

    async def main() -> None:
        endpoint = socket_path(tmp_path)
        stopping = await listen(endpoint, accept)
        stopping.close()
        next_one = await listen(endpoint, accept)
        try:
            stopping.remove()
            assert Path(endpoint.path).exists()
        finally:
            next_one.close()
        next_one.remove()
        assert not Path(endpoint.path).exists()

    run(main())


@pytest.mark.parametrize("host", ["a..b", "x" * 300])
def test_what_is_no_name_of_a_host_is_told(host: str) -> None:
    async def main() -> None:
        with pytest.raises(BadAddress, match="cannot listen"):
            await listen(TcpEndpoint(host, 0), accept)
        with pytest.raises(BadAddress, match="cannot listen"):
            await HttpPages(cast("Watched", None)).start(TcpEndpoint(host, 0))

    run(main())
