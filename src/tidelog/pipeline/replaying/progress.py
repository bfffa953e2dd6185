"""What ``replay`` tells while it runs and when it ends."""

from __future__ import annotations

import msgspec


class ReplayProgress(msgspec.Struct, frozen=True):
    """A chunk of the table is in the log."""

    chunk: int
    """Counted from 1."""
    chunks: int
    rows: int
    seconds: float


class ReplaySummary(msgspec.Struct, frozen=True):
    """What a run did."""

    table: str
    format: str
    topic: str
    table_rows: int
    rows: int
    """Rows that this run brought to the log; earlier runs have brought the others."""
    chunks: int
    chunks_before: int
    """How many of them earlier runs had brought there."""
    seconds: float
