"""What `verify` finds, in one file or about the log as a whole.  No state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileFinding:
    """What was found in one file, or about the log as a whole."""

    kind: str
    name: str
    entries: int | None = None
    bytes: int = 0
    problem: str = ""
    note: str = ""

    @property
    def is_file(self) -> bool:
        return self.kind not in ("log", "topic", "stream")

    def fields(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "entries": self.entries,
            "bytes": self.bytes,
            "problem": self.problem or None,
            "note": self.note or None,
        }
