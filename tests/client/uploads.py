"""Uploads of BLOBs that are watched, or break off, and a look at what they left."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import pytest

from tidelog.formats.topic_blob import part_key, topics_of_blobs
from tidelog.interface.handles import LogHandle, TopicHandle
from tidelog.limits import BLOB_PART_BYTES

LONG = random.Random(7).randbytes(5 * BLOB_PART_BYTES + 17)
LONG_PARTS = [0, 1, 2, 3, 4, 5]


class Broken(Exception):
    """What ends an upload or a deletion before its time."""


class Source(io.RawIOBase):
    """Bytes; before each part, ``at_part`` is told how many were read."""

    def __init__(self, data: bytes, at_part: Callable[[int], None]) -> None:
        self._data = io.BytesIO(data)
        self._at_part = at_part

    def read(self, size: int = -1, /) -> bytes:
        self._at_part(self._data.tell() // BLOB_PART_BYTES)
        return self._data.read(size)


def breaking(parts: int) -> Source:
    """A source that breaks off behind so many parts."""

    def at_part(read: int) -> None:
        if read >= parts:
            raise Broken

    return Source(LONG, at_part)


def tear(log: LogHandle, parts: int = 3) -> int:
    """Break off an upload; returns the id that nobody was told."""
    known = {info.blob for info in log.list_blobs()}
    with pytest.raises(Broken):
        log.put_blob(breaking(parts))
    left = [info for info in log.list_blobs() if info.blob not in known]
    assert [info.is_complete for info in left] == [False]
    return left[0].blob


def delete_in_part(log: LogHandle, blob: int) -> None:
    """Break off a deletion before the parts of the BLOB are deleted."""

    def broken(_: object) -> None:
        raise Broken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog.interface.blobs.calls.deletes_of", broken)
        with pytest.raises(Broken):
            log.delete_blob(blob)


def descriptions_of(log: LogHandle) -> TopicHandle:
    return log.topic(topics_of_blobs(log.name)[0])


def parts_of(log: LogHandle) -> TopicHandle:
    return log.topic(topics_of_blobs(log.name)[1])


def parts_left(log: LogHandle, blob: int) -> list[int]:
    """The numbers of the parts of a BLOB that there are."""
    parts = parts_of(log)
    return [number for number in range(20) if parts.get(part_key(blob, number)) is not None]
