"""Places in a topic, as users write them and as Spark keeps them.  No state.

A query's offset is the first GLSN that it has not read yet.  Spark's log of a query holds the end
of each micro-batch, but not where the first one began; so an end also says where its batch begins:

  F1  a micro-batch is ``[from, glsn)`` of its end offset, whatever its start offset says
  F2  an offset that is returned unchanged means that there is nothing new
  F3  an offset names its topic and log, for GLSNs of another one would look the same
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from tidelog.errors import BadOption

GLSN_END: Final = 1 << 63
_DIGITS_MAX: Final = 20


OffsetDict: TypeAlias = dict[str, Any]
"""An offset as Spark keeps it."""


class Anchor(Enum):
    """What a place is measured from."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GLSN = "GLSN"
    TIME = "timestamp"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a read begins or ends, before the log was asked."""

    anchor: Anchor
    number: int = 0
    """A GLSN, or microseconds since 1970."""


EARLIEST: Final = Place(Anchor.EARLIEST)
LATEST: Final = Place(Anchor.LATEST)


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a micro-batch, and its beginning."""

    glsn: int
    """The first GLSN behind it."""
    begin: int
    log: str
    """The id of the log, in hexadecimal digits."""
    topic: str

    def as_dict(self) -> OffsetDict:
        return {"glsn": self.glsn, "from": self.begin, "log": self.log, "topic": self.topic}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Offset:
        """An offset that Spark kept."""
        glsn = found.get("glsn")
        begin = found.get("from", glsn)
        log, topic = found.get("log"), found.get("topic")
        if not (is_glsn(glsn) and is_glsn(begin) and begin <= glsn):
            raise _strange(found)
        if not (isinstance(log, str) and isinstance(topic, str)):
            raise _strange(found)
        return cls(glsn, begin, log, topic)


def _strange(found: Mapping[str, Any]) -> BadOption:
    return BadOption(
        f"the checkpoint holds {dict(found)!r}, which is no offset of Tidelog's: "
        "it belongs to another source; give this query a checkpoint of its own"
    )


def parse_place(text: str) -> Place | None:
    """``earliest``, ``latest``, a GLSN or an offset of a query's progress; None if it is none."""
    word = text.lower()
    if word in (Anchor.EARLIEST.value, Anchor.LATEST.value):
        return Place(Anchor(word))
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    if isinstance(found, dict):
        found = found.get("glsn")
    return Place(Anchor.GLSN, found) if is_glsn(found) else None


def parse_time(text: str) -> Place | None:
    """Milliseconds since 1970, or an ISO 8601 time (UTC unless it has a zone); None if neither."""
    if text.isascii() and text.removeprefix("-").isdecimal():
        microseconds = int(text[:_DIGITS_MAX]) * 1000
        fits = len(text) < _DIGITS_MAX and abs(microseconds) < GLSN_END
        return Place(Anchor.TIME, microseconds) if fits else None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    # Whole numbers: seconds as a float would lose microseconds.
    return Place(
        Anchor.TIME, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    )


def is_glsn(number: object) -> TypeGuard[int]:
    return type(number) is int and 1 <= number < GLSN_END
