"""If an append returned before another one began, it has the smaller GLSN.  No state.

Appends return their place, so no search is needed: one sweep from the highest GLSN down.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tidelog.testing.violation import Violation

NAME: Final = "real_time"


class AckedAppend(msgspec.Struct, frozen=True, gc=False):
    """An append as its client saw it."""

    glsn: int
    invoked_at: int
    returned_at: int


def check_real_time(appends: Iterable[AckedAppend]) -> None:
    """Check the appends of one topic."""
    earliest: AckedAppend | None = None
    last: AckedAppend | None = None
    for append in sorted(appends, key=lambda append: append.glsn, reverse=True):
        if last is not None and last.glsn == append.glsn:
            raise Violation(NAME, f"GLSN {append.glsn} was given to two appends")
        if earliest is not None and earliest.returned_at < append.invoked_at:
            raise Violation(
                NAME,
                f"GLSN {append.glsn} was asked for at {append.invoked_at}, after {earliest.glsn}"
                f" had returned at {earliest.returned_at}",
            )
        if earliest is None or append.returned_at < earliest.returned_at:
            earliest = append
        last = append
