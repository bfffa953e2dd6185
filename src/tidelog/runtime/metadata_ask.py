"""One change that is asked of one metadata node after another, and what they say.

Invariants:
  K1  it is over when one node made it, or when none that was asked can make it any more
  K2  a refusal counts only if the node saw the first time that it was asked: in an earlier life it
      may have made the change, and that may be why it refuses now
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from tidelog.client.refusals import error_of
from tidelog.errors import Busy, DeadlineExceeded, LogError
from tidelog.formats.cluster_messages import ChangeAnswer
from tidelog.formats.messages import Refused
from tidelog.types import NodeId


@dataclass(slots=True)
class _Try:
    first: int
    """The first attempt at this node."""
    error: LogError | None = None
    """None as long as it is silent."""


class Ask:
    """Belongs to the event loop of its client."""

    def __init__(self) -> None:
        self._tries: dict[NodeId, _Try] = {}
        self._attempts = 0
        self._heard = asyncio.Event()
        self._is_made = False
        self._failure: LogError | None = None
        self.is_busy = False
        """Whether the last that was heard is that a node has no time."""

    def is_over(self) -> bool:
        """K1."""
        return self._is_made or self._failure is not None

    def attempt(self, node: NodeId) -> int:
        """Note that a node is asked; return the number of the attempt."""
        self._attempts += 1
        self._tries.setdefault(node, _Try(self._attempts))
        return self._attempts

    def has_answered(self, node: NodeId) -> bool:
        """Whether a node said anything but that it has no time."""
        asked = self._tries.get(node)
        return asked is not None and asked.error is not None

    def answered(self, node: NodeId, answer: ChangeAnswer) -> None:
        """Take what a node says."""
        asked = self._tries.get(node)
        if asked is None or self.is_over():
            return
        if not answer.error:
            self._is_made = True
        else:
            self._refused(asked, answer)
        self._heard.set()

    def _refused(self, asked: _Try, answer: ChangeAnswer) -> None:
        error = error_of(Refused(answer.error, answer.message))
        self.is_busy = isinstance(error, Busy)
        if self.is_busy:
            return
        if not _counts(asked, answer):
            error = DeadlineExceeded(f"it may have been made before: {error}")
        asked.error = error
        errors = [one.error for one in self._tries.values()]
        if None not in errors:
            self._failure = next((one for one in errors if one and not one.definite), error)

    def fail(self, error: LogError) -> None:
        """Nobody will answer any more."""
        self._failure = self._failure or error
        self._heard.set()

    async def wait(self, seconds: float) -> None:
        """Until something is heard, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        self._heard.clear()

    async def wait_for_silent(self, seconds: float) -> None:
        """One node refused: give the others, which may have made it, a while to say so."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.is_over():
                    await self._heard.wait()
                    self._heard.clear()
        if not self.is_over():
            errors = [one.error for one in self._tries.values() if one.error is not None]
            self._failure = DeadlineExceeded(f"one that is silent may have made it: {errors[-1]}")

    def outcome(self) -> None:
        """Raise unless the change was made."""
        if self._failure is not None:
            raise self._failure


def _counts(asked: _Try, answer: ChangeAnswer) -> bool:
    """K2."""
    return answer.attempt <= asked.first
