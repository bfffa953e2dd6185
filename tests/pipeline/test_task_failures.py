"""Failures of Spark's tasks become errors of the log."""

from __future__ import annotations

from tidelog.errors import CorruptData, LogError, Trimmed
from tidelog.pipeline.task_failures import typed

TRACE = """Job aborted due to stage failure:
Traceback (most recent call last):
  File "worker.py", line 1, in main
tidelog.errors.%s

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_an_error_of_ours_is_told_from_the_trace_around_it() -> None:
    found = typed(RuntimeError(TRACE % "CorruptData: the file is damaged"))
    assert type(found) is CorruptData
    assert str(found) == "the file is damaged"


def test_what_is_available_is_told_with_what_was_trimmed() -> None:
    found = typed(RuntimeError(TRACE % "Trimmed: GLSN 3 was trimmed; the first available is 17"))
    assert isinstance(found, Trimmed)
    assert found.first_available == 17


def test_any_other_failure_says_what_it_was() -> None:
    assert type(typed(RuntimeError("no room\non the disk"))) is LogError
    assert str(typed(RuntimeError("no room\non the disk"))).endswith("failed: no room")
    assert "RuntimeError" in str(typed(RuntimeError("")))


def test_a_failure_of_python_is_told_by_its_last_line() -> None:
    trace = "Traceback (most recent call last):\n  File x\n    y()\nKeyError: 'k'\n\n\tat org"
    text = f"a task failed:\n{trace}"
    assert str(typed(RuntimeError(text))) == "a task of Spark failed: KeyError: 'k'"
