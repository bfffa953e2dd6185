"""A replica answers every request once, in its order, as the request wants to be answered; and it
speaks to nobody whose session is over.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.session.messages import Answer, Error, Request, SessionBegin, SessionBegun
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "session_answers"


def check_answer(node: NodeId, request: Request | None, answer: Answer) -> None:
    """Check an answer; ``request``: the one that is open on the connection."""
    if request is None:
        raise Violation(NAME, f"node {node} says {answer} where nothing was asked")
    begins = isinstance(answer, SessionBegun)
    if not isinstance(answer, Error) and begins != isinstance(request, SessionBegin):
        raise Violation(NAME, f"node {node} answers {answer} to {request}")


def check_hung_up(node: NodeId, connection: int, is_living: bool) -> None:
    """Check that a log channel that is open is one of a session that goes on."""
    if not is_living:
        raise Violation(NAME, f"node {node} keeps log channel {connection} of a session that ended")


def check_answered(node: NodeId, request: Request, waited: int, patience: int) -> None:
    """Check that a request does not wait for ever."""
    if waited > patience:
        raise Violation(NAME, f"node {node} has not answered {request} after {waited / 1000} ms")
