"""``tidelog simulate`` as its users see it."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import ended, run, run_json, spawned
from tidelog.storage.raft_store import RaftStore


def test_a_batch_tells_what_happened_in_it() -> None:
    told = run_json("simulate", "--seeds", 3, "--processes", 1)
    assert [kind["kind"] for kind in told["kinds"]] == ["raft", "cluster", "session"]
    for kind in told["kinds"]:
        assert kind["seeds"] == 3
        assert kind["failed_seeds"] == []
        assert kind["counts"]["epoch_propagated" if kind["kind"] == "session" else "election"] > 0
        assert kind["never"] == []


def test_other_processes_find_the_same() -> None:
    args = ("simulate", "--kind", "raft", "--seeds", 6, "-o", "json", "--processes")
    with spawned(*args, 2) as process:
        apart = json.loads(ended(process)[0])["kinds"][0]
    alone = json.loads(run(*args, 1).stdout)["kinds"][0]
    assert apart["counts"] == alone["counts"]
    assert apart["events"] == alone["events"]


def test_one_seed_is_told_with_its_digest_and_has_it_again() -> None:
    first = run_json("simulate", "--kind", "raft", "--seed", 4)
    assert first == run_json("simulate", "--kind", "raft", "--seed", 4)
    assert first["digest"] != run_json("simulate", "--kind", "raft", "--seed", 5)["digest"]


def test_a_batch_with_a_failure_ends_with_code_1_and_the_line_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RaftStore, "sync", lambda store: None)
    told = run("simulate", "--kind", "raft", "--seeds", 6, "--processes", 1, code=1).stdout
    assert "stored: " in told
    assert "repeat with: tidelog simulate --kind raft --seed" in told


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--seed", "1"), "--kind raft or --kind cluster"),
        (("--without", "loss"), "need --seed"),
        (("--kind", "raft", "--seed", "1", "--without", "rain"), "no class of faults"),
    ],
)
def test_what_makes_no_sense_is_refused(args: tuple[str, ...], said: str) -> None:
    assert said in run("simulate", *args, code=2).stderr
