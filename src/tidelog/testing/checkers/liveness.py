"""Once the faults end, the system gets on: that it does is the other half of being right."""

from __future__ import annotations

from typing import Final

from tidelog.testing.violation import Violation

NAME: Final = "liveness"


def check_liveness(converged: bool, status: str) -> None:
    """Check that all is well some time after the faults ended."""
    if not converged:
        raise Violation(NAME, f"no convergence after healing: {status}")
