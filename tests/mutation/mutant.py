"""A mutant that one test has to notice, and what many of them put in the place of right code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.mutation.left_out import Change, replaced


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    test: Callable[[], None]


def instead(owner: Any, name: str, value: Any) -> Change:
    """``owner.name`` becomes ``value``."""
    return replaced(owner, name, lambda _: value)


def constant(value: Any) -> Callable[[Any], Any]:
    """For ``replaced``: a function that returns ``value`` whatever it is given."""
    return lambda _: lambda *_, **__: value
