"""What ``bench pair`` compares with: bytes over a socket, written and synced, one byte back.

The least that any pair has to do, without frames, checksums, epochs or recovery.  Both sides write
into a file that has its blocks already, which is what syncs fastest.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from struct import Struct
from typing import Final

from tidelog.limits import WAL_FILE_BYTES_DEFAULT
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import File
from tidelog.storage.wal import create_filled

_LENGTH: Final = Struct("<Q")
_ACK: Final = b"\x01"
SECONDS_MAX: Final = 60.0
"""How long either side waits for the other."""


class PlainFile:
    """Bytes behind one another in a file that is begun again when it is full."""

    def __init__(self, path: Path) -> None:
        self._file: File = create_filled(OsVfs(), str(path), WAL_FILE_BYTES_DEFAULT)
        self._offset = 0

    def write(self, data: bytes) -> None:
        """Durable when this returns."""
        if self._offset + len(data) > WAL_FILE_BYTES_DEFAULT:
            self._offset = 0
        self._file.write_at(self._offset, (data,))
        self._file.sync()
        self._offset += len(data)

    def close(self) -> None:
        self._file.close()


class PlainPair:
    """The sending side: one connection and one file."""

    def __init__(self, path: Path, port: int) -> None:
        self._file = PlainFile(path)
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def commit(self, data: bytes) -> None:
        """Durable on both sides when this returns; both sync at the same time."""
        self._socket.sendall(_LENGTH.pack(len(data)) + data)
        self._file.write(data)
        if self._socket.recv(1) != _ACK:
            raise ConnectionError("the peer hung up")

    def close(self) -> None:
        self._socket.close()
        self._file.close()


def _serve(connection: socket.socket, path: Path) -> None:
    file = PlainFile(path)
    try:
        while head := _read(connection, _LENGTH.size):
            file.write(_read(connection, _LENGTH.unpack(head)[0]))
            connection.sendall(_ACK)
    finally:
        file.close()
        connection.close()


def _read(connection: socket.socket, length: int) -> bytes:
    """Exactly so many bytes; none if the peer hung up before the first."""
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


def serve(directory: Path) -> None:
    """Serve until killed; a line "ready PORT" says where."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sys.stdout.write(f"ready {server.getsockname()[1]}\n")
        sys.stdout.flush()
        for number in range(1 << 20):
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            path = directory / f"plain-{number}"
            threading.Thread(target=_serve, args=(connection, path), daemon=True).start()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
