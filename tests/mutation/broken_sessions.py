"""A master's safeguards switched off: what stories and seeds must both notice.  No state."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.core.session.epochs import Epochs
from tidelog.core.session.lanes import Lane, Stage
from tidelog.core.session.master import Commit, Master


def at_its_mark(lane: Lane, stage: Stage) -> bool:
    return stage.finishes is not None


def whatever_is_awaited(lane: Lane, stage: Stage) -> bool:
    return stage.finishes is None


def with_the_last_answer(commit: Commit) -> bool:
    return commit.missing == 0


def with_the_first_answer(original: Callable[..., None]) -> Callable[..., None]:
    def committed(master: Master) -> None:
        if master._commit is not None:
            master._commit.missing = 1
        original(master)

    return committed


def even_when_stopped(master: Master) -> None:
    commit = master._commit
    if commit is not None and commit.is_propagated:
        master._commit = None
        master._epochs.propagate(commit.epoch)


def whatever_is_unfinished(epochs: Epochs) -> int:
    return epochs.current - 1
