"""Copies a BLOB out of a log.

Y1  a view of a directory may break while it is read, and the copy then goes on where it was
Y2  a file gets its name when all of the BLOB is in it
Y3  what is no file, such as a pipe, stays what it is, and so does a link to a file
"""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final

from tidelog.cli.progress import Progress
from tidelog.cli.session import Session, reading
from tidelog.limits import BLOB_COPY_BYTES

_TOKEN_BYTES: Final = 8


def copy_to_stream(data: str, topic: str, blob: int, stream: BinaryIO) -> None:
    """Write a BLOB to a stream; Y1."""
    done = 0
    with Progress("bytes") as progress:

        def copy(session: Session) -> None:
            nonlocal done
            with session.topic(topic).open_blob(blob) as reader:
                reader.seek(done)
                while piece := reader.read(BLOB_COPY_BYTES):
                    _write(stream, piece)
                    done += len(piece)
                    progress.update(done)

        reading(data, copy)
    stream.flush()


def copy_to_file(data: str, topic: str, blob: int, path: Path) -> None:
    """Write a BLOB to a file; Y2, Y3."""
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            copy_to_stream(data, topic, blob, stream)
        return
    target = path.resolve()
    partial = target.with_name(f".{token_hex(_TOKEN_BYTES)}.partial")
    with partial.open("xb") as stream:
        try:
            copy_to_stream(data, topic, blob, stream)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _write(stream: BinaryIO, piece: bytes) -> None:
    left = memoryview(piece)
    while left:  # An unbuffered stream may take less than it is given.
        left = left[stream.write(left) :]
