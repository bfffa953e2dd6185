"""What the writers of a load did and were told, and what readers were shown."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from tests.cluster.payload import ident_of, parts_of


class Outcome(Enum):
    OPEN = "open"
    """Not answered: it may take effect at any time."""
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """The error said that it did not and will not happen."""
    UNKNOWN = "unknown"
    """The error said that it may have happened."""


@dataclass(slots=True)
class Append:
    """One call of a writer: ``count`` records, with neighbouring GLSNs if it is acknowledged."""

    writer: int
    number: int
    count: int
    invoked_at: float
    outcome: Outcome = Outcome.OPEN
    acknowledged_at: float = inf
    glsn: int = 0
    stream: int = 0
    duplicate: bool = False
    """The log had it already when it came to be answered."""
    error: str = ""

    @property
    def glsn_end(self) -> int:
        return self.glsn + self.count

    def idents(self) -> range:
        """The names of its records."""
        first = ident_of(self.writer, self.number)
        return range(first, first + self.count)

    def __str__(self) -> str:
        place = f" at {self.glsn} of stream {self.stream}" if self.glsn else ""
        return f"append {self.writer}/{self.number} ({self.count}, {self.outcome.value}{place})"


@dataclass(slots=True)
class Seen:
    """What one reader was shown, in the order in which it was shown."""

    name: str
    glsns: array[int] = field(default_factory=lambda: array("Q"))
    idents: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, glsn: int, ident: int) -> None:
        self.glsns.append(glsn)
        self.idents.append(ident)

    def pairs(self) -> Iterator[tuple[int, int]]:
        return zip(self.glsns, self.idents, strict=True)

    def __len__(self) -> int:
        return len(self.glsns)


def seen(name: str, pairs: Iterable[tuple[int, int]]) -> Seen:
    """What a reader saw, from GLSNs and idents."""
    made = Seen(name)
    for glsn, ident in pairs:
        made.add(glsn, ident)
    return made


def named(ident: int) -> str:
    """An ident for people."""
    writer, number, place = parts_of(ident)
    return f"record {place} of append {writer}/{number}"
