"""Errors as they travel.  No state."""

from __future__ import annotations

from typing import Final

from tidelog.errors import LogError, NotLeader, Trimmed, WrongLog
from tidelog.formats.messages import Hello, Refused

_MESSAGE_CHARS_MAX: Final = 2000


def refused(error: LogError) -> Refused:
    """An error by the name of its class, so that the client can raise the same."""
    first = error.first_available if isinstance(error, Trimmed) else 0
    leader = error.leader if isinstance(error, NotLeader) else ""
    return Refused(type(error).__name__, str(error)[:_MESSAGE_CHARS_MAX], first, leader)


def check_log(hello: Hello, log_id: bytes) -> None:
    """WrongLog if a client expects another log than this one."""
    if hello.log_id and hello.log_id != log_id:
        raise WrongLog(
            f"this node serves log {log_id.hex()}, not {hello.log_id.hex()}: check the address"
        )


def surprised(error: BaseException) -> LogError:
    """What a client is told when something went wrong that we did not foresee."""
    return LogError(f"the node failed to answer ({type(error).__name__}); its log has the details")
