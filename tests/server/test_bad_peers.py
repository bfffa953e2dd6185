"""Peers that send garbage, too much, too little, too slowly, or read nothing: others are served."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from contextlib import ExitStack
from random import Random

import pytest

from tests.embedded.logs import INLINE, gated
from tests.security.material import server
from tests.server.raw import LOCAL, TOPIC, RawClient, Served, batch_of, run, serving, until
from tidelog.errors import BadFrame, ConnectionLost
from tidelog.formats.messages import (
    AppendBatches,
    Cancel,
    Describe,
    Done,
    Hello,
    Ping,
    ReadPage,
    Receipts,
    Refused,
    Welcome,
    encode_message,
)
from tidelog.formats.wire import encode_frame
from tidelog.limits import HELLO_BYTES_MAX, IN_FLIGHT_REQUESTS_MAX, KIB, MIB
from tidelog.net.connection import Patience
from tidelog.net.endpoint import Endpoint, TcpEndpoint
from tidelog.server.node import NodeOptions
from tidelog.testing.disk import SimDisk

IMPATIENT = NodeOptions(patience=Patience(hello=0.1, frame=0.1, write=0.1, close=0.1))
LISTENERS = [LOCAL, TcpEndpoint("127.0.0.1", 0, tls=True)]
PATIENT = NodeOptions(patience=Patience(hello=600, frame=600))


async def is_served(served: Served) -> None:
    """Somebody else can work with the node."""
    async with served.client() as client:
        assert isinstance(await client.ask(Ping()), Done)


async def last_words(client: RawClient) -> str:
    """The error with which the node ends a connection; empty if it says nothing."""
    error = ""
    try:
        while True:
            _, answer, _ = await client.receive_frame()
            if isinstance(answer, Refused):
                error = answer.error
    except ConnectionLost:
        return error


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: node\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        bytes(100),
        b"\xff" * 100_000,
        Random(1).randbytes(100_000),
        encode_frame(b"not a message", request=1),
        encode_frame(encode_message(Ping()), request=1),
        encode_frame(b"", request=1),
    ],
    ids=["http", "tls", "zeros", "ones", "noise", "no message", "no hello", "empty"],
)
def test_garbage_ends_the_connection_that_sent_it(data: bytes) -> None:
    async def main() -> None:
        async with serving() as served, served.client() as other:
            client = await served.client().connect()
            client.send_bytes(data)
            assert await last_words(client) in ("BadFrame", "")
            await client.close()
            assert served.node.parts.counters.refused["BadFrame"] == 1
            assert isinstance(await other.ask(Ping()), Done)
            await is_served(served)

    run(main())


@pytest.mark.parametrize("end", LISTENERS)
def test_strangers_leave_a_process_descriptors_for_its_files(
    monkeypatch: pytest.MonkeyPatch, end: Endpoint
) -> None:
    """Who has no file left stops: a log cannot do without one."""
    first_free = os.dup(0)
    os.close(first_free)
    few = 2 * (first_free + 20)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (few, few))
    security = server() if end.tls else None

    async def main() -> None:
        async with serving(node_options=PATIENT, endpoints=(end,), security=security) as served:
            found = served.endpoints[0]
            assert isinstance(found, TcpEndpoint)
            counters = served.node.parts.counters
            with ExitStack() as strangers:
                for _ in range(60):
                    stranger = socket.create_connection((found.host, found.port))
                    strangers.enter_context(stranger)
                await until(lambda: counters.connections_total == 60, "all came")
                await until(lambda: counters.connections < 20, "most were hung up on")
                assert counters.refused["Busy"] >= 40
            await until(lambda: not counters.connections, "all went")
            if not end.tls:
                await is_served(served)

    run(main())


def test_a_hello_of_another_version_is_told_so() -> None:
    async def main() -> None:
        async with serving() as served:
            client = await served.client().connect()
            frame = bytearray(encode_frame(encode_message(Hello("new")), request=1))
            frame[28] = 9
            client.send_bytes(bytes(frame))
            assert await last_words(client) == "UnsupportedVersion"
            await client.close()
            await is_served(served)

    run(main())


def test_a_client_that_looks_for_another_log_is_told_so() -> None:
    async def main() -> None:
        async with serving() as served:
            client = await served.client().connect()
            client.send(Hello("lost", bytes(16)))
            assert await last_words(client) == "WrongLog"
            await client.close()
            client = await served.client().connect()
            log_id = served.engine.node.manifest.log_id
            assert isinstance(await client.ask(Hello("found", log_id)), Welcome)
            await client.close()

    run(main())


@pytest.mark.parametrize("greeted", [False, True])
@pytest.mark.parametrize("place", [8, 12])
def test_oversized_lengths_are_refused_before_anything_is_received(
    greeted: bool, place: int
) -> None:
    async def main() -> None:
        # Not by a deadline: the length alone is enough.
        async with serving(node_options=PATIENT) as served:
            client = await served.client().connect()
            if greeted:
                await client.ask(Hello("test"))
            size = (1 << 31) if greeted else HELLO_BYTES_MAX + 1
            frame = bytearray(encode_frame(b"", request=9))
            frame[place : place + 4] = size.to_bytes(4, "little")
            client.send_bytes(bytes(frame))
            assert await last_words(client) == "BadFrame"
            await client.close()
            await is_served(served)

    run(main())


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    """In header and message by the frame's checksum, in the attachment by the batch's."""
    attachment = batch_of(b"v")
    message = encode_message(AppendBatches(TOPIC, (1,)))
    frame = encode_frame(message, request=2, attachment_bytes=len(attachment)) + attachment

    async def try_flip(served: Served, bit: int) -> None:
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        client = await served.client().connect()
        await client.ask(Hello("test"))
        client.send_bytes(bytes(damaged))
        client.writer.write_eof()
        assert await last_words(client) in ("BadFrame", "UnsupportedVersion", "")
        await client.close()

    async def main() -> None:
        async with serving(node_options=IMPATIENT) as served, served.client() as other:
            for bit in range(8 * len(frame)):
                await try_flip(served, bit)
            assert isinstance(await other.ask(Ping()), Done)
            assert served.engine.high_watermark(1) == 0

    run(main())


def test_half_a_frame_is_not_waited_for_for_ever() -> None:
    async def main() -> None:
        async with serving(node_options=IMPATIENT) as served:
            client = await served.client().connect()
            await client.ask(Hello("test"))
            client.send_bytes(encode_frame(encode_message(Describe(TOPIC)), request=2)[:-1])
            assert await last_words(client) == "BadFrame"
            await client.close()
            await is_served(served)

    run(main())


def test_who_does_not_say_hello_is_sent_away() -> None:
    async def main() -> None:
        async with serving(node_options=IMPATIENT) as served:
            client = await served.client().connect()
            assert await last_words(client) == "DeadlineExceeded"
            await client.close()
            await is_served(served)

    run(main())


def test_a_client_that_vanishes_harms_nobody() -> None:
    async def main() -> None:
        async with serving() as served:
            for cut in (0, 10, 40):
                client = await served.client().connect()
                await client.ask(Hello("test"))
                client.send(ReadPage(TOPIC, 1, wait_ms=20_000))
                client.send_bytes(encode_frame(encode_message(Ping()), request=9)[:cut])
                await client.writer.drain()
                client.writer.transport.abort()
            counters = served.node.parts.counters
            await until(lambda: counters.connections == counters.in_flight == 0, "all are gone")
            await is_served(served)

    run(main())


def test_a_number_in_use_ends_the_connection() -> None:
    async def main() -> None:
        async with serving() as served:
            for number in (0, 5):
                client = await served.client().connect()
                await client.ask(Hello("test"))
                frame = encode_frame(encode_message(ReadPage(TOPIC, 1, wait_ms=9999)), request=5)
                client.send_bytes(frame)
                client.send_bytes(encode_frame(encode_message(Ping()), request=number))
                assert await last_words(client) == "BadFrame"
                await client.close()

    run(main())


def test_a_second_hello_ends_the_connection() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            client.send(Hello("again"))
            assert await last_words(client) == "BadFrame"

    run(main())


def test_a_client_that_never_reads_gets_little_of_the_memory() -> None:
    """It asks for everything a hundred times; only some pages are made, and it is dropped."""
    options = NodeOptions(patience=Patience(write=0.5))

    async def main() -> None:
        async with serving(node_options=options) as served, served.client() as other:
            for _ in range(8):
                await other.append(bytes(MIB))
            client = served.client()
            await client.connect()
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            await client.ask(Hello("greedy"))
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(100):
                client.send(ReadPage(TOPIC, 1, bytes_max=8 * MIB))
            counters = served.node.parts.counters
            await until(lambda: counters.read_pages >= 1, "a page is sent")
            await is_served(served)
            await until(lambda: counters.connections == 1, "the client is dropped")
            assert counters.read_pages <= 4
            await client.close()

    run(main())


def test_a_client_that_sends_without_reading_is_held_back() -> None:
    """Each request is small and answered at once; it is the answers that pile up."""
    options = NodeOptions(patience=Patience(write=0.5))
    flood = b"".join(
        encode_frame(encode_message(Ping()), request=number) for number in range(2, 200_000)
    )

    async def main() -> None:
        async with serving(node_options=options) as served:
            client = served.client()
            await client.connect()
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            await client.ask(Hello("greedy"))
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send_bytes(flood)
            counters = served.node.parts.counters
            await until(lambda: counters.connections == 0, "the client is dropped")
            assert 0 < counters.requests["Ping"] < 190_000
            await client.close()
            await is_served(served)

    run(main())


def test_a_client_that_reads_late_gets_all_its_answers() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            numbers = [client.send(Ping()) for _ in range(50_000)]
            counters = served.node.parts.counters
            await until(lambda: counters.requests["Ping"] > 1000, "some are answered")
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for number in numbers:
                assert isinstance((await client.answer(number))[0], Done)

    run(main())


def test_a_request_that_was_cancelled_gets_no_answer() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            waiting = client.send(ReadPage(TOPIC, 1, wait_ms=20_000))
            client.send(Cancel(waiting))
            client.send(Cancel(12345))
            await client.append(b"a")
            header, _, _ = await asyncio.wait_for(receive_next(client), 5)
            assert header != waiting
            assert served.node.parts.counters.in_flight == 0

    async def receive_next(client: RawClient) -> tuple[int, object, object]:
        number = client.send(Ping())
        header, answer, attachment = await client.receive_frame()
        assert header.request == number
        return header.request, answer, attachment

    run(main())


def test_a_deadline_is_kept() -> None:
    vfs, gate = gated(SimDisk())

    async def main() -> None:
        async with serving(vfs=vfs, options=INLINE) as served, served.client() as client:
            refused = await client.refusal(ReadPage(TOPIC, 1, wait_ms=20_000), timeout_ms=20)
            assert refused.error == "DeadlineExceeded"
            with gate.shut():
                append = client.send(AppendBatches(TOPIC, (1,)), batch_of(b"a"), timeout_ms=50)
                answer, _ = await client.answer(append)
                assert isinstance(answer, Refused)
                assert answer.error == "DeadlineExceeded"
                assert "may still take effect" in answer.message
            await until(lambda: served.engine.high_watermark(1) == 1, "it did take effect")

    run(main())


def test_requests_in_flight_are_bounded_and_all_answered() -> None:
    vfs, gate = gated(SimDisk())

    async def main() -> None:
        async with serving(vfs=vfs) as served, served.client() as client:
            parts = served.node.parts
            with gate.shut():
                numbers = [
                    client.send(AppendBatches(TOPIC, (1,)), batch_of(b"%d" % number))
                    for number in range(3 * IN_FLIGHT_REQUESTS_MAX)
                ]
                await until(
                    lambda: parts.counters.in_flight == IN_FLIGHT_REQUESTS_MAX, "it is full"
                )
                await is_served(served)
                assert parts.counters.in_flight == IN_FLIGHT_REQUESTS_MAX
            glsns = []
            for number in numbers:
                answer, _ = await client.answer(number)
                assert isinstance(answer, Receipts)
                glsns.append(answer.receipts[0].glsn)
            assert glsns == list(range(1, len(numbers) + 1))

    run(main())


def test_requests_that_nobody_waits_for_still_count() -> None:
    """Else a client with short deadlines could queue up anything behind a slow disk."""
    vfs, gate = gated(SimDisk())

    async def main() -> None:
        async with serving(vfs=vfs) as served, served.client() as client:
            counters = served.node.parts.counters
            with gate.shut():
                for _ in range(2 * IN_FLIGHT_REQUESTS_MAX):
                    client.send(AppendBatches(TOPIC, (1,)), batch_of(b"v"), timeout_ms=1)
                await until(
                    lambda: counters.refused["DeadlineExceeded"] == IN_FLIGHT_REQUESTS_MAX,
                    "all that were read have been given up",
                )
                await asyncio.sleep(0.05)
                assert counters.requests["AppendBatches"] == IN_FLIGHT_REQUESTS_MAX
            await until(lambda: served.engine.high_watermark(1) > 0, "the disk goes on")
            assert isinstance(await client.ask(Ping()), Done)

    run(main())


def test_too_many_connections_are_sent_away() -> None:
    options = NodeOptions(connections_max=2)

    async def main() -> None:
        async with serving(node_options=options) as served:
            async with served.client(), served.client() as second:
                third = await served.client().connect()
                assert await last_words(third) == "Busy"
                await third.close()
                assert isinstance(await second.ask(Ping()), Done)
            await until(lambda: served.node.parts.counters.connections == 0, "all are gone")
            await is_served(served)

    run(main())


def test_an_unknown_message_ends_the_connection() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            client.send_bytes(encode_frame(b"\x91\xa7Unknown", request=50))
            assert await last_words(client) == "BadFrame"
            await is_served(served)

    run(main())


def test_the_client_of_these_tests_notices_bad_answers() -> None:
    """A test of the tests: what they receive is checked."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            client.reader.feed_data(b"x" * 32)
            with pytest.raises(BadFrame):
                await client.receive_frame()

    run(main())
