"""Errors as they travel.  No state."""

from __future__ import annotations

from typing import Final

from tidelog.errors import LogError, Trimmed
from tidelog.formats.messages import Refused

_MESSAGE_CHARS_MAX: Final = 2000


def refused(error: LogError) -> Refused:
    """An error by the name of its class, so that the client can raise the same."""
    first = error.first_available if isinstance(error, Trimmed) else 0
    return Refused(type(error).__name__, str(error)[:_MESSAGE_CHARS_MAX], first)


def surprised(error: BaseException) -> LogError:
    """What a client is told when something went wrong that we did not foresee."""
    return LogError(f"the node failed to answer ({type(error).__name__}); its log has the details")
