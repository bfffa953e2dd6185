"""Proxies between the processes of a cluster: any way between two of them can be cut, one by one.

For machines that allow no network namespaces.  What a cut way holds back arrives when it is joined
again, as TCP has it: a network that loses packets loses no bytes.  Who has dialled is in the first
frame of a connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from tests.cluster.ways import Ways
from tidelog.formats.cluster_messages import PeerHello, decode_greeting
from tidelog.formats.wire import HEADER_BYTES, decode_header
from tidelog.testing import LocalCluster

WAIT_SECONDS: Final = 30.0
CHUNK_BYTES: Final = 1 << 16
HELLO_BYTES_MAX: Final = 1 << 16


class Proxies(Ways):
    """One proxy before the ``peers`` address of every node of a cluster that is not started yet."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(len(cluster.nodes))
        self._targets = [(node.host, node.ports.peers) for node in cluster.nodes]
        self._cut: set[tuple[int, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._joined = asyncio.Event()
        self._stopped = asyncio.Event()
        self._ready: Future[list[int]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxies")
        self._thread.start()
        ports = self._ready.result(WAIT_SECONDS)
        members = ",".join(f"{n}@tcp://127.0.0.1:{port}" for n, port in enumerate(ports, 1))
        for node, port in zip(cluster.nodes, ports, strict=True):
            node.environment["TIDELOG_NODE__ADVERTISE_PEERS"] = f"tcp://127.0.0.1:{port}"
            node.environment["TIDELOG_CLUSTER__METADATA"] = members

    def cut(self, sender: int, target: int) -> None:
        self._loop.call_soon_threadsafe(self._cut.add, (sender, target))

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._join_all)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()

    # -- in the thread --------------------------------------------------------------------------

    def _join_all(self) -> None:
        self._cut.clear()
        self._joined.set()
        self._joined = asyncio.Event()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        servers = []
        for number in range(self.count):

            def accept(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int = number
            ) -> None:
                self._start(self._pass_on(reader, writer, target))

            servers.append(await asyncio.start_server(accept, "127.0.0.1", 0))
        self._ready.set_result([server.sockets[0].getsockname()[1] for server in servers])
        await self._stopped.wait()
        for server in servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int
    ) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            sender, hello = await _read_hello(reader)
            await self._wait_for_way(sender, target)
            far_reader, far = await asyncio.open_connection(*self._targets[target])
            far.write(hello)
            await asyncio.gather(
                self._pump(reader, far, (sender, target)),
                self._pump(far_reader, writer, (target, sender)),
            )
        except (OSError, EOFError):
            pass  # Either side hung up, or nobody is there.
        finally:
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: tuple[int, int]
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._wait_for_way(*way)
            writer.write(data)
            await writer.drain()
        raise EOFError

    async def _wait_for_way(self, sender: int, target: int) -> None:
        while (sender, target) in self._cut:
            await self._joined.wait()


async def _read_hello(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Who dials, as its place in the cluster, and the bytes to pass on."""
    head = await reader.readexactly(HEADER_BYTES)
    header = decode_header(head, message_max=HELLO_BYTES_MAX, attachment_max=0)
    body = await reader.readexactly(header.message_bytes)
    hello = decode_greeting(body)
    assert isinstance(hello, PeerHello)
    return hello.node - 1, head + body
