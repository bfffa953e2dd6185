"""STORED and PROPAGATED grow, PROPAGATED never runs ahead, and stops when replication fails."""

from __future__ import annotations

from typing import Final

from tidelog.core.session.output import Durability, Notice
from tidelog.testing.violation import Violation

NAME: Final = "notices"


class Notices:
    """What one life of a master has told."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told = dict.fromkeys(Durability, 0)

    def on_notice(self, notice: Notice, *, has_failed: bool) -> None:
        """Check a notice when the application gets it."""
        if notice.epoch <= self._told[notice.durability]:
            raise Violation(NAME, f"{notice} comes after {self._told}")
        self._told[notice.durability] = notice.epoch
        if notice.durability is not Durability.PROPAGATED:
            return
        if notice.epoch > self._told[Durability.STORED]:
            raise Violation(NAME, f"{notice} comes before it is stored: {self._told}")
        if has_failed:
            raise Violation(NAME, f"{notice} comes after replication has failed")
