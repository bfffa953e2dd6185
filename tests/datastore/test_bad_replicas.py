"""Peers that are no replicas, or bad ones: the master says so in bounded time and stops."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.datastore.stores import LONG, SMALL
from tests.net.test_blocking_connection import read_frame
from tidelog.core.session.messages import Ack, Answer, Error, ErrorCode, SessionBegun
from tidelog.datastore.datastore import Datastore
from tidelog.errors import (
    BadFrame,
    ConnectionLost,
    DeadlineExceeded,
    LogError,
    ReplicaRefused,
    ReplicationFailed,
    Unauthorized,
)
from tidelog.formats.messages import Refused, Welcome, encode_message
from tidelog.formats.session_messages import encode_session_message
from tidelog.formats.wire import encode_frame

WELCOME = encode_frame(encode_message(Welcome(b"", "replica", 1)), request=0)
Talk = Callable[[socket.socket], None]


@contextmanager
def peer(talk: Talk) -> Iterator[str]:
    """A listener that treats each connection by ``talk``; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    connected, _ = listening.accept()
                except OSError:
                    return
                connected.settimeout(LONG)
                with connected:
                    try:
                        talk(connected)
                        while connected.recv(1 << 16):
                            pass
                    except (OSError, AssertionError):
                        pass  # The master hung up.

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(LONG)


def say(*data: bytes) -> Talk:
    """Answers each frame with the next of these, whatever it asks."""

    def talk(connected: socket.socket) -> None:
        for one in data:
            read_frame(connected)
            connected.sendall(one)

    return talk


def answer(message: Answer, request: int = 1) -> bytes:
    return encode_frame(encode_session_message(message), request=request)


CASES: list[tuple[str, Talk, type[LogError]]] = [
    ("hangs up", lambda connected: connected.close(), ConnectionLost),
    ("says nothing", lambda connected: None, DeadlineExceeded),
    ("speaks HTTP", say(b"HTTP/1.1 400 Bad Request\r\n\r\n and more than a header"), BadFrame),
    (
        "turns away",
        say(encode_frame(encode_message(Refused("Unauthorized", "no")), request=0)),
        Unauthorized,
    ),
    ("is silent after its greeting", say(WELCOME), ReplicationFailed),
    ("answers with garbage", say(WELCOME, b"\xff" * 64), ReplicationFailed),
    ("answers with too much", say(WELCOME, encode_frame(bytes(1 << 20), request=1)),
     ReplicationFailed),
    ("answers something else", say(WELCOME, answer(Ack())), ReplicationFailed),
    ("answers another request", say(WELCOME, answer(SessionBegun("s"), 7)), ReplicationFailed),
    (
        "refuses",
        say(WELCOME, answer(Error(ErrorCode.SESSION_OPEN, "there is a session"))),
        ReplicaRefused,
    ),
    ("refuses in a newer way", say(WELCOME, answer(Error(4711, "a new one"))), ReplicaRefused),
]  # fmt: skip


@pytest.mark.parametrize(("talk", "error"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_peer_that_is_no_good_replica_fails_ready(
    tmp_path: Path, talk: Talk, error: type[LogError]
) -> None:
    options = replace(SMALL, connect_timeout_seconds=0.5, ack_timeout_seconds=0.5)
    with peer(talk) as address:
        store = Datastore(tmp_path, replicas=[address], options=options)
        store.create_channel()
        with pytest.raises(error):
            store.ready()
        store.close()
