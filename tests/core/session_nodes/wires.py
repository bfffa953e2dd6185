"""Connections between nodes: in order on each, in any order among them, gone at any moment."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

Frame = tuple[bytes, bytes]
"""A message, and what is attached to it."""


@dataclass(eq=False)
class Connection:
    """One connection; each side learns of its end when it comes to read that."""

    number: int
    source: int
    """The node that made it."""
    target: int
    asker: int
    """Its number on the side of who made it."""
    session: int
    """The session that it is of, in the eyes of who made it."""
    is_made: bool = False
    requests: deque[Frame] = field(default_factory=deque)
    answers: deque[Frame] = field(default_factory=deque)
    source_gone: bool = False
    """Whether the side that made it has closed it, or knows that it is gone."""
    target_gone: bool = False
    is_cut: bool = False
    """Whether what is sent from now on comes nowhere."""

    def ask(self, frame: Frame) -> None:
        if not self.is_cut:
            self.requests.append(frame)

    def answer(self, frame: Frame) -> None:
        if not self.is_cut:
            self.answers.append(frame)

    def cut(self) -> None:
        """Lose all that is on its way, on both ways."""
        self.is_cut = True
        self.requests.clear()
        self.answers.clear()

    def leave(self) -> None:
        """The side that made it closes it."""
        self.source_gone = self.is_cut = True
        self.answers.clear()

    def hang_up(self) -> None:
        """The other side closes it; what it has said is still heard."""
        self.target_gone = self.is_cut = True
        self.requests.clear()

    # -- what may happen next ----------------------------------------------------------------

    @property
    def can_be_made(self) -> bool:
        return not self.is_made and not self.is_cut

    @property
    def has_request(self) -> bool:
        return self.is_made and bool(self.requests) and not self.target_gone

    @property
    def has_answer(self) -> bool:
        return bool(self.answers) and not self.source_gone

    @property
    def source_may_notice(self) -> bool:
        """Whether the side that made it comes to read that it is gone."""
        return self.is_cut and not self.answers and not self.source_gone

    @property
    def target_may_notice(self) -> bool:
        return self.is_made and self.is_cut and not self.requests and not self.target_gone

    @property
    def is_over(self) -> bool:
        return self.source_gone and (self.target_gone or not self.is_made)
