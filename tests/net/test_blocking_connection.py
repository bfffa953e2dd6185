"""Frames over blocking sockets: deadlines, sizes, numbers, partial writes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from time import monotonic

import pytest

from tests.security.material import client, server
from tidelog.errors import (
    BadFrame,
    ConnectionLost,
    DeadlineExceeded,
    LogError,
    Unreachable,
    UnsupportedVersion,
)
from tidelog.formats.messages import Hello, Refused, Welcome, encode_message
from tidelog.formats.wire import HEADER_BYTES, decode_header, encode_frame
from tidelog.limits import ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX, SESSION_ANSWER_BYTES_MAX
from tidelog.net.blocking_connection import BlockingConnection, connect
from tidelog.net.endpoint import TcpEndpoint, UnixEndpoint

SOON = 0.2
LONG = 20.0


@pytest.fixture
def pair() -> Iterator[tuple[BlockingConnection, socket.socket]]:
    """A connection, and the bare socket of its peer."""
    mine, theirs = socket.socketpair()
    theirs.settimeout(LONG)
    with closing(BlockingConnection(mine, "the peer")) as connection, theirs:
        yield connection, theirs


def soon() -> float:
    return monotonic() + SOON


def later() -> float:
    return monotonic() + LONG


def read_exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(size - len(data))
        assert part, "the connection ended"
        data += part
    return bytes(data)


def read_frame(peer: socket.socket) -> tuple[int, bytes, bytes]:
    """Number, message and attachment of the next frame."""
    head = read_exactly(peer, HEADER_BYTES)
    header = decode_header(head, message_max=MESSAGE_BYTES_MAX, attachment_max=ATTACHMENT_BYTES_MAX)
    message = read_exactly(peer, header.message_bytes)
    return header.request, message, read_exactly(peer, header.attachment_bytes)


def test_requests_are_numbered_from_one_and_answers_come_in_their_order(
    pair: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, peer = pair
    connection.send(b"first", [b"attached", memoryview(b" twice")], later())
    connection.send(b"second", [], later())
    assert read_frame(peer) == (1, b"first", b"attached twice")
    assert read_frame(peer) == (2, b"second", b"")
    peer.sendall(encode_frame(b"one", request=1) + encode_frame(b"two", request=2))
    assert connection.receive(later()) == b"one"
    assert connection.receive(later()) == b"two"


def test_an_attachment_larger_than_any_buffer_arrives_whole(
    pair: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, peer = pair
    parts = [bytes([number % 251]) * 100_003 for number in range(100)]
    received: list[tuple[int, bytes, bytes]] = []
    reader = threading.Thread(target=lambda: received.append(read_frame(peer)))
    reader.start()
    connection.send(b"large", parts, later())
    reader.join(LONG)
    assert received == [(1, b"large", b"".join(parts))]


def test_an_answer_may_come_byte_by_byte(
    pair: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, peer = pair
    connection.send(b"ask", [], later())

    def drip() -> None:
        for byte in encode_frame(b"slowly", request=1):
            peer.sendall(bytes([byte]))

    dripping = threading.Thread(target=drip)
    dripping.start()
    assert connection.receive(later()) == b"slowly"
    dripping.join()


def test_a_silent_peer_is_given_up_at_the_deadline(
    pair: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, _ = pair
    connection.send(b"ask", [], later())
    begin = monotonic()
    with pytest.raises(DeadlineExceeded):
        connection.receive(soon())
    assert SOON * 0.9 <= monotonic() - begin < LONG


def test_a_peer_that_drips_is_given_up_at_the_deadline_too(
    pair: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, peer = pair
    connection.send(b"ask", [], later())
    stop = threading.Event()

    def drip() -> None:
        for byte in encode_frame(b"x" * 1000, request=1):
            if stop.wait(0.01):
                return
            peer.sendall(bytes([byte]))

    dripping = threading.Thread(target=drip)
    dripping.start()
    begin = monotonic()
    with pytest.raises(DeadlineExceeded):
        connection.receive(soon())
    assert monotonic() - begin < LONG / 4
    stop.set()
    dripping.join()


def test_a_peer_that_does_not_read_is_given_up_at_the_deadline(
    pair: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, _ = pair
    with pytest.raises(DeadlineExceeded):
        connection.send(b"too much", [bytes(64 << 20)], soon())


BAD_ANSWERS: list[tuple[bytes, type[LogError]]] = [
    (b"HTTP/1.1 400 Bad Request\r\n\r\nsome more bytes", BadFrame),
    (encode_frame(bytes(SESSION_ANSWER_BYTES_MAX + 1), request=1), BadFrame),
    (encode_frame(b"x", request=1, attachment_bytes=1), BadFrame),
    (encode_frame(b"x", request=1, attachment_bytes=(1 << 32) - 1), BadFrame),
    (encode_frame(b"x", request=2), BadFrame),
    (encode_frame(b"x", request=1)[:-1] + b"y", BadFrame),
    (encode_frame(b"x", request=1)[:28] + b"\x02\x00\x00\x00x", UnsupportedVersion),
]


@pytest.mark.parametrize(("data", "error"), BAD_ANSWERS)
def test_what_is_no_answer_is_refused_before_its_bytes_are_taken(
    pair: tuple[BlockingConnection, socket.socket], data: bytes, error: type[LogError]
) -> None:
    connection, peer = pair
    greet(connection, peer)
    connection.send(b"ask", [], later())
    peer.sendall(data)
    with pytest.raises(error):
        connection.receive(later())


def greet(connection: BlockingConnection, peer: socket.socket) -> None:
    peer.sendall(encode_frame(encode_message(Welcome(b"", "peer", 1)), request=0))
    assert isinstance(connection.say_hello(Hello("me"), later()), Welcome)
    read_frame(peer)


def test_a_hello_shows_the_token(pair: tuple[BlockingConnection, socket.socket]) -> None:
    connection, peer = pair
    peer.sendall(encode_frame(encode_message(Welcome(b"", "peer", 1)), request=0))
    connection.say_hello(Hello("me", token="a-token-of-mine-here"), later())
    number, message, _ = read_frame(peer)
    assert number == 0
    assert b"a-token-of-mine-here" in message


def test_a_peer_that_hangs_up_says_why(pair: tuple[BlockingConnection, socket.socket]) -> None:
    connection, peer = pair
    greet(connection, peer)
    connection.send(b"ask", [], later())
    refused = encode_message(Refused("LogClosed", "it is stopping"))
    peer.sendall(encode_frame(refused, request=0))
    with pytest.raises(ConnectionLost, match="it is stopping"):
        connection.receive(later())


def test_the_end_of_a_connection_is_told(pair: tuple[BlockingConnection, socket.socket]) -> None:
    connection, peer = pair
    connection.send(b"ask", [], later())
    peer.sendall(encode_frame(b"half", request=1)[:-2])
    peer.close()
    with pytest.raises(ConnectionLost):
        connection.receive(later())


def test_shutting_down_wakes_the_thread_that_waits(
    pair: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, _ = pair
    connection.send(b"ask", [], later())
    raised: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            connection.receive(later())
        except ConnectionLost as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(LONG)
    connection.shut_down()
    thread.join(LONG / 2)
    assert len(raised) == 1
    connection.shut_down()


@pytest.fixture
def tls_pair() -> Iterator[tuple[BlockingConnection, socket.socket]]:
    """A connection with TLS, and the bare socket of its peer, who has shaken hands."""
    mine, theirs = socket.socketpair()
    server_side, client_side = server().ssl_context(), replace(client(), tls=True).ssl_context()
    assert server_side is not None
    assert client_side is not None
    bare: list[socket.socket] = []

    def shake_hands() -> None:
        encrypted = server_side.wrap_socket(theirs, server_side=True)
        bare.append(socket.socket(fileno=encrypted.detach()))

    thread = threading.Thread(target=shake_hands)
    thread.start()
    encrypted = client_side.wrap_socket(mine, server_hostname="127.0.0.1")
    thread.join(LONG)
    with closing(BlockingConnection(encrypted, "the peer")) as connection, bare[0] as peer:
        peer.settimeout(LONG)
        yield connection, peer


def test_what_is_sent_while_another_thread_shuts_down_is_not_sent_in_plain_text(
    tls_pair: tuple[BlockingConnection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, peer = tls_pair
    shut_down = socket.socket.shutdown

    def send_first(shut: socket.socket, how: int) -> None:
        connection.send(b"request", [b"entries"], later())
        shut_down(shut, how)

    monkeypatch.setattr(socket.socket, "shutdown", send_first)
    connection.shut_down()
    arrived = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    assert len(arrived) > HEADER_BYTES
    assert b"entries" not in arrived


def test_shutting_down_ends_a_connection_with_tls(
    tls_pair: tuple[BlockingConnection, socket.socket],
) -> None:
    connection, _ = tls_pair
    connection.send(b"ask", [], later())
    connection.shut_down()
    with pytest.raises(ConnectionLost):
        connection.receive(later())
    with pytest.raises(ConnectionLost):
        connection.send(b"more", [], later())


def test_nobody_at_an_address_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match=str(port)):
            connect(TcpEndpoint("127.0.0.1", port), later())


def test_a_host_that_does_not_exist_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="no-such-host"):
        connect(TcpEndpoint("no-such-host.invalid", 1), later())
    with pytest.raises(Unreachable, match="label"):
        connect(TcpEndpoint("h" * 64, 1), later())


def test_a_missing_socket_file_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="nothing"):
        connect(UnixEndpoint("/nonexistent/nothing"), later())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_both_families_of_addresses_are_tried(host: str) -> None:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("this machine has no such address")
    with listening:
        port = listening.getsockname()[1]
        with closing(connect(TcpEndpoint(host, port), later())):
            listening.accept()[0].close()
