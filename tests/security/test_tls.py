"""TLS between clients and a node, over real sockets: who is let in, who is not, and is told why."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from random import Random

import pytest

import tidelog
from tests.client.served import node
from tests.security.conftest import Run
from tests.security.material import PLAIN, TLS, TOKEN, client, connect, pem, server
from tests.server.raw import RawClient, Served, serving, until
from tidelog.errors import BadAddress, BadOption, ConnectionLost, LogError, Unauthorized
from tidelog.formats.messages import Hello, Refused, Welcome, encode_message
from tidelog.formats.wire import encode_frame
from tidelog.limits import MIB
from tidelog.net.connection import Patience
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.security import ClientSecurity
from tidelog.server.node import NodeOptions

IMPATIENT = NodeOptions(patience=Patience(hello=0.2, frame=0.2, write=0.2, close=0.2))


async def is_served(served: Served) -> None:
    """Somebody who does it right can work with the node."""
    async with await connect(served, client("client")) as log:
        await log.append(b"works")


async def refusal_of(served: Served, security: ClientSecurity) -> LogError:
    """With what the client gives up, at once and not when its time is up."""
    with pytest.raises(LogError) as caught:
        await connect(served, security, timeout=600)
    return caught.value


def refused(served: Served) -> dict[str, int]:
    return dict(served.node.parts.counters.refused)


def tcp_socket(served: Served) -> socket.socket:
    endpoint = served.endpoints[0]
    assert isinstance(endpoint, TcpEndpoint)
    opened = socket.create_connection((endpoint.host, endpoint.port))
    opened.setblocking(False)
    return opened


# --- those who are let in ------------------------------------------------------------------------


def test_a_client_works_over_tls(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            assert str(served.endpoints[0]).startswith("tls://127.0.0.1:")
            async with await connect(served, client()) as log:
                receipts = [await log.append(b"%d" % number) for number in range(100)]
                assert [receipt.glsn for receipt in receipts] == list(range(1, 101))
                found = [record.value async for record in log.read()]
                assert found == [b"%d" % number for number in range(100)]

    run_in_loop(main())


def test_the_blocking_client_works_over_tls(tmp_path: Path) -> None:
    with node(tmp_path / "log", "tls://127.0.0.1:0", security=server()) as running:
        assert running.url.startswith("tidelog+tls://")
        with tidelog.connect(running.url, security=client()) as log:
            log.put(b"k", b"v")
            found = log.get(b"k")
            assert found is not None
            assert found.value == b"v"


def test_large_frames_pass_in_both_directions(run_in_loop: Run) -> None:
    values = [Random(number).randbytes(15 * MIB + number) for number in range(3)]

    async def main() -> None:
        async with (
            serving(endpoints=[TLS], security=server()) as served,
            await connect(served, client()) as log,
        ):
            await asyncio.gather(*(log.append(value) for value in values))
            found = [record.value async for record in log.read()]
            assert sorted(found) == sorted(values)

    run_in_loop(main())


def test_many_clients_append_at_once(run_in_loop: Run) -> None:
    async def one(served: Served, number: int) -> None:
        async with await connect(served, client()) as log:
            await asyncio.gather(*(log.append(b"%d" % number * 1000) for _ in range(50)))

    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            await asyncio.gather(*(one(served, number) for number in range(10)))
            assert served.engine.node.topics[1].name == "default"
            async with await connect(served, client()) as log:
                assert (await log.position()).high_watermark == 500

    run_in_loop(main())


def test_tls_1_3_is_spoken_and_1_2_if_the_client_knows_no_better(run_in_loop: Run) -> None:
    async def speak(served: Served, version: ssl.TLSVersion) -> str | None:
        context = client_context()
        context.minimum_version = context.maximum_version = version
        endpoint = served.endpoints[0]
        assert isinstance(endpoint, TcpEndpoint)
        _, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
        spoken = writer.get_extra_info("ssl_object").version()
        writer.close()
        assert spoken is None or isinstance(spoken, str)
        return spoken

    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            assert await speak(served, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
            assert await speak(served, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"

    run_in_loop(main())


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=pem("ca"))


def test_a_client_shows_its_certificate_where_one_is_needed(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server(client_ca="ca")) as served:
            await is_served(served)
            assert refused(served) == {}

    run_in_loop(main())


def test_one_node_listens_with_and_without_tls(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS, PLAIN], security=server()) as served:
            await is_served(served)
            async with served.client(1) as raw:
                await raw.append(b"in plain text")

    run_in_loop(main())


# --- those who are not ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("certificate", "security", "reason"),
    [
        ("server", client(ca="other_ca"), "unable to get local issuer certificate"),
        ("stranger", client(), "unable to get local issuer certificate"),
        ("expired", client(), "expired"),
        ("elsewhere", client(), "IP address mismatch"),
        ("server", client(server_name="elsewhere.example"), "Hostname mismatch"),
        ("server", ClientSecurity(), "local issuer"),
    ],
    ids=["wrong CA", "stranger", "expired", "elsewhere", "other name", "system's CAs"],
)
def test_a_client_refuses_a_server_that_it_cannot_trust(
    run_in_loop: Run, certificate: str, security: ClientSecurity, reason: str
) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server(certificate)) as served:
            error = await refusal_of(served, security)
            assert isinstance(error, Unauthorized)
            assert "the server's certificate is not good" in str(error)
            assert reason in str(error)
            # The node was told why, and counts it.
            await until(lambda: bool(refused(served)), "the refusal is counted")
            assert refused(served) == {"Unauthorized": 1}

    run_in_loop(main())


def test_a_server_may_be_reached_by_another_name_than_that_of_its_host(run_in_loop: Run) -> None:
    async def main() -> None:
        async with (
            serving(endpoints=[TLS], security=server("elsewhere")) as served,
            await connect(served, client(server_name="elsewhere.example")) as log,
        ):
            await log.append(b"works")

    run_in_loop(main())


@pytest.mark.parametrize(
    ("security", "reason"),
    [
        (client(), "a certificate of this side"),
        (client("stranger"), "refuses the certificate"),
        (client("expired"), "refuses the certificate"),
    ],
    ids=["none", "stranger", "expired"],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
def test_a_client_without_a_good_certificate_is_refused_and_told(
    run_in_loop: Run,
    monkeypatch: pytest.MonkeyPatch,
    security: ClientSecurity,
    reason: str,
    version: ssl.TLSVersion,
) -> None:
    made = ClientSecurity.ssl_context

    def limited(self: ClientSecurity) -> ssl.SSLContext | None:
        context = made(self)
        assert context is not None
        context.maximum_version = version
        return context

    async def main() -> None:
        async with serving(endpoints=[TLS], security=server(client_ca="ca")) as served:
            with monkeypatch.context() as patch:
                patch.setattr(ClientSecurity, "ssl_context", limited)
                error = await refusal_of(served, security)
            assert isinstance(error, Unauthorized), error
            assert reason in str(error)
            assert refused(served) == {"Unauthorized": 1}
            await is_served(served)

    run_in_loop(main())


def test_a_client_in_plain_text_is_told_to_use_tls(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            endpoint = served.endpoints[0]
            assert isinstance(endpoint, TcpEndpoint)
            url = f"tidelog://{endpoint.address}"
            with pytest.raises(BadAddress, match=r"connect to tidelog\+tls://"):
                await tidelog.connect_async(url, timeout=600)
            assert refused(served) == {"BadAddress": 1}
            await is_served(served)

    run_in_loop(main())


def test_a_peer_in_plain_text_gets_nothing_but_the_refusal(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            raw = await served.client().connect()
            for _ in range(3):
                raw.send(Hello("test"))
            header, answer, _ = await raw.receive_frame()
            assert (header.request, type(answer)) == (0, Refused)
            with pytest.raises(ConnectionLost):
                await raw.receive_frame()
            await raw.close()

    run_in_loop(main())


def test_a_client_that_speaks_tls_is_told_that_the_node_does_not(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[PLAIN]) as served, served.client() as other:
            endpoint = served.endpoints[0]
            assert isinstance(endpoint, TcpEndpoint)
            url = f"tidelog+tls://{endpoint.address}"
            with pytest.raises(BadAddress, match="there is no TLS at this address"):
                await tidelog.connect_async(url, security=client(), timeout=600)
            assert refused(served) == {"BadFrame": 1}
            await other.append(b"works")

    run_in_loop(main())


@pytest.mark.parametrize(
    "first",
    [b"", b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00" + bytes(100)],
    ids=["silent", "one byte", "a header", "half a hello"],
)
def test_a_handshake_that_takes_too_long_is_ended_while_others_are_served(
    run_in_loop: Run, first: bytes
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serving(endpoints=[TLS], security=server(), node_options=IMPATIENT) as served:
            slow = [tcp_socket(served) for _ in range(20)]
            for peer in slow:
                await loop.sock_sendall(peer, first)
            await is_served(served)
            for peer in slow:
                assert await received_until_end(peer) == b""
                peer.close()
            assert refused(served)["DeadlineExceeded"] >= len(slow)
            await until(lambda: served.node.parts.counters.connections == 0, "all are gone")
            await is_served(served)

    run_in_loop(main())


def test_a_hello_byte_by_byte_inside_tls_has_the_same_deadline(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server(), node_options=IMPATIENT) as served:
            raw = await tls_client(served)
            raw.send_bytes(encode_frame(encode_message(Hello("slow")), request=1)[:10])
            _, answer, _ = await raw.receive_frame()
            assert isinstance(answer, Refused)
            assert answer.error in ("DeadlineExceeded", "BadFrame")
            await raw.close()
            await is_served(served)

    run_in_loop(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x15\x03\x03\x00\x02\x02\x28",
        Random(1).randbytes(5000),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["no hello", "too long", "alert", "noise", "http"],
)
def test_garbage_ends_the_connection_that_sent_it(run_in_loop: Run, garbage: bytes) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            peer = tcp_socket(served)
            await asyncio.get_running_loop().sock_sendall(peer, garbage)
            await received_until_end(peer)
            peer.close()
            await until(lambda: sum(refused(served).values()) == 1, "the refusal is counted")
            await is_served(served)

    run_in_loop(main())


def test_a_record_that_was_tampered_with_ends_the_connection(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            raw = await tls_client(served)
            assert isinstance(await raw.ask(Hello("test")), Welcome)
            sent = raw.writer.get_extra_info("socket")
            duplicate = socket.socket(fileno=socket.dup(sent.fileno()))
            with duplicate:
                duplicate.send(b"\x17\x03\x03\x00\x20" + bytes(32))
            with pytest.raises(ConnectionLost):
                await raw.receive_frame()
            await raw.close()
            await until(lambda: refused(served) == {"BadFrame": 1}, "the refusal is counted")
            await is_served(served)

    run_in_loop(main())


def test_connections_in_their_handshake_count_and_are_bounded(run_in_loop: Run) -> None:
    async def main() -> None:
        options = NodeOptions(connections_max=3)
        async with serving(endpoints=[TLS], security=server(), node_options=options) as served:
            silent = [tcp_socket(served) for _ in range(3)]
            await until(lambda: served.node.parts.counters.connections == 3, "all are in")
            raw = await tls_client(served)
            header, answer, _ = await raw.receive_frame()
            assert (header.request, type(answer)) == (0, Refused)
            assert isinstance(answer, Refused)
            assert answer.error == "Busy"
            await raw.close()
            for peer in silent:
                peer.close()
            await until(lambda: served.node.parts.counters.connections == 0, "all are gone")
            await is_served(served)

    run_in_loop(main())


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"TLFR" + bytes(60)])
def test_a_client_says_nothing_in_plain_text_to_a_server_without_tls(
    run_in_loop: Run, answer: bytes
) -> None:
    heard = bytearray()

    async def answer_in_plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(65536))
        writer.write(answer)
        heard.extend(await reader.read())
        writer.close()

    async def main() -> None:
        listening = await asyncio.start_server(answer_in_plain, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        url = f"tidelog+tls://127.0.0.1:{port}"
        with pytest.raises(LogError):
            await tidelog.connect_async(url, security=client(token=TOKEN), timeout=0.5)
        listening.close()
        assert heard[:2] == b"\x16\x03"
        assert TOKEN.encode() not in heard

    run_in_loop(main())


def test_a_client_shows_its_token_to_nobody_who_has_no_good_certificate(run_in_loop: Run) -> None:
    heard = bytearray()

    async def listen_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read())
        writer.close()

    async def main() -> None:
        context = server("stranger").ssl_context()
        listening = await asyncio.start_server(listen_in, "127.0.0.1", 0, ssl=context)
        port = listening.sockets[0].getsockname()[1]
        url = f"tidelog+tls://127.0.0.1:{port}"
        with pytest.raises(Unauthorized):
            await tidelog.connect_async(url, security=client(token=TOKEN), timeout=600)
        listening.close()
        assert heard == b""

    run_in_loop(main())


# --- the end -------------------------------------------------------------------------------------


def test_the_last_words_of_a_node_arrive_although_the_client_still_sends(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            raw = await tls_client(served)
            assert isinstance(await raw.ask(Hello("test")), Welcome)
            raw.send_bytes(b"no frame" + bytes(4 * MIB))
            _, answer, _ = await raw.receive_frame()
            assert isinstance(answer, Refused)
            assert answer.error == "BadFrame"
            await raw.close()

    run_in_loop(main())


def test_answers_of_a_node_that_stops_arrive(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            log = await connect(served, client())
            appends = [asyncio.ensure_future(log.append(b"%d" % n)) for n in range(20)]
            await until(lambda: served.node.parts.counters.append_entries > 0, "one is in")
            await served.node.stop()
            done = await asyncio.gather(*appends, return_exceptions=True)
            assert any(not isinstance(outcome, BaseException) for outcome in done)
            await log.close()

    run_in_loop(main())


def test_a_client_that_vanishes_in_its_handshake_leaves_nothing(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[TLS], security=server()) as served:
            for _ in range(10):
                peer = tcp_socket(served)
                await asyncio.get_running_loop().sock_sendall(peer, b"\x16\x03\x01")
                peer.close()
            counters = served.node.parts.counters
            await until(lambda: counters.connections_total == 10, "all came")
            await until(lambda: counters.connections == 0, "all are gone")

    run_in_loop(main())


def test_a_client_gives_up_in_time_on_a_server_that_never_ends_the_handshake(
    run_in_loop: Run,
) -> None:
    async def main() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        with listener:
            url = f"tidelog+tls://127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(LogError, match="nothing was sent"):
                await tidelog.connect_async(url, security=client(), timeout=0.3)

    run_in_loop(main())


def test_tls_that_is_insisted_on_is_not_left_out(run_in_loop: Run) -> None:
    async def main() -> None:
        async with serving(endpoints=[PLAIN]) as served:
            insisting = ClientSecurity(tls=True, ca=pem("ca"))
            with pytest.raises(BadOption, match="without TLS"):
                await connect(served, insisting)
            assert served.node.parts.counters.connections_total == 0

    run_in_loop(main())


async def tls_client(served: Served) -> RawClient:
    """A client of the protocol over the TLS of asyncio."""
    raw = served.client()
    endpoint = served.endpoints[0]
    assert isinstance(endpoint, TcpEndpoint)
    raw.reader, raw.writer = await asyncio.open_connection(
        endpoint.host, endpoint.port, ssl=client_context()
    )
    return raw


async def received_until_end(peer: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    received = bytearray()
    try:
        while data := await loop.sock_recv(peer, 65536):
            received += data
    except ConnectionResetError:
        pass
    return bytes(received)
