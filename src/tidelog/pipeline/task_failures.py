"""What went wrong in a task of Spark, as the error of ours that it was there.  No state."""

from __future__ import annotations

import re
from typing import Final

from tidelog import errors
from tidelog.errors import LogError

_FIRST: Final = re.compile(r"first available is (\d+)")
_OURS: Final = re.compile(r"tidelog\.errors\.(\w+): ([^\n]*)")
_TRACEBACK: Final = re.compile(r"^Traceback .*\n(?:[ \t].*\n)*(\S.*)", re.MULTILINE)
"""What Python says last of an error, below all that is indented."""


def typed(failure: Exception) -> LogError:
    """The error of this package that a failure of Spark tells of, or one that says what it was."""
    text = str(failure).strip() or type(failure).__name__
    found = _OURS.search(text)
    kind = getattr(errors, found[1], LogError) if found else LogError
    message = found[2] if found else f"a task of Spark failed: {_told(text)}"
    if kind is errors.Trimmed:
        first = _FIRST.search(message)
        return errors.Trimmed(message, first_available=int(first[1]) if first else 0)
    raised: LogError = kind(message)
    return raised


def _told(text: str) -> str:
    """The line of a failure that says most."""
    found = _TRACEBACK.search(text)
    return found[1] if found else text.splitlines()[0]
