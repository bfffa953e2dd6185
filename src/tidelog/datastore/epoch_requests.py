"""What is queued for the committing thread of a datastore."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.embedded.commit_queue import Request


class Timing(NamedTuple):
    """What a call waited for, in microseconds."""

    append_us: int
    """Writing to the WAL."""
    sync_us: int
    """Syncing it."""

    def plus(self, other: Timing) -> Timing:
        return Timing(self.append_us + other.append_us, self.sync_us + other.sync_us)


NO_TIME = Timing(0, 0)


class EpochRequest(Request):
    """Base of all; ``timing`` is that of the frame which carried it out."""

    __slots__ = ("timing",)

    def __init__(self) -> None:
        super().__init__(0)
        self.timing = NO_TIME


class FlushRequest(EpochRequest):
    """Write what waits in memory."""

    __slots__ = ()


class RecordRequest(EpochRequest):
    """Write what waits, and the cut of an epoch."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch


class ActionRequest(EpochRequest):
    """Something that runs between two frames."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.action = action
