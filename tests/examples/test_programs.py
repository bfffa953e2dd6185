"""Every program in ``examples`` runs to its end; small ones here, with Spark in `make soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def ended(*arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=seconds
    )


def run(*arguments: str, seconds: float) -> str:
    """The output of a program that ends well and in time."""
    done = ended(*arguments, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_cluster_example_kills_a_leader_and_loses_nothing() -> None:
    assert "lost: 0, doubled: 0" in run("examples/cluster.py", "--appends", "50", seconds=100)


def test_a_ledger_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(ROOT / "no-java-here"))
    for name in ("examples.ledger", "examples.declarative"):
        done = ended("-m", name, seconds=60)
        assert done.returncode == 1
        assert "Java 17" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.soak
def test_the_quickstart_runs() -> None:
    assert "none missing: True" in run("examples/quickstart.py", seconds=110)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_main_job_runs_with_fewer_events() -> None:
    output = run("-m", "examples.ledger", "--events", "40000", "--accounts", "400", seconds=540)
    assert "kill -9 of node" in output
    assert "are sound" in output
    assert "Everything is stopped." in output


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_declarative_example_runs_twice_and_takes_each_order_once() -> None:
    output = run("-m", "examples.declarative", "--orders", "2000", seconds=540)
    assert output.count("each once") == 2
