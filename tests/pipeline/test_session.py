"""Which session a job works with."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidelog.errors import BadOption, LogError
from tidelog.pipeline.session import is_remote, session


def test_a_session_that_was_given_is_used_and_stays() -> None:
    given = MagicMock(spec=SparkSession)
    with session(given, "local[1]", "test") as found:
        assert found is given
    given.stop.assert_not_called()


def test_what_spark_fails_with_is_an_error_of_ours() -> None:
    given = MagicMock(spec=SparkSession)
    with pytest.raises(LogError, match="the JVM is gone"), session(given, "local[1]", "test"):
        raise Py4JError("the JVM is gone")


def test_a_session_with_a_driver_in_this_process_is_not_remote() -> None:
    assert not is_remote(object.__new__(SparkSession))


def test_two_places_for_spark_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example")
    with (
        pytest.raises(BadOption, match=r"'local\[1\]', but SPARK_REMOTE says"),
        session(None, "local[1]", "test"),
    ):
        pytest.fail("there is no session")
