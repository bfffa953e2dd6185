"""How a node starts and ends: in order, with every answer given, or because its disk failed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

import tidelog
from tests.embedded.logs import INLINE, PATH, gated
from tests.server.raw import (
    LOCAL,
    TOPIC,
    RawClient,
    batch_of,
    page_records,
    run,
    serving,
    socket_path,
    until,
)
from tidelog.errors import BadAddress, ConnectionLost, LogLocked, StorageFailed
from tidelog.formats.messages import (
    AppendBatches,
    Done,
    Hello,
    Page,
    Ping,
    Publish,
    Published,
    ReadPage,
    Receipts,
    Refused,
    StageBatches,
    Staged,
    Welcome,
)
from tidelog.net.endpoint import parse_endpoint
from tidelog.server.node import NodeOptions, State
from tidelog.server.serve import serve
from tidelog.storage.vfs import Vfs
from tidelog.testing.disk import SimDisk


def values_on(vfs: Vfs) -> list[bytes]:
    with tidelog.open(PATH, options=INLINE, vfs=vfs) as log:
        return [record.value for record in log.read()]


def test_appends_in_flight_are_answered_before_the_end() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)

    async def main() -> None:
        async with serving(vfs=vfs) as served, served.client() as client:
            with gate.shut():
                numbers = [
                    client.send(AppendBatches(TOPIC, (1,)), batch_of(b"%d" % number))
                    for number in range(50)
                ]
                counters = served.node.parts.counters
                await until(lambda: counters.in_flight == 50, "all are in flight")
                stopping = asyncio.create_task(served.node.stop())
                await until(lambda: served.node.state is State.STOPPING, "it is stopping")
                late = client.send(AppendBatches(TOPIC, (1,)), batch_of(b"late"))
                refused, _ = await client.answer(late)
                assert isinstance(refused, Refused)
                assert refused.error == "LogClosed"
            for number in numbers:
                assert isinstance((await client.answer(number))[0], Receipts)
            await client.close()
            await stopping

    run(main())
    assert values_on(disk.vfs()) == [b"%d" % number for number in range(50)]


def test_long_polls_end_with_the_node() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            await client.append(b"a")
            waiting = client.send(ReadPage(TOPIC, 2, wait_ms=50_000))
            await until(lambda: served.node.parts.counters.in_flight == 1, "it waits")
            stopping = asyncio.create_task(served.node.stop())
            answer, attachment = await client.answer(waiting)
            assert isinstance(answer, Page)
            assert page_records(answer, attachment) == []
            with pytest.raises(ConnectionLost):
                await client.receive_frame()
            await client.close()
            await stopping

    run(main())


def test_what_takes_too_long_is_cut_off() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)
    options = NodeOptions(stop_seconds=0.05)

    async def main() -> None:
        async with serving(vfs=vfs, node_options=options) as served, served.client() as client:
            with gate.shut():
                client.send(AppendBatches(TOPIC, (1,)), batch_of(b"slow"))
                await until(lambda: served.node.parts.counters.in_flight == 1, "it is in flight")
                stopping = asyncio.create_task(served.node.stop())
                with pytest.raises(ConnectionLost):
                    await client.receive_frame()
                await client.close()
            await stopping

    run(main())
    assert values_on(disk.vfs()) == [b"slow"]


def test_a_failed_disk_is_told_and_ends_the_node() -> None:
    disk = SimDisk()

    async def main() -> None:
        async with serving(disk) as served, served.client() as client:
            await client.append(b"a")
            served.engine.node.vfs.stop("the disk is broken")
            refused = await client.refusal(AppendBatches(TOPIC, (1,)), batch_of(b"b"))
            assert refused.error == "StorageFailed"
            await served.node.wait_until_asked_to_stop()
            assert isinstance(served.node.failure, StorageFailed)
            assert not served.node.is_ready

    run(main())


def test_a_failure_that_nobody_foresaw_harms_one_request() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            topic = served.engine.find_topic(TOPIC)
            store = served.engine.node.streams.pop(topic.streams[0])
            refused = await client.refusal(ReadPage(TOPIC, 1))
            assert refused.error == "LogError"
            assert "KeyError" in refused.message
            assert isinstance(await client.ask(Ping()), Done)
            served.engine.node.streams[topic.streams[0]] = store
            await client.append(b"a")

    run(main())


@pytest.mark.parametrize("address", ["tcp://256.1.1.1:1", "unix:///no/such/directory/socket"])
def test_an_address_that_cannot_be_used_is_told(address: str) -> None:
    async def main() -> None:
        with pytest.raises(BadAddress, match="cannot listen"):
            async with serving(endpoints=[parse_endpoint(address)]):
                pass

    run(main())


def test_an_address_in_use_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(endpoints=[LOCAL, socket_path(tmp_path)]) as served:
            for endpoint in served.endpoints:
                with pytest.raises(BadAddress):
                    async with serving(endpoints=[endpoint]):
                        pass
            async with served.client(1) as client:
                assert isinstance(await client.ask(Ping()), Done)

    run(main())


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        endpoint = socket_path(tmp_path)
        server = await asyncio.start_unix_server(lambda reader, writer: None, endpoint.path)
        server.close()
        async with serving(endpoints=[endpoint]) as served, served.client() as client:
            assert isinstance(await client.ask(Ping()), Done)

    run(main())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_runs_until_a_signal_comes(tmp_path: Path, number: signal.Signals) -> None:
    async def main() -> None:
        addresses: asyncio.Queue[list[str]] = asyncio.Queue()
        serving_task = asyncio.create_task(
            serve(
                tmp_path / "log",
                ["tcp://127.0.0.1:0", f"unix://{tmp_path}/socket"],
                http="http://127.0.0.1:0",
                ready=addresses.put_nowait,
            )
        )
        tcp, unix, http = await addresses.get()
        assert http.startswith("http://127.0.0.1:")
        for address in (tcp, unix):
            client = await RawClient(parse_endpoint(address)).connect()
            assert isinstance(await client.ask(Hello("test")), Welcome)
            await client.append(b"v")
            await client.close()
        os.kill(os.getpid(), number)
        await serving_task

    run(main())
    with tidelog.open(tmp_path / "log") as log:
        assert log.high_watermark == 2


def test_serve_tells_what_is_wrong_with_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        with tidelog.open(tmp_path / "log"), pytest.raises(LogLocked):
            await serve(tmp_path / "log", ["tcp://127.0.0.1:0"])
        with pytest.raises(BadAddress):
            await serve(tmp_path / "log", ["127.0.0.1"])

    run(main())


def test_stages_that_nobody_publishes_disappear() -> None:
    options = NodeOptions(stage_seconds=0.01, stage_check_seconds=0.01)

    async def main() -> None:
        async with serving(node_options=options) as served, served.client() as client:
            staged = await client.ask(StageBatches(TOPIC, (1,)), batch_of(b"v"))
            assert isinstance(staged, Staged)
            stages = served.engine.find_topic("~stage")
            store = served.engine.node.streams[stages.streams[0]]
            await until(lambda: store.trim_glsn_end > staged.stage, "the stage is trimmed")
            refused = await client.refusal(Publish(TOPIC, "w", 1, (staged.stage,)))
            assert refused.error == "StageExpired"
            assert await client.ask(Publish(TOPIC, "w", 1, ())) == Published(0, False)

    run(main())
