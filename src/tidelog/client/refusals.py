"""Refusals of a node as the errors that they stand for.  No state."""

from __future__ import annotations

from typing import Final

from tidelog import errors
from tidelog.errors import LogError, NotLeader, ReplicaRefused, Trimmed
from tidelog.formats.messages import Refused

_CLASSES: Final[dict[str, type[LogError]]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, LogError) and value is not ReplicaRefused
}
"""Without the one that replicas tell by a code."""


class NodeFailed(LogError):
    """A node failed in a way that this release has no name for; it may have done what was asked."""

    definite = False


def error_of(refused: Refused) -> LogError:
    """The error by the name of its class."""
    if refused.error == Trimmed.__name__:
        return Trimmed(refused.message, first_available=refused.first_available)
    if refused.error == NotLeader.__name__:
        return NotLeader(refused.message, leader=refused.leader)
    known = _CLASSES.get(refused.error)
    if known is None or known is LogError:
        return NodeFailed(f"{refused.error}: {refused.message}")
    return known(refused.message)
