"""Failures of Spark's tasks become errors of the log."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidelog.errors import CorruptData, LogError, Trimmed
from tidelog.pipeline.task_failures import failures_typed, typed

TRACE = """Job aborted due to stage failure:
Traceback (most recent call last):
  File "worker.py", line 1, in main
tidelog.errors.%s

\tat org.apache.spark.api.python.BasePythonRunner
"""

OF_THE_JVM = """An error occurred while calling o74.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: the worker is gone
\tat org.apache.spark.api.python.BasePythonRunner
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED]
\t... 20 more
Caused by: java.io.IOException: No space left on device
\t... 30 more
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
    assert str(typed(RuntimeError(text))) == "Spark failed: KeyError: 'k'"


def test_a_failure_of_the_jvm_is_told_without_its_stack() -> None:
    wanted = "Spark failed: org.apache.spark.SparkException: Job aborted due to stage failure: "
    wanted += "the worker is gone; caused by java.io.IOException: No space left on device"
    assert str(typed(Py4JError(OF_THE_JVM))) == wanted


@pytest.mark.parametrize("kind", [Py4JError, PySparkException])
def test_what_spark_fails_with_is_an_error_of_ours(kind: type[Exception]) -> None:
    with pytest.raises(LogError, match="Spark failed: no room"), failures_typed():
        raise kind("no room")
    with pytest.raises(ZeroDivisionError), failures_typed():
        raise ZeroDivisionError
