"""Damage to any byte of a Raft node's files: the node finds what it had, or does not start.

Bound: the zeros of the log file behind its frames are sampled.  The format tests have the rest:
what a file that was not closed turns into, and which damage is not to be told from a torn tail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from tests.storage.raft_stores import (
    DIRECTORY,
    EMPTY,
    entries,
    numbered,
    open_store,
    snapshot,
    states,
    voted,
)
from tidelog.core.raft.output import Write
from tidelog.errors import CorruptData
from tidelog.formats.raft_log import FRAME_HEADER_BYTES, decode_file, decode_file_header
from tidelog.testing.disk import SimDisk

SAME = "the same"
DAMAGED = "damaged, and the file is named"
WRITES = numbered(
    [
        Write(0, voted(1, 2), entries=entries(1, 4)),
        Write(0, snapshot=snapshot(2), entries=entries(4, 5)),
        Write(0, voted(2, 3)),
        Write(0, entries=entries(4, 6, term=2)),
    ]
)
LOG = f"{DIRECTORY}/{2:016d}.log"
SNAPSHOT = f"{DIRECTORY}/{2:016d}.snapshot"


@cache
def closed() -> SimDisk:
    """A store that was closed in good order."""
    disk = SimDisk()
    store, _ = open_store(disk.vfs(), phase="prepare")
    for write in WRITES:
        store.write(write)
        store.sync()
    store.close()
    return disk


def frames_end() -> int:
    """Where the frame begins that closes the log file."""
    data = closed().files()[LOG]
    return decode_file(data, decode_file_header(data)).end_offset - FRAME_HEADER_BYTES


def outcome(disk: SimDisk) -> str:
    """What a start on a damaged disk does; any other error, or other data, fails the test."""
    try:
        store, found = open_store(disk.vfs(), first=None, phase="check")
    except CorruptData as error:
        return DAMAGED if str(error).startswith(f"{DIRECTORY}/0") else f"no file named: {error}"
    store.close()
    assert found == states(EMPTY, WRITES)[-1]
    return SAME


def bytes_of(path: str) -> Iterator[int]:
    size = len(closed().files()[path])
    dense = frames_end() + FRAME_HEADER_BYTES + 16 if path == LOG else size
    yield from range(dense)
    yield from range(dense, size, 64)


def test_the_store_has_both_kinds_of_files() -> None:
    assert list(closed().files()) == [LOG, SNAPSHOT, f"{DIRECTORY}/LOCK"]
    assert frames_end() > 200
    assert outcome(closed().copy()) == SAME


@pytest.mark.parametrize("path", [LOG, SNAPSHOT])
def test_a_flipped_bit_is_found_or_harmless(path: str) -> None:
    outcomes: Counter[tuple[bool, str]] = Counter()
    for place in bytes_of(path):
        needed = path == SNAPSHOT or place < frames_end()
        for bit in range(8):
            disk = closed().copy()
            disk.flip_bit(path, place, bit)
            outcomes[needed, outcome(disk)] += 1
    assert {needed: found for needed, found in outcomes if needed} == {True: DAMAGED}
    assert {needed: found for needed, found in outcomes if not needed} in ({}, {False: SAME})


@pytest.mark.parametrize("path", [LOG, SNAPSHOT])
def test_a_file_that_was_cut_or_grew_is_damaged(path: str) -> None:
    size = len(closed().files()[path])
    for length in bytes_of(path):
        disk = closed().copy()
        disk.truncate(path, length)
        assert outcome(disk) == DAMAGED, f"cut to {length} bytes"
    for tail in (b"\0", b"\xff" * 9, bytes(4096)):
        disk = closed().copy()
        disk.vfs().open(path, write=True).write_at(size, (tail,))
        assert outcome(disk) == DAMAGED


def test_a_log_file_of_unbounded_size_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.storage.raft_recovery.RAFT_LOG_FILE_BYTES_MAX", 4096)
    assert outcome(closed().copy()) == DAMAGED


def test_a_log_that_contradicts_itself_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksums hold, but what it says no node may have written."""
    disk = SimDisk()
    store, _ = open_store(disk.vfs())
    store.write(Write(1, voted(2, 1)))
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.storage.raft_image.may_follow", lambda new, old: True)
        store.write(Write(2, voted(2, 3)))
        store.close()
    with pytest.raises(CorruptData, match="I3"):
        open_store(disk.vfs(), first=None, phase="check")
