"""Peers that lie, flood, dribble or show wrong papers: refused, while a master works on.

The replica is the real process; its memory is looked at from outside.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.pair.good_master import GoodMaster
from tests.pair.impatient_replica import CONNECTIONS_MAX
from tests.replica_service.raw_master import Connection
from tests.replica_service.replica_process import ReplicaProcess
from tests.security.material import TOKEN, WRONG_TOKEN, client, pem
from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    BlobWrite,
    ErrorCode,
    GroupCommit,
    LogChannelCreate,
    LogEntryWrite,
    Request,
    SessionBegin,
    SessionEnd,
)
from tidelog.datastore.datastore import Datastore
from tidelog.errors import ConnectionLost, ReplicaRefused, Unauthorized, Unreachable
from tidelog.formats.messages import Hello, encode_message
from tidelog.formats.session_messages import encode_session_message
from tidelog.formats.wire import encode_frame
from tidelog.limits import ATTACHMENT_BYTES_MAX, MIB
from tidelog.net.endpoint import TcpEndpoint, parse_endpoint

IMPATIENT = ("tests.pair.impatient_replica",)
LENGTH_MAX = (1 << 32) - 1
HELLO = encode_frame(encode_message(Hello("peer")), request=0)
MEMORY_MORE = 64 * MIB
"""What any number of hostile peers may make a replica take."""


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaProcess]:
    path = tmp_path_factory.mktemp("replica") / "data"
    with ReplicaProcess(path, program=IMPATIENT) as running:
        yield running
        assert running.process.poll() is None, running.errors()
        assert "Traceback" not in running.errors()


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory, replica: ReplicaProcess
) -> Iterator[GoodMaster]:
    """One session, which lives through all of this."""
    with GoodMaster(tmp_path_factory.mktemp("master") / "data", replica.address) as working:
        yield working


@pytest.fixture
def master(replica: ReplicaProcess, session: GoodMaster) -> Iterator[GoodMaster]:
    session.work()
    before = replica.peak_bytes
    yield session
    session.work()
    assert replica.peak_bytes - before < MEMORY_MORE


def header(message: int, attachment: int, request: int) -> bytes:
    head = bytearray(encode_frame(b"", request=request))
    head[8:12] = message.to_bytes(4, "little")
    head[12:16] = attachment.to_bytes(4, "little")
    return bytes(head)


def is_refused(peer: Connection) -> bool:
    """Whether the replica hangs up, with or without a word."""
    try:
        while True:
            peer.receive()
    except ConnectionLost:
        return True


def refused(replica: ReplicaProcess, data: bytes, *, greet: bool = True) -> bool:
    with Connection(replica.address, greet=greet) as peer:
        peer.send_bytes(data)
        return is_refused(peer)


@pytest.mark.parametrize("greet", [False, True])
def test_absurd_lengths_are_refused(
    replica: ReplicaProcess, master: GoodMaster, greet: bool
) -> None:
    for _ in range(20):
        assert refused(replica, header(LENGTH_MAX, 0, 1), greet=greet)
        assert refused(replica, header(0, LENGTH_MAX, 1), greet=greet)
        assert refused(replica, header(1, ATTACHMENT_BYTES_MAX, 1), greet=greet)
    master.work()


def test_garbage_after_the_hello_is_refused(replica: ReplicaProcess, master: GoodMaster) -> None:
    random = Random(1)
    for data in (
        b"GET / HTTP/1.1\r\n\r\n" * 10,
        bytes(100_000),
        random.randbytes(100_000),
        encode_frame(b"garbage", request=1),
        encode_frame(b"", request=1),
        encode_frame(random.randbytes(4_000), request=1),
        encode_frame(encode_session_message(SessionEnd()), request=7),
        HELLO,
    ):
        assert refused(replica, data)
    master.work()


STRANGERS_REQUESTS: list[tuple[Request, ErrorCode]] = [
    (SessionBegin(SESSION_PROTOCOL, "0" * 32, 0, 1), ErrorCode.SESSION_OPEN),
    (SessionBegin(SESSION_PROTOCOL + 1, "0" * 32, 0, 1), ErrorCode.UNSUPPORTED_PROTOCOL),
    (SessionEnd(), ErrorCode.NO_SESSION),
    (GroupCommit(1 << 60), ErrorCode.NO_SESSION),
    (LogChannelCreate("", 0), ErrorCode.WRONG_SECRET),
    (LogChannelCreate("0" * 64, 0), ErrorCode.WRONG_SECRET),
    (LogEntryWrite(1, session_begin=True), ErrorCode.NO_CHANNEL),
    (BlobWrite(1, 0, 1 << 63), ErrorCode.NO_CHANNEL),
]


def test_strangers_cannot_touch_the_session_of_another(
    replica: ReplicaProcess, master: GoodMaster
) -> None:
    for request, code in STRANGERS_REQUESTS * 5:
        with Connection(replica.address) as peer:
            assert peer.error(request) is code
            assert peer.is_hung_up
        master.work(1)


def test_slow_peers_are_sent_away_and_hold_nobody_up(
    replica: ReplicaProcess, master: GoodMaster
) -> None:
    """Silence, half a hello, half a frame after the hello, and no request after it."""
    frame = encode_frame(encode_session_message(LogChannelCreate("secret", 0)), request=1)
    silent = Connection(replica.address, greet=False)
    half = Connection(replica.address, greet=False)
    half.send_bytes(HELLO[: len(HELLO) // 2])
    half_frame = Connection(replica.address)
    half_frame.send_bytes(frame[:-1])
    idle = Connection(replica.address)
    for peer in (silent, half, half_frame, idle):
        assert is_refused(peer)
        peer.close()
    master.work()


def test_a_hello_byte_by_byte_has_no_more_time_than_any_other(
    replica: ReplicaProcess, master: GoodMaster
) -> None:
    hello = encode_frame(encode_message(Hello("peer" * 1_000)), request=0)
    sent = 0
    with Connection(replica.address, greet=False) as peer:
        peer.socket.settimeout(0.001)
        while sent < len(hello):
            try:
                peer.send_bytes(hello[sent : sent + 1])
                peer.socket.recv(1)
                break  # It was told that its time is up, or the connection is gone.
            except TimeoutError:
                sent += 1
                master.work(1)
            except ConnectionError:
                break
    assert 0 < sent < len(hello) // 2


def test_a_flood_of_connections_is_bounded(replica: ReplicaProcess, master: GoodMaster) -> None:
    """Those beyond the bound are turned away; the others have to say hello."""
    endpoint = parse_endpoint(replica.address)
    assert isinstance(endpoint, TcpEndpoint)
    flood = [
        socket.create_connection((endpoint.host, endpoint.port), 10)
        for _ in range(6 * CONNECTIONS_MAX)
    ]
    try:
        master.work()
        for peer in flood:
            while True:
                try:
                    if not peer.recv(1000):
                        break
                except ConnectionError:
                    break
    finally:
        for peer in flood:
            peer.close()
    assert replica.metrics()["turned_away_total{Busy}"] > 4 * CONNECTIONS_MAX
    with Connection(replica.address) as late:
        assert late.error(SessionEnd()) is ErrorCode.NO_SESSION


def test_tls_at_a_plain_port_is_refused(replica: ReplicaProcess, master: GoodMaster) -> None:
    endpoint = parse_endpoint(replica.address)
    assert isinstance(endpoint, TcpEndpoint)
    context = client().ssl_context()
    for _ in range(10):
        with (
            socket.create_connection((endpoint.host, endpoint.port), 10) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            (context or ssl.create_default_context()).wrap_socket(
                plain, server_hostname="localhost"
            )
    master.work()


# -- papers ----------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ReplicaProcess]:
    """A replica that wants a certificate and a token."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    with ReplicaProcess(
        tmp_path / "replica",
        "--tls-cert", pem("server"), "--tls-key", pem("server.key"),
        "--tls-client-ca", pem("ca"), "--token-file", str(tokens),
        endpoint="tls://127.0.0.1:0",
    ) as running:  # fmt: skip
        yield running
        assert running.process.poll() is None, running.errors()
        assert "Traceback" not in running.errors()


