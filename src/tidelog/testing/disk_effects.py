"""What a crash may do to calls that were not synced, and which mixtures of it to try.  No state.

Input: the pending effects of a simulated disk, in the order of the calls.  Output: one ``Choice``
for each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

SECTOR_BYTES: Final = 512


class Op(Enum):
    """Calls of a disk.  The first nine change something and are counted as crash points."""

    CREATE = "create"
    WRITE = "write"
    SYNC = "sync"
    RENAME = "rename"
    LINK = "link"
    SYMLINK = "symlink"
    UNLINK = "unlink"
    SYNC_DIR = "sync_dir"
    MAKE_DIR = "make_dir"
    READ = "read"
    OPEN = "open"
    STAT = "stat"
    LIST_DIR = "list_dir"
    LOCK = "lock"


class Choice(Enum):
    """What became of one effect.  The letters make up the short form that replays a crash."""

    LOST = "L"
    KEPT = "K"
    TORN = "T"
    """The first sectors of a write are on the disk, the others are not."""
    TORN_TAIL = "E"
    """The last sectors of a write are on the disk, the first ones are not."""


Choices: TypeAlias = tuple[Choice, ...]

_NAME_OPTIONS: Final = (Choice.LOST, Choice.KEPT)
_WRITE_OPTIONS: Final = (Choice.LOST, Choice.KEPT, Choice.TORN, Choice.TORN_TAIL)


def torn_length(offset: int, length: int) -> int:
    """How many bytes of a write at ``offset`` lie before the place where it is torn.

    That is the sector border nearest to its middle from below, or half of a write that lies
    within one sector (more than a disk does, but no format should rely on its sectors).
    """
    end = offset + length
    first_border = (offset // SECTOR_BYTES + 1) * SECTOR_BYTES
    if first_border >= end:
        return length // 2
    middle = (offset + length // 2) // SECTOR_BYTES * SECTOR_BYTES
    return max(first_border, middle) - offset


@dataclass(frozen=True, slots=True)
class Effect:
    """A call whose result a crash may take away: a write, or a change of names."""

    index: int
    kind: Op
    path: str
    target: str = ""
    """The new name, for a rename or a link."""
    offset: int = 0
    length: int = 0

    @property
    def options(self) -> Choices:
        """Everything that can become of it."""
        if self.kind is Op.WRITE and torn_length(self.offset, self.length) > 0:
            return _WRITE_OPTIONS
        return _NAME_OPTIONS

    def __str__(self) -> str:
        if self.kind is Op.WRITE:
            return f"{self.kind.value} {self.path} [{self.offset}, {self.offset + self.length})"
        arrow = f" -> {self.target}" if self.target else ""
        return f"{self.kind.value} {self.path}{arrow}"


def outcome_count(effects: Sequence[Effect]) -> int:
    """In how many ways these effects can be mixed."""
    return math.prod(len(effect.options) for effect in effects)


def crash_outcomes(effects: Sequence[Effect], bound: int) -> Iterator[Choices]:
    """What a crash can leave: each mixture once, in a fixed order, nothing kept first.

    All mixtures when they are at most ``bound``.  Otherwise those that find most bugs, linear in
    the number of effects: nothing kept; all kept; each prefix kept, alone and with the next
    write torn; each single one kept; each single one lost; each single write torn, with all
    others kept and with all others lost.
    """
    if outcome_count(effects) <= bound:
        yield from itertools.product(*(effect.options for effect in effects))
        return
    seen: set[Choices] = set()
    for choices in _bounded_outcomes(effects):
        if choices not in seen:
            seen.add(choices)
            yield choices


def _bounded_outcomes(effects: Sequence[Effect]) -> Iterator[Choices]:
    count = len(effects)
    lost = (Choice.LOST,) * count
    kept = (Choice.KEPT,) * count
    yield lost
    yield kept
    for i, effect in enumerate(effects):
        before, after = i, i + 1
        torn = effect.options[2:]
        for choice in (Choice.LOST, *torn):
            yield (*kept[:before], choice, *lost[after:])
        yield (*lost[:before], Choice.KEPT, *lost[after:])
        yield (*kept[:before], Choice.LOST, *kept[after:])
        for choice in torn:
            yield (*kept[:before], choice, *kept[after:])
            yield (*lost[:before], choice, *lost[after:])
