"""Damage every bit of every file of a log: it reads the same, or says that it is damaged.

The log is small, but has all kinds of files: two streams (one with keys, one without), segments as
they were flushed and as compaction wrote them, a snapshot with its live indexes, a WAL with frames
and recycled space.  It was closed cleanly, so that nothing may be missing at its end.

Bound: the zeros of the WAL behind its frames, and the spare WAL file, are sampled.  Of all other
bytes one bit is flipped (in a soak each of them), and all files but the WAL are cut at every
length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import pytest

import tidelog
from tidelog.errors import CorruptData, NotALog
from tidelog.testing.disk import SimDisk

PATH = "/log"
OPTIONS = tidelog.Options(background=False, wal_file_bytes=64 * 1024)
KEYS = [b"k0", b"k1", b"k2", b"k3", b"gone", b"never"]
SAME = "the same data"
ONE_BIT_OF = 7
"""Of so many bits one is flipped: so each byte is met, by turns in another of its bits."""
PARTS = 4
"""Into how many tests the bytes of a file are dealt out, so that all cores get some."""


class Base(NamedTuple):
    disk: SimDisk
    content: list[object]
    wal_end: int
    """Where the frames of the WAL end."""


def read_all(disk: SimDisk) -> list[object]:
    """Everything that users can read, by position and by key."""
    log = tidelog.open(PATH, create=False, topic="keys", options=OPTIONS, vfs=disk.vfs())
    try:
        values = log.topic("values")
        marks = [log.high_watermark, values.high_watermark, values.first_available]
        found = [log.get(key) for key in KEYS]
        # Compaction leaves out what is dead, so records alone do not tell that one is missing:
        # the high watermarks and the keys do.
        return [*log.read(), *values.read(), *found, *marks]
    finally:
        log.engine.node.close()


@cache
def base() -> Base:
    disk = SimDisk()
    log = tidelog.open(PATH, topic="keys", options=OPTIONS, vfs=disk.vfs())
    values = log.create_topic("values")
    node, maintenance = log.engine.node, log.engine.maintenance

    def roll() -> None:
        node.wal.roll()
        maintenance.flush_rolled()

    log.put_batch([(key, b"first") for key in KEYS[:5]])
    values.append_batch([b"trimmed", b"a"])
    roll()
    log.put(b"k0", b"second")
    log.delete(b"gone")
    values.append(b"b")
    roll()
    log.put(b"k1", b"third")
    roll()
    log.snapshot()
    for store in node.streams.values():
        maintenance.major(store, full=True)
    values.trim(2)
    log.put(b"k2", b"in the WAL", producer="writer", sequence=1)
    values.append(b"c")
    expected = [*log.read(), *values.read()]
    log.close()
    content = read_all(disk.copy())
    assert content[: len(expected)] == expected
    end = node.wal._offset
    return Base(disk, content, end)


def files() -> list[str]:
    return [path for path, data in base().disk.files().items() if data]


def outcome(disk: SimDisk) -> str:
    """What a damaged log does; any other error, or other data, fails the test."""
    try:
        found = read_all(disk)
    except (CorruptData, NotALog) as error:
        return type(error).__name__
    assert found == base().content
    return SAME


def bits_of(path: str, every: int) -> Iterator[int]:
    """The bits to flip: one of so many, but of the zeros behind the frames of the WAL fewer."""
    size = len(base().disk.files()[path])
    dense = base().wal_end + 16 if path.endswith(".wal") else 0 if ".spare" in path else size
    yield from range(0, 8 * dense, every)
    yield from (8 * byte + byte // 64 % 8 for byte in range(dense, size, 64))


def lengths_of(path: str) -> Iterable[int]:
    size = len(base().disk.files()[path])
    if path.endswith(".wal"):
        return [*range(0, base().wal_end + 16, 3), *range(base().wal_end + 16, size, 4096)]
    return range(0, size, 8192 if ".spare" in path else 1)


def flipped(path: str, bits: Iterable[int]) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for bit in bits:
        disk = base().disk.copy()
        disk.flip_bit(path, bit >> 3, bit & 7)
        outcomes[outcome(disk)] += 1
    return outcomes


def test_the_log_has_a_file_of_every_kind() -> None:
    names = [path.rsplit("/", 1)[1] for path in files()]
    kinds = Counter(name.split(".")[-1] for name in names)
    assert kinds == {"manifest": 1, "segment": 4, "snapshot": 1, "live": 1, "wal": 1, "spare": 1}
    assert base().wal_end > 300
    assert outcome(base().disk.copy()) == SAME


@pytest.mark.parametrize("path", files())
def test_a_flipped_bit_is_found_or_harmless(path: str) -> None:
    check_flipped(path, list(bits_of(path, ONE_BIT_OF)))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("path", files())
def test_any_flipped_bit_is_found_or_harmless(path: str, part: int) -> None:
    check_flipped(path, list(bits_of(path, 1))[part::PARTS])


def check_flipped(path: str, bits: list[int]) -> None:
    outcomes = flipped(path, bits)
    if path.endswith((".live", ".spare")):
        # The live indexes are rebuilt, and a spare holds nothing.
        assert outcomes == {SAME: len(bits)}
    elif path.endswith(".wal"):
        frames = sum(bit < 8 * base().wal_end for bit in bits)
        assert outcomes == {"CorruptData": frames, SAME: len(bits) - frames}
    else:
        assert outcomes.total() - outcomes[SAME] == len(bits)


@pytest.mark.parametrize("path", files())
def test_a_file_that_was_cut_is_found_or_harmless(path: str) -> None:
    outcomes: Counter[str] = Counter()
    lengths = lengths_of(path)
    for length in lengths:
        disk = base().disk.copy()
        disk.truncate(path, length)
        outcomes[outcome(disk)] += 1
    if path.endswith((".live", ".spare")):
        assert outcomes == {SAME: len(list(lengths))}
    elif path.endswith(".wal"):
        frames = sum(length < base().wal_end for length in lengths)
        assert outcomes == {"CorruptData": frames, SAME: len(list(lengths)) - frames}
    else:
        assert outcomes[SAME] == 0


@pytest.mark.parametrize("path", files())
def test_a_file_that_is_gone_is_found_or_harmless(path: str) -> None:
    disk = base().disk.copy()
    disk.vfs().unlink(path)
    if path.endswith((".live", ".spare")):
        assert outcome(disk) == SAME
    else:
        assert outcome(disk) == ("NotALog" if path.endswith("manifest") else "CorruptData")


@pytest.mark.parametrize("path", files())
def test_bytes_behind_the_end_of_a_file_are_found_or_harmless(path: str) -> None:
    for tail in (b"\0", b"\xff" * 9, bytes(4096), base().disk.files()[path][:64]):
        disk = base().disk.copy()
        size = len(disk.files()[path])
        disk.vfs().open(path, write=True).write_at(size, (tail,))
        found = outcome(disk)
        assert found == SAME or not path.endswith((".wal", ".spare", ".live"))
