"""Readers and how far they are behind, as a table.  No state."""

from __future__ import annotations

from typing import Final

from tidelog.cli.cluster_tables import span_text
from tidelog.cli.output import Id
from tidelog.interface.readers import ReaderFacts

READER_HEADERS: Final = ("reader", "topic", "at GLSN", "behind", "heard of")


def reader_row(reader: ReaderFacts) -> tuple[object, ...]:
    """One line about a reader."""
    heard = f"{span_text(reader.silent_seconds)} ago"
    return reader.name, reader.topic, Id(reader.glsn), reader.lag, heard