STRANGERS = {
    "no certificate": client(token=TOKEN),
    "certificate of another CA": client("stranger", token=TOKEN),
    "expired certificate": client("expired", token=TOKEN),
    "no token": client("client"),
    "wrong token": client("client", token=WRONG_TOKEN),
    "other CA trusted": client("client", ca="other_ca", token=TOKEN),
}


def test_wrong_papers_are_refused_while_the_right_ones_are_served(
    tmp_path: Path, guarded: ReplicaProcess
) -> None:
    right = client("client", token=TOKEN)
    with GoodMaster(tmp_path / "master", guarded.address, security=right) as master:
        master.work()
        for name, papers in STRANGERS.items():
            stranger = Datastore(tmp_path / name, replicas=guarded.address, security=papers)
            stranger.create_channel()
            with pytest.raises((Unauthorized, Unreachable, ConnectionLost)):
                stranger.ready()
            stranger.close()
            master.work(2)
        # The right papers get as far as the session, which another master has.
        second = Datastore(tmp_path / "second", replicas=guarded.address, security=right)
        second.create_channel()
        with pytest.raises(ReplicaRefused) as caught:
            second.ready()
        second.close()
        assert caught.value.code == ErrorCode.SESSION_OPEN
        for data in (HELLO, bytes(1000), b"\x16\x03\x01\xff\xff" + bytes(2000)):
            with Connection(f"tcp://{guarded.address.removeprefix('tls://')}", greet=False) as raw:
                raw.send_bytes(data)
                raw.socket.shutdown(socket.SHUT_WR)
                while raw.socket.recv(1000):
                    pass
        master.work()


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_a_handshake_has_no_more_time_than_a_hello(tmp_path: Path) -> None:
    """Not begun, half begun, not answered, and followed by nothing."""
    papers = ("--tls-cert", pem("server"), "--tls-key", pem("server.key"))
    path = tmp_path / "replica"
    with ReplicaProcess(path, *papers, endpoint="tls://127.0.0.1:0", program=IMPATIENT) as replica:
        endpoint = parse_endpoint(replica.address)
        assert isinstance(endpoint, TcpEndpoint)
        address = (endpoint.host, endpoint.port)
        context = client().for_endpoint(endpoint).ssl_context()
        assert context is not None
        hello = client_hello(context)
        with GoodMaster(tmp_path / "master", replica.address, security=client()) as master:
            peers = [socket.create_connection(address, 10) for _ in range(4)]
            for peer, data in zip(peers, (b"", hello[:100], hello, hello + bytes(5)), strict=True):
                peer.sendall(data)
            greeted = context.wrap_socket(
                socket.create_connection(address, 10), server_hostname="localhost"
            )
            for peer in (*peers, greeted):
                try:
                    while peer.recv(10_000):
                        pass
                except ConnectionError:
                    pass
                master.work(2)
                peer.close()
