"""All chance of a simulation: one seed, split into streams that do not disturb one another.

Invariants:
  H1  the same seed and name give the same numbers, in every process and under every hash seed
  H2  what is drawn from one stream never changes what another one gives, so that a fault class
      that is left out does not reshuffle the others
"""

from __future__ import annotations

import random


class Chance:
    """The seed of one simulation."""

    __slots__ = ("_path",)

    def __init__(self, seed: int | str) -> None:
        self._path = str(seed)

    def stream(self, *names: str | int) -> random.Random:
        """Return the numbers that belong to a name."""
        # A string is hashed by its bytes, whatever PYTHONHASHSEED is.
        path = "/".join((self._path, *map(str, names)))
        return random.Random(path)  # noqa: S311  # A simulation has to be repeatable.
