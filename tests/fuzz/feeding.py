"""Bytes, cut in any way, into the two kinds of connections; what they make of them.  No state."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import NamedTuple

from tidelog.errors import ConnectionLost, LogError
from tidelog.formats.wire import FrameHeader
from tidelog.net.blocking_connection import BlockingConnection
from tidelog.net.connection import FrameConnection

Frame = tuple[int, bytes, bytes]
"""Request, message, attachment."""
DEADLINE_SECONDS = 20.0


class Fed(NamedTuple):
    """What came out of a connection, and the error that ended it."""

    frames: list[Frame]
    errors: list[LogError]


class _Transport(asyncio.Transport):
    """Takes everything, brings nothing."""

    def write(self, data: object) -> None:
        pass

    def writelines(self, list_of_data: object) -> None:
        pass

    def write_eof(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


class Fuzzed:
    """A connection in the running loop, to which bytes arrive; only a LogError may come of them."""

    def __init__(self, *, opened: bool) -> None:
        self.fed = Fed([], [])
        self._connection = FrameConnection(self)
        self._connection.connection_made(_Transport())
        if opened:
            self._connection.open_up()

    def arrive(self, data: bytes) -> None:
        offset = 0
        while offset < len(data):
            room = self._connection.get_buffer(-1)
            assert len(room), "a connection has no room for what comes next"
            size = min(len(room), len(data) - offset)
            room[:size] = data[offset : offset + size]
            offset += size
            self._connection.buffer_updated(size)

    def end(self) -> Fed:
        self._connection.connection_lost(None)
        return self.fed

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        assert header.body_bytes == len(message) + len(attachment)
        self.fed.frames.append((header.request, message, bytes(attachment)))

    def on_broken(self, error: LogError) -> None:
        self.fed.errors.append(error)

    def on_lost(self, error: Exception | None) -> None:
        pass


async def feed(parts: Iterable[bytes], *, opened: bool) -> Fed:
    """Let these bytes arrive at a connection, part by part."""
    fuzzed = Fuzzed(opened=opened)
    for part in parts:
        fuzzed.arrive(part)
    return fuzzed.end()


def feed_blocking(data: bytes, answers: int) -> Fed:
    """Let these bytes arrive at a blocking connection that awaits so many answers."""
    fed = Fed([], [])
    ours, theirs = socket.socketpair()
    connection = BlockingConnection(ours, "a peer")
    try:
        deadline = monotonic() + DEADLINE_SECONDS
        for _ in range(answers):
            connection.send(b"", (), deadline)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        for request in range(1, answers + 1):
            fed.frames.append((request, connection.receive(deadline), b""))
    except ConnectionLost:
        pass  # The bytes came to an end.
    except LogError as error:
        fed.errors.append(error)
    finally:
        connection.close()
        theirs.close()
    return fed


def cut(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """``data`` in parts of these sizes, then the rest."""
    offset = 0
    for size in sizes:
        if offset >= len(data):
            return
        yield data[offset : offset + size]
        offset += size
    yield data[offset:]
