"""The disk of one simulated machine, over all lives of its process.

A crash keeps, loses or tears each unsynced effect as its own draw says; a kill keeps them all,
still unsynced, so that the next crash can take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tidelog.testing.disk import Choice, Choices, Effect, Op, SimDisk, SimVfs
from tidelog.testing.sometimes import Rare, Sometimes

MODES: Final = ("nothing", "prefix", "mixture")


class MachineDisk:
    """A ``SimDisk`` and what becomes of it."""

    __slots__ = ("_chance", "_disk", "_sometimes")

    def __init__(self, chance: Random, sometimes: Sometimes) -> None:
        self._disk = SimDisk()
        self._chance = chance
        self._sometimes = sometimes

    def vfs(self) -> SimVfs:
        """Return the disk as a process of this life sees it."""
        return self._disk.vfs()

    def crash_after(self, calls: int, *, cut: bool) -> None:
        """Let the machine go down with the ``calls``-th call from now that changes the disk."""
        if not self._disk.crashed:
            self._disk.crash_after(calls, cut=cut)

    def crash_no_more(self) -> None:
        """Take back what ``crash_after`` planned."""
        if not self._disk.crashed:
            self._disk.crash_no_more()

    def lose_power(self) -> None:
        """Keep what was synced, and of the rest what chance leaves."""
        effects = self._disk.pending_effects()
        choices = choose(effects, self._chance)
        self._count(effects, choices)
        self._disk = self._disk.after_crash(choices)

    def keep(self) -> None:
        """Keep everything as it is: only the process died."""
        self._disk = self._disk.copy()

    def _count(self, effects: Sequence[Effect], choices: Choices) -> None:
        for effect, choice in zip(effects, choices, strict=True):
            if effect.kind is not Op.WRITE:
                continue
            if choice is Choice.KEPT:
                self._sometimes.count(Rare.UNSYNCED_WRITE_KEPT)
            elif choice is Choice.LOST:
                self._sometimes.count(Rare.UNSYNCED_WRITE_LOST)
            else:
                self._sometimes.count(Rare.TORN_WRITE)


def choose(effects: Sequence[Effect], chance: Random) -> Choices:
    """Draw what becomes of each effect: all lost, a prefix kept and the next torn, or anything."""
    mode = chance.choice(MODES)
    if mode == "mixture":
        return tuple(chance.choice(effect.options) for effect in effects)
    kept = chance.randrange(len(effects) + 1) if mode == "prefix" else 0
    choices = [Choice.KEPT] * kept + [Choice.LOST] * (len(effects) - kept)
    if kept < len(effects) and mode == "prefix":
        choices[kept] = chance.choice(effects[kept].options)
    return tuple(choices)
