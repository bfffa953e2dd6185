"""What Spark fails with, as the error of ours that it was in a task.  No state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidelog import errors
from tidelog.errors import LogError

_CALL: Final = re.compile(r"^An error occurred while calling \S+\n: ")
_CAUSE: Final = re.compile(r"^Caused by: (.*)", re.MULTILINE)
_FIRST: Final = re.compile(r"first available is (\d+)")
_OURS: Final = re.compile(r"tidelog\.errors\.(\w+): ([^\n]*)")
_TRACEBACK: Final = re.compile(r"^Traceback .*\n(?:[ \t].*\n)*(\S.*)", re.MULTILINE)
"""What Python says last of an error, below all that is indented."""


@contextmanager
def failures_typed() -> Iterator[None]:
    """Spark's errors leave as errors of this package: Python's of Spark, and all of the JVM's."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise typed(error) from error


def typed(failure: Exception) -> LogError:
    """The error of this package that a failure of Spark tells of, or one that says what it was."""
    text = str(failure).strip() or type(failure).__name__
    found = _OURS.search(text)
    kind = getattr(errors, found[1], LogError) if found else LogError
    message = found[2] if found else f"Spark failed: {_told(text)}"
    if kind is errors.Trimmed:
        first = _FIRST.search(message)
        return errors.Trimmed(message, first_available=int(first[1]) if first else 0)
    raised: LogError = kind(message)
    return raised


def _told(text: str) -> str:
    """The line of a failure that says most."""
    found = _TRACEBACK.search(text)
    if found:
        return found[1]
    line, causes = _CALL.sub("", text).splitlines()[0], _CAUSE.findall(text)
    return f"{line}; caused by {causes[-1]}" if causes else line
