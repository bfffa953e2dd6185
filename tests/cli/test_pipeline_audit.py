"""What ``tidelog pipeline audit`` prints, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result
from msgspec.structs import replace

from tests.cli.running import run
from tests.pipeline.test_audit_report import DAMAGED, SOUND
from tidelog.cli.failures import ExitCode
from tidelog.pipeline.auditing import job
from tidelog.pipeline.auditing.findings import AuditProgress, AuditSummary, LeftOut

LEFT_OUT = (LeftOut("orders", 1, 2, "its node does not answer"), LeftOut("", 0, 3, "gone"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the job was asked for; its ``summary`` is what it tells."""
    given: dict[str, Any] = {"summary": SOUND}

    def audit(url: str, **options: Any) -> AuditSummary:
        options["progress"](AuditProgress("plan", "3 replicas"))
        given.update(url=url, **options)
        summary: AuditSummary = given["summary"]
        return summary

    monkeypatch.setattr(job, "audit", audit)
    return given


def command(*more: str, code: ExitCode = ExitCode.OK) -> Result:
    return run("pipeline", "audit", "--from", "tidelog://h:1", *more, code=code)


def test_a_sound_log_ends_well(asked: dict[str, Any]) -> None:
    told = command("-t", "orders", "-t", "other", "--timeout", "5", "--spark-master", "local[1]")
    assert "verdict   sound" in told.stdout
    assert "entries   290" in told.stdout
    assert told.stderr == "plan: 3 replicas\n"
    assert asked["topics"] == ("orders", "other")
    assert (asked["timeout"], asked["spark_master"], asked["report"]) == (5.0, "local[1]", None)


def test_all_topics_are_looked_at_if_none_is_named(asked: dict[str, Any]) -> None:
    command()
    assert asked["topics"] is None


def test_findings_are_a_table_and_a_code_of_their_own(asked: dict[str, Any]) -> None:
    asked["summary"] = DAMAGED
    told = command(code=ExitCode.DAMAGED)
    assert "diverged replicas" in told.stdout
    assert "41 to 42" in told.stdout
    assert "tidelog: the audit has 7 findings" in told.stderr


def test_what_was_left_out_is_told_and_is_no_success(asked: dict[str, Any]) -> None:
    asked["summary"] = replace(SOUND, left_out=LEFT_OUT)
    told = command(code=ExitCode.ERROR)
    assert "not looked at: log stream 1 on node 2: its node does not answer" in told.stdout
    assert "not looked at: the write-ahead log on node 3: gone" in told.stdout
    assert "2 replicas or files could not be looked at" in told.stderr


def test_programs_are_told_the_same(asked: dict[str, Any]) -> None:
    asked["summary"] = DAMAGED
    found = json.loads(command("-o", "json", code=ExitCode.DAMAGED).stdout)
    assert (found["is_sound"], found["is_complete"], found["findings_more"]) == (False, False, 5)
    assert found["findings"][0]["kind"] == "diverged replicas"
    assert found["replicas"][0]["entries"] == 100
