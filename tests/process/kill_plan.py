"""What the writers of the kill test do, as a function of writer and number.  No state.

Both sides know it: the child carries it out, and the parent can tell from the last number that
it was told of what may have been under way at the kill.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

import tidelog
from tidelog.core.compaction.plan import Strategy

STEP = 1_000_000
"""Numbers of a round begin at the round times this."""
STREAMS = 2
APPENDERS = ("append-0", "append-1")
PUTTER = "put"
BATCHER = "batch"
PRODUCER = "produce"
RING = "ring"
RING_TRIM_TRY = "ring-trim-try"
RING_TRIM = "ring-trim"
OPENING = "opening"
FIGURES = "figures"
RING_KEPT = 150
PUT_KEYS = 40
BATCH_KEYS = tuple(f"batch-{number}".encode() for number in range(16))

Place = tuple[int, int, int, int]
"""Stream, first LLSN, first GLSN and count of one receipt."""


class Told(msgspec.Struct, array_like=True):
    """One line from the child: it is sent when the log has acknowledged, never before."""

    writer: str
    number: int
    places: list[Place] = []
    duplicate: bool = False
    figures: dict[str, int] = {}


def options(*, background: bool) -> tidelog.Options:
    """Small files, so that a round of a few hundred appends meets every kind of upkeep."""
    return tidelog.Options(
        wal_file_bytes=64 * 1024,
        snapshot_bytes=32 * 1024,
        compaction=Strategy(minors=2, dead_ratio=0.3, dead_bytes_min=8 * 1024, idle_ticks=2),
        background=background,
        tick_seconds=0.05,
    )


def open_log(path: Path | str, *, background: bool) -> tuple[tidelog.Log, tidelog.Topic]:
    """The log, which is its topic for all but the ring, and the topic of the ring."""
    log = tidelog.open(path, streams=STREAMS, options=options(background=background))
    if RING in log.topics():
        return log, log.topic(RING)
    return log, log.create_topic(RING, streams=STREAMS)


def value_of(writer: str, number: int) -> bytes:
    """A value that nobody else writes, of a length between 40 and 540 bytes."""
    return f"{writer}:{number}:".encode().ljust(40 + number * 37 % 500, b".")


def put_of(number: int) -> tuple[bytes, bytes | None]:
    """The key that the putter writes at ``number``, and its value; None deletes it."""
    key = f"key-{number * 7 % PUT_KEYS}".encode()
    return key, None if number % 5 == 4 else value_of(PUTTER, number)


def batch_of(number: int) -> list[tuple[bytes, bytes]]:
    return [(key, value_of(BATCHER, number)) for key in BATCH_KEYS]
