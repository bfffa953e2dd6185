"""The pages for those who watch a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.raw import LOCAL, TOPIC, Served, run, serving
from tidelog.formats.messages import Describe, ReadPage
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.http_pages import HttpPages


@asynccontextmanager
async def watched(*, seconds: float = 10.0) -> AsyncIterator[tuple[Served, TcpEndpoint]]:
    async with serving() as served:
        pages = HttpPages(served.node, seconds=seconds)
        try:
            yield served, await pages.start(LOCAL)
        finally:
            await pages.stop()


async def talk(endpoint: TcpEndpoint, request: bytes) -> tuple[int, str]:
    """Status and text of the answer; status 0 if there is none."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(request)
        answer = await reader.read()
    except OSError:
        answer = b""
    finally:
        writer.close()
    if not answer:
        return 0, ""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert b"Content-Length: %d" % len(body) in head
    return int(head.split()[1]), body.decode()


async def get(endpoint: TcpEndpoint, path: str) -> tuple[int, str]:
    return await talk(endpoint, f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())


def test_metrics_tell_what_happened() -> None:
    async def main() -> str:
        async with watched() as (served, endpoint), served.client() as client:
            await client.append(b"a", b"b")
            await client.page(ReadPage(TOPIC, 1))
            await client.refusal(Describe("none"))
            status, text = await get(endpoint, "/metrics")
            assert status == 200
            return text

    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(run(main()))
        for sample in family.samples
    }
    assert samples["tidelog_appends_total",] == 1
    assert samples["tidelog_append_entries_total",] == 2
    assert samples["tidelog_append_bytes_total",] > 0
    assert samples["tidelog_append_seconds_count",] == 1
    assert samples["tidelog_append_seconds_bucket", "+Inf"] == 1
    assert samples["tidelog_read_pages_total",] == 1
    assert samples["tidelog_read_bytes_total",] > 0
    assert samples["tidelog_refused_total", "UnknownTopic"] == 1
    assert samples["tidelog_requests_total", "AppendBatches"] == 1
    assert samples["tidelog_open_connections",] == 1
    assert samples["tidelog_in_flight_requests",] == 0
    assert samples["tidelog_high_watermark", TOPIC] == 2
    assert samples["tidelog_wal_frames_total",] == 1
    assert samples["tidelog_compactions_total", "major"] == 0


def test_health_and_readiness_follow_the_node() -> None:
    async def main() -> None:
        async with watched() as (served, endpoint):
            assert await get(endpoint, "/healthz") == (200, "alive\n")
            assert await get(endpoint, "/readyz?verbose") == (200, "ready\n")
            await served.node.stop()
            assert await get(endpoint, "/readyz") == (503, "stopped\n")
            status, text = await get(endpoint, "/metrics")
            assert status == 503
            assert "stopping" in text

    run(main())


def test_a_failed_disk_shows() -> None:
    async def main() -> None:
        async with watched() as (served, endpoint), served.client() as client:
            await client.append(b"a")
            served.engine.node.vfs.stop("the disk is broken")
            with pytest.raises(AssertionError):
                await client.append(b"b")
            status, text = await get(endpoint, "/healthz")
            assert status == 503
            assert "broken" in text
            assert (await get(endpoint, "/readyz"))[0] == 503

    run(main())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\r\n\r\n", 405),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics", 0),
        (b"", 0),
    ],
)
def test_other_requests_are_refused_in_bounds(request_bytes: bytes, status: int) -> None:
    async def main() -> None:
        async with watched(seconds=0.1) as (_, endpoint):
            assert (await talk(endpoint, request_bytes))[0] in (status, 0)
            assert (await get(endpoint, "/healthz"))[0] == 200

    run(main())
