"""Who reads a topic, and how far behind its end: figures for those who look.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from tidelog.errors import BadOption
from tidelog.limits import READER_NAME_CHARS_MAX, READERS_MAX


class ReaderFacts(msgspec.Struct, frozen=True):
    """A reader that gave its name, such as a query of Spark."""

    topic: str
    name: str
    glsn: int
    """The first GLSN that it had not read when it was heard of last."""
    silent_seconds: float
    """How long ago that was."""
    lag: int = 0
    """How many GLSNs of its topic it has not read."""


def check_reader_name(name: str) -> None:
    """BadOption if nobody may be called that."""
    if len(name) > READER_NAME_CHARS_MAX or not name.isprintable():
        raise BadOption(
            f"{name[:READER_NAME_CHARS_MAX]!r} is no name for a reader: give at most "
            f"{READER_NAME_CHARS_MAX} printable characters"
        )


def lagging(
    told: Iterable[ReaderFacts], high_watermarks: Mapping[str, int]
) -> tuple[ReaderFacts, ...]:
    """What nodes told of readers, by topic and name, with their lag.

    Of a reader that changed its node, the last word counts.  Of too many, those heard of last are
    told.
    """
    newest: dict[tuple[str, str], ReaderFacts] = {}
    for reader in sorted(told, key=lambda one: one.silent_seconds):
        if reader.topic in high_watermarks:
            newest.setdefault((reader.topic, reader.name), reader)
    return tuple(
        [
            replace(reader, lag=max(high_watermarks[reader.topic] + 1 - reader.glsn, 0))
            for _, reader in sorted(islice(newest.items(), READERS_MAX))
        ]
    )
