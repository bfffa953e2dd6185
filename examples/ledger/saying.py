"""How the example speaks: steps with numbers, and below each what happens, with the time."""

from __future__ import annotations

from time import perf_counter
from typing import Final

_STARTED: Final = perf_counter()
_PAUSE_SECONDS: Final = 3.0


def step(number: int, text: str) -> None:
    print(f"\n{number}. {text}", flush=True)


def say(text: str) -> None:
    print(f"   {perf_counter() - _STARTED:5.0f} s  {text}", flush=True)


class Murmur:
    """For what changes all the time: most of it is not said."""

    def __init__(self) -> None:
        self._next = perf_counter() + _PAUSE_SECONDS

    def __call__(self, text: str) -> None:
        if perf_counter() >= self._next:
            self._next = perf_counter() + _PAUSE_SECONDS
            say(text)
