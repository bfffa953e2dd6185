"""A master never asks for what its replica must refuse: only what happens to them is refused."""

from __future__ import annotations

from typing import Final

from tidelog.core.session.messages import Error, ErrorCode, Request
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "refusals"
BY_FATE: Final = (
    ErrorCode.WRONG_CONFIGURATION,
    ErrorCode.WRONG_POSITION,
    ErrorCode.SESSION_OPEN,
    ErrorCode.SESSION_BROKEN,
    ErrorCode.WRONG_SECRET,
    ErrorCode.WRITE_FAILED,
)
"""What may be said to a master that is right: somebody was restarted, lost or replaced."""


def check_refusal(node: NodeId, request: Request, error: Error) -> None:
    """Check an error that a replica answers to a master."""
    if error.code not in BY_FATE:
        raise Violation(NAME, f"node {node} answers {error} to {request}")
