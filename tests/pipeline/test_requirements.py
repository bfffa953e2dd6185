"""What is missing is told, with its remedy, before anything starts."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from tidelog.errors import CorruptData, Unavailable
from tidelog.pipeline.materialization.batch_range import BatchRange, batch_range
from tidelog.pipeline.requirements import check_requirements


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Java of JAVA_HOME, to be written by the test."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin" / "java"


def answer(java: Path, text: str, *, code: int = 0) -> None:
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit {code}\n")
    java.chmod(0o755)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_java_will_do(java: Path, version: str) -> None:
    answer(java, f'openjdk version "{version}" 2025-04-15')
    check_requirements(delta=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "Java 11 is installed"),
        ('java version "1.8.0_291"', "Java 8 is installed"),
        ("something else", "Java of an unknown version is installed"),
    ],
)
def test_an_old_java_will_not(java: Path, text: str, message: str) -> None:
    answer(java, text)
    with pytest.raises(Unavailable, match=f"{message}.*openjdk-17-jre-headless.*JAVA_HOME"):
        check_requirements(delta=True)


def test_a_java_that_fails_will_not(java: Path) -> None:
    answer(java, "no", code=1)
    with pytest.raises(Unavailable, match="found none"):
        check_requirements(delta=True)


def test_the_command_says_what_to_install_when_there_is_no_java(tmp_path: Path) -> None:
    table = tmp_path / "table"
    command = [sys.executable, "-m", "tidelog", "pipeline", "materialize"]
    done = subprocess.run(
        [*command, "--from", "tidelog://localhost:1/t", "--to", str(table)],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "install openjdk-17-jre-headless" in done.stderr
    assert "Traceback" not in done.stderr
    assert not table.exists()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.pipeline.requirements.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pyspark is not installed: pip install 'tidelog\[spark"):
        check_requirements(delta=True)


def test_a_client_of_spark_connect_needs_no_java(java: Path) -> None:
    answer(java, "no", code=1)
    check_requirements(delta=True, master="sc://spark.example:15002")


def test_who_brings_a_session_needs_no_java(java: Path) -> None:
    answer(java, "no", code=1)
    check_requirements(delta=True, spark=MagicMock(spec=SparkSession))


def test_a_client_of_spark_connect_needs_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object:
        return None if name == "grpc" else find_spec(name)

    monkeypatch.setattr("tidelog.pipeline.requirements.find_spec", find)
    with pytest.raises(Unavailable, match=r"grpc is not installed: pip install 'pyspark\[connect"):
        check_requirements(delta=True, master="sc://spark.example:15002")


def test_a_batch_has_the_range_that_spark_noted(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n{"glsn": 9, "from": 4}')
    assert batch_range(tmp_path, 3) == BatchRange(4, 9)


@pytest.mark.parametrize("note", [None, "", "v1\n{}\n-", 'v1\n{}\n{"glsn": 9}', "v1\n{}\n[]"])
def test_a_note_that_tells_no_range_is_told(tmp_path: Path, note: str | None) -> None:
    (tmp_path / "offsets").mkdir()
    if note is not None:
        (tmp_path / "offsets" / "3").write_text(note)
    with pytest.raises(CorruptData, match="delete the checkpoint"):
        batch_range(tmp_path, 3)
