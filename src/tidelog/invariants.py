"""Checks that stay on under ``python -O``: a broken invariant is our bug, never bad input."""

from __future__ import annotations


class InvariantViolation(BaseException):
    """The program contradicts itself; nothing after this point can be trusted.

    It derives from BaseException so that no ``except Exception`` turns it into a log line.
    """


def check(condition: bool, message: str) -> None:
    """Stop unless ``condition`` holds; ``message`` quotes the invariant by its number."""
    if not condition:
        raise InvariantViolation(message)
