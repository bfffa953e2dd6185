"""Write versions: which of several writes of a key is the newest.  No state."""

from __future__ import annotations

from typing import Self

from tidelog.errors import BadEntry

_MINOR_BITS = 64
_END = 1 << 64


class WriteVersion(int):
    """A number of 128 bits in two halves; ``major`` is often the epoch of a write."""

    __slots__ = ()

    def __new__(cls, major: int, minor: int = 0) -> Self:
        if not (0 <= major < _END and 0 <= minor < _END):
            raise BadEntry(f"the write version {major}.{minor} has a part of more than 64 bits")
        return super().__new__(cls, major << _MINOR_BITS | minor)

    @classmethod
    def of(cls, number: int) -> Self:
        """The halves of a write version that is a plain number."""
        return cls(number >> _MINOR_BITS, number & (_END - 1))

    @property
    def major(self) -> int:
        return int(self) >> _MINOR_BITS

    @property
    def minor(self) -> int:
        return int(self) & (_END - 1)

    def __repr__(self) -> str:
        return f"WriteVersion({self.major}, {self.minor})"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"
