"""BLOBs with every single write of their life as the last one: nothing half, nothing left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import tidelog
from tests.client.uploads import LONG, Broken, parts_of
from tidelog.embedded.appender import Appender
from tidelog.embedded.topic import Topic
from tidelog.formats.topic_blob import part_key
from tidelog.limits import BLOB_PART_BYTES

DATA = LONG[: 2 * BLOB_PART_BYTES + 17]
PARTS = 3
WRITES = 1 + PARTS + 1 + 1 + 3
"""Announcement, parts, description; the entry; the mark, the deletes of the parts, and the last."""


@contextmanager
def failing_after(writes: int) -> Iterator[None]:
    """So many writes work, and none that follows: the process has died, for all that they know."""
    left = writes
    commit, submit = Topic._commit, Appender._submit

    def burn() -> None:
        nonlocal left
        if left == 0:
            raise Broken
        left -= 1

    def committed(self: Topic, *args: Any) -> Any:
        burn()
        return commit(self, *args)

    def submitted(self: Appender, *args: Any) -> Any:
        burn()
        return submit(self, *args)

    with patch.object(Topic, "_commit", committed), patch.object(Appender, "_submit", submitted):
        yield


def live(log: tidelog.Log) -> set[bytes]:
    """The keys of all parts that there are."""
    parts = parts_of(log)
    return {record.key for record in parts.read() if parts.get(record.key) is not None}


@pytest.mark.parametrize("writes", range(WRITES + 1))
def test_whichever_write_is_the_last_one_nothing_is_half_there_or_left(
    writes: int, tmp_path: Path
) -> None:
    told, referred = [], []
    with tidelog.open(tmp_path / "log") as log:
        log.put_blob(b"")  # Makes the topics.
        try:
            with failing_after(writes):
                told.append(log.put_blob(DATA))
                log.append(b"refers to it", blobs=(told[0],))
                referred.append(told[0])
                log.delete_blob(told[0])
                told.clear()
        except Broken:
            assert writes < WRITES
    with tidelog.open(tmp_path / "log") as log:
        seen = [info.blob for info in log.list_blobs() if info.is_complete and info.size]
        assert all(log.open_blob(blob).read() == DATA for blob in seen)
        is_marked = writes > 1 + PARTS + 1 + 1
        assert seen == ([] if is_marked else told), "there as a whole once its id is known"
        log.collect_blobs(0)
        kept = [] if is_marked else referred
        assert [info.blob for info in log.list_blobs()] == kept
        assert live(log) == {part_key(blob, number) for blob in kept for number in range(PARTS)}
