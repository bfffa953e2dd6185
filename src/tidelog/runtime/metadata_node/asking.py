"""Changes that other processes ask a metadata node for.

Invariants:
  A1  a change that is asked for again under the same number is made once, and answered alike, as
      long as its outcome is remembered
  A2  a refusal that says nothing of the change itself is not remembered: asked again, it may do
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.core.metadata.repository import Repository
from tidelog.core.metadata.waiting import Answer
from tidelog.errors import Busy, LogError
from tidelog.formats.cluster_messages import AskChange, ChangeAnswer
from tidelog.limits import METADATA_ANSWERS_MAX
from tidelog.runtime.post import Post
from tidelog.types import NodeId

_TEXT_MAX = 4096

Asked: TypeAlias = tuple[NodeId, int]
"""Who asked, and its number for it."""


@dataclass(slots=True)
class _Outcome:
    attempt: int
    answer: ChangeAnswer | None = None
    """None while it is not known."""


class Asking:
    """Who asked for what, and what came of it lately."""

    __slots__ = ("_outcomes", "_post", "_repository", "_waiting")

    def __init__(self, post: Post, repository: Repository) -> None:
        self._post = post
        self._repository = repository
        self._outcomes: dict[Asked, _Outcome] = {}
        self._waiting: dict[int, Asked] = {}

    def ask(self, asker: NodeId, message: AskChange) -> None:
        """Take a change in, or answer again what was answered before (A1)."""
        asked = (asker, message.number)
        known = self._known(asked)
        if known is not None:
            if known.answer is not None:
                self._post.send(asker, known.answer)
            return
        if len(self._waiting) >= METADATA_ANSWERS_MAX // 2:
            busy = Busy(f"{len(self._waiting)} changes wait already; ask again later")
            self._post.send(asker, _answer(message.number, message.attempt, busy))
            return
        self._outcomes[asked] = _Outcome(message.attempt)
        self._waiting[self._repository.ask(message.change)] = asked
        self._forget_oldest()

    def _known(self, asked: Asked) -> _Outcome | None:
        """What is remembered of a question (A1)."""
        return self._outcomes.get(asked)

    def answered(self, answer: Answer) -> bool:
        """Tell who asked; False if nobody did here."""
        asked = self._waiting.pop(answer.number, None)
        if asked is None:
            return False
        outcome = self._outcomes[asked]
        outcome.answer = _answer(asked[1], outcome.attempt, answer.error)
        self._post.send(asked[0], outcome.answer)
        if isinstance(answer.error, Busy):
            del self._outcomes[asked]  # A2.
        return True

    def _forget_oldest(self) -> None:
        if len(self._outcomes) > METADATA_ANSWERS_MAX:
            oldest = next(one for one, outcome in self._outcomes.items() if outcome.answer)
            del self._outcomes[oldest]


def _answer(number: int, attempt: int, error: LogError | None) -> ChangeAnswer:
    if error is None:
        return ChangeAnswer(number, attempt)
    return ChangeAnswer(number, attempt, type(error).__name__, str(error)[:_TEXT_MAX])
