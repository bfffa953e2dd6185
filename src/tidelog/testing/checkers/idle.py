"""An idle cluster writes nothing to its Raft log, whatever time passes."""

from __future__ import annotations

from typing import Final

from tidelog.testing.violation import Violation

NAME: Final = "idle"


def check_idle(entries_before: int, entries_after: int) -> None:
    """Check the entries that were written in a time in which nobody asked for anything."""
    if entries_after != entries_before:
        raise Violation(NAME, f"{entries_after - entries_before} entries were written when idle")
