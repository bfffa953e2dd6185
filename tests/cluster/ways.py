"""The ways between the nodes of a cluster, whatever carries them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable


class Ways(ABC):
    """Between ``count`` nodes, numbered from 0; each can be cut by itself."""

    def __init__(self, count: int) -> None:
        self.count = count

    @abstractmethod
    def cut(self, sender: int, target: int) -> None:
        """Lose all that ``sender`` sends to ``target`` from now on; answers get through."""

    @abstractmethod
    def heal(self) -> None:
        """Let everything through again."""

    def split(self, *sides: Iterable[int]) -> None:
        """Cut every way between nodes of different sides."""
        groups = [tuple(side) for side in sides]
        for side in groups:
            others = [node for other in groups if other is not side for node in other]
            for sender in side:
                for target in others:
                    self.cut(sender, target)

    def isolate(self, number: int) -> None:
        """Cut a node off from all others; clients still reach it."""
        self.split([number], [other for other in range(self.count) if other != number])
