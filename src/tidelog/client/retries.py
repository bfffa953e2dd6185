"""When a client tries again: which errors, which requests, after which pause.  No state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Final

from tidelog.client.link import KEEP_ALIVE_SECONDS
from tidelog.errors import (
    BadAddress,
    BadFrame,
    Busy,
    ConnectionLost,
    LeaderLost,
    LogError,
    NotLeader,
    Unauthorized,
    Unreachable,
    UnsupportedVersion,
    WrongLog,
)
from tidelog.formats.admin_messages import ClusterFigures, NodeFigures, StreamDigest, StreamGlsns
from tidelog.formats.audit_messages import CheckFiles, ListReplicas, ReadReplica
from tidelog.formats.messages import (
    AppendBatches,
    Describe,
    Explain,
    FindEnd,
    FindTime,
    Get,
    GetPosition,
    ListTopics,
    LogFigures,
    ReadPage,
    Request,
    TopicFigures,
)

FATAL: Final = (WrongLog, UnsupportedVersion, BadFrame, Unauthorized, BadAddress)
"""What no further attempt will change."""
WITHOUT_EFFECT: Final = (
    CheckFiles,
    ClusterFigures,
    Describe,
    Explain,
    FindEnd,
    FindTime,
    Get,
    GetPosition,
    ListReplicas,
    ListTopics,
    LogFigures,
    NodeFigures,
    ReadPage,
    ReadReplica,
    StreamDigest,
    StreamGlsns,
    TopicFigures,
)
"""Requests that change nothing, however often they arrive."""
_CHANCE: Final = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """How a client comes back to a node that it lost, and how often it tries again."""

    pause_first: float = 0.02
    pause_max: float = 1.0
    attempt: float = 5.0
    """For one attempt to connect."""
    attempt_first: float = 1.0
    """The same, as long as there are other nodes to try."""
    keep_alive: float = KEEP_ALIVE_SECONDS
    keep_alive_cluster: float = 2.0
    """The same where another node can answer instead."""
    retry_max: float = 0.25
    """The longest pause after a refusal that another try may change."""
    chance: Callable[[], float] = _CHANCE.random
    """A number in [0, 1): clients that were lost together come back one by one."""

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row to connect."""
        return self._grown(failures, self.pause_max)

    def retry_pause(self, failures: int) -> float:
        """Seconds to wait after so many refusals in a row that another try may change."""
        return self._grown(failures, self.retry_max)

    def _grown(self, failures: int, longest: float) -> float:
        longest = min(self.pause_first * 2.0 ** min(failures - 1, 30), longest)
        return longest * (0.5 + self.chance() / 2)


def is_worth_repeating(request: Request, error: LogError, *, repeat: bool) -> bool:
    """Whether a refused request may be sent again, and may fare better (C1).

    ``repeat``: whether it is harmless even if the refused try took effect.
    """
    if isinstance(error, NotLeader | Unreachable):
        return True
    if isinstance(error, LeaderLost | ConnectionLost):
        return repeat
    if isinstance(error, Busy):
        # An append has its caller's number: it is taken once, whatever was the matter.
        harmless = (*WITHOUT_EFFECT, AppendBatches) if repeat else WITHOUT_EFFECT
        return isinstance(request, harmless)
    return False


def in_doubt(lost: LogError, error: LogError) -> ConnectionLost:
    """What is true of a definite error if ``lost`` befell an earlier try."""
    return ConnectionLost(f"{lost}, then {error}; it may have taken effect")
