"""A process with all of its roles: it joins, serves, stops in order, and fails with a reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import tidelog
from tests.security.material import NEXT_TOKEN, TOKEN, client, pem
from tidelog.errors import BadAddress, LogLocked, StorageFailed
from tidelog.invariants import InvariantViolation
from tidelog.net import loops
from tidelog.runtime import process as process_module
from tidelog.runtime.config import Config
from tidelog.runtime.config_sources import load_config
from tidelog.runtime.events import TextLines
from tidelog.runtime.identity import founder, joiner, new_cluster_id
from tidelog.runtime.local_nodes import Ports, free_ports
from tidelog.runtime.new_node import make_node
from tidelog.runtime.process import ClusterProcess, ProcessState
from tidelog.storage.os_vfs import OsVfs

CLUSTER = new_cluster_id()
SECONDS = 30.0


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loops.loop_factory()) as runner:
        runner.run(asyncio.wait_for(main, SECONDS))


def config_of(
    directory: Path, ports: Ports, members: str, *, scheme: str = "tcp", **more: str
) -> Config:
    environment = {
        "TIDELOG_NODE__DATA": str(directory),
        "TIDELOG_NODE__LISTEN": f"{scheme}://127.0.0.1:{ports.clients}",
        "TIDELOG_NODE__PEERS": f"{scheme}://127.0.0.1:{ports.peers}",
        "TIDELOG_NODE__HTTP": "none",
        "TIDELOG_CLUSTER__METADATA": members,
        **{f"TIDELOG_{name.upper()}": value for name, value in more.items()},
    }
    return load_config(None, environment).config


def first_node(path: Path, **more: str) -> Config:
    """The configuration of a cluster's only node."""
    directory = path / "node-1"
    if not directory.exists():
        make_node(OsVfs(), str(directory), founder(CLUSTER, 1, (1,)))
    return config_of(directory, free_ports("127.0.0.1"), "", **more)


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[ClusterProcess]:
    process = ClusterProcess(config)
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


async def until(condition: Callable[[], object]) -> None:
    deadline = monotonic() + SECONDS
    while not condition():
        assert monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_node_alone_is_a_cluster_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        for round_number in (1, 2):
            config = first_node(tmp_path)
            async with running(config) as process:
                await until(lambda: process.is_ready)
                url = config.node.listen[0].replace("tcp://", "tidelog://")
                async with await tidelog.connect_async(url, create=True) as log:
                    assert (await log.append(b"hello")).glsn >= round_number
                text = (await process.metrics()).decode()
                assert 'tidelog_up{role="operator"} 1.0' in text
                assert "tidelog_raft_term" in text
            assert process.state is ProcessState.STOPPED
            assert process.failure is None

    run(main())


def test_a_directory_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        config = first_node(tmp_path)
        async with running(config):
            second = ClusterProcess(config)
            with pytest.raises(LogLocked):
                await second.start()
            await second.stop()

    run(main())


def test_a_port_that_is_taken_is_told_and_the_directory_is_let_go(tmp_path: Path) -> None:
    async def main() -> None:
        config = first_node(tmp_path)
        address = config.node.peers[0].rpartition(":")
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", int(address[2]))
        process = ClusterProcess(config)
        with pytest.raises(BadAddress, match=address[2]):
            await process.start()
        await process.stop()
        taken.close()
        async with running(config) as again:
            await until(lambda: again.is_ready)

    run(main())


def test_a_port_for_clients_that_is_taken_ends_the_process(tmp_path: Path) -> None:
    async def main() -> None:
        config = first_node(tmp_path)
        port = int(config.node.listen[0].rpartition(":")[2])
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        async with running(config) as process:
            await asyncio.wait_for(process.wait_until_asked_to_stop(), SECONDS)
            assert isinstance(process.failure, BadAddress)
            assert not process.is_ready
        taken.close()

    run(main())


def test_processes_find_each_other_over_tls_and_show_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(f"{TOKEN}\n")
    secured = {
        "scheme": "tls",
        "security__cert": pem("server"),
        "security__key": pem("server.key"),
        "security__ca": pem("ca"),
        "security__token_file": str(tokens),
    }

    async def main() -> None:
        ports = [free_ports("127.0.0.1") for _ in range(2)]
        make_node(OsVfs(), str(tmp_path / "1"), founder(CLUSTER, 1, (1,)))
        make_node(OsVfs(), str(tmp_path / "2"), joiner(CLUSTER))
        members = f"1@tls://127.0.0.1:{ports[0].peers}"
        first = config_of(tmp_path / "1", ports[0], members, **secured)
        second = config_of(
            tmp_path / "2", ports[1], members, node__roles="storage,operator", **secured
        )
        async with running(first) as one, running(second) as two:
            await until(lambda: one.is_ready and two.is_ready)
            url = f"tidelog+tls://127.0.0.1:{ports[1].clients}"
            security = client(token=TOKEN)
            async with await tidelog.connect_async(
                url, create=True, replicas=2, security=security
            ) as log:
                assert (await log.append(b"hello")).glsn

    run(main())


def test_a_process_with_another_token_stays_outside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = [tmp_path / "theirs", tmp_path / "ours"]
    for file, token in zip(files, (TOKEN, NEXT_TOKEN), strict=True):
        file.touch(mode=0o600)
        file.write_text(f"{token}\n")

    def was_refused() -> bool:
        lines = [TextLines(0).format(record) for record in caplog.records]
        return any("peer not reached" in line and "token is not known" in line for line in lines)

    async def main() -> None:
        ports = [free_ports("127.0.0.1") for _ in range(2)]
        make_node(OsVfs(), str(tmp_path / "1"), founder(CLUSTER, 1, (1,)))
        make_node(OsVfs(), str(tmp_path / "2"), joiner(CLUSTER))
        members = f"1@tcp://127.0.0.1:{ports[0].peers}"
        first = config_of(tmp_path / "1", ports[0], members, security__token_file=str(files[0]))
        second = config_of(tmp_path / "2", ports[1], members, security__token_file=str(files[1]))
        async with running(first) as one, running(second) as two:
            await until(lambda: one.is_ready)
            await until(lambda: two.state is ProcessState.JOINING)
            await until(was_refused)
            assert not two.is_ready

    run(main())


# -- failures --------------------------------------------------------------------------------------


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(process_module, "die", lambda: found.append("died"))
    return found


def test_a_failed_disk_ends_the_process_with_its_reason(tmp_path: Path, deaths: list[str]) -> None:
    async def main() -> None:
        process = ClusterProcess(first_node(tmp_path))
        process.fail(StorageFailed("fsync"))
        process.fail(StorageFailed("and again"))
        await process.wait_until_asked_to_stop()
        assert str(process.failure) == "fsync"

    run(main())
    assert not deaths


def test_an_error_of_the_program_ends_the_process_too(tmp_path: Path) -> None:
    async def main() -> None:
        process = ClusterProcess(first_node(tmp_path))
        process.fail(ZeroDivisionError())
        await process.wait_until_asked_to_stop()
        assert "ZeroDivisionError" in str(process.failure)

    run(main())


def test_a_broken_invariant_ends_the_process_at_once(tmp_path: Path, deaths: list[str]) -> None:
    def break_it() -> None:
        raise InvariantViolation("Z9: two and two are five")

    async def main() -> None:
        async with running(first_node(tmp_path)) as process:
            await until(lambda: process.is_ready)
            asyncio.get_running_loop().call_soon(break_it)
            await until(lambda: deaths)

    run(main())
