"""What is wrong with a cluster is told with its remedy; nothing is told of a whole one."""

from __future__ import annotations

from msgspec.structs import replace

from tests.runtime.admin.figures import STREAM, WHOLE, facts, lost
from tidelog.interface.cluster_figures import (
    ClusterChange,
    ClusterFinding,
    ClusterReplica,
    ClusterStatus,
    ReplicaFacts,
    Severity,
)
from tidelog.interface.cluster_health import checkup_of, health_of, worst_of


def with_stream(**fields: object) -> ClusterStatus:
    return replace(WHOLE, streams=(replace(STREAM, **fields),))


def with_facts(**fields: object) -> ClusterStatus:
    first = WHOLE.nodes[0]
    return replace(WHOLE, nodes=(replace(first, facts=replace(facts(1), **fields)),))


def severities(findings: tuple[ClusterFinding, ...]) -> list[Severity]:
    return [finding.severity for finding in findings]


def test_a_whole_cluster_needs_nothing() -> None:
    assert health_of(WHOLE) == checkup_of(WHOLE) == ()
    assert worst_of(()) is None


def test_one_lost_node_is_a_warning_and_two_are_an_error() -> None:
    assert worst_of(health_of(lost(WHOLE, 3))) is Severity.WARNING
    assert worst_of(health_of(lost(WHOLE, 2, 3))) is Severity.ERROR
    told = " ".join(finding.what for finding in health_of(lost(WHOLE, 2, 3)))
    assert "metadata repository has no quorum" in told
    assert "log stream 1 of topic t has no quorum" in told


def test_a_stream_without_a_leader_is_an_error() -> None:
    findings = health_of(with_stream(leader=0, plan="election"))
    assert severities(findings) == [Severity.ERROR]
    assert "no leader" in findings[0].what


def test_a_metadata_repository_without_a_leader_is_an_error() -> None:
    leaderless = replace(WHOLE, metadata=replace(WHOLE.metadata, leader=0))
    assert severities(health_of(leaderless)) == [Severity.ERROR]


def test_a_replica_that_is_being_filled_up_does_not_count() -> None:
    incomplete = ClusterReplica(3, ReplicaFacts(1, "follower", 1, 1, 10, 10, is_complete=False), 0)
    findings = health_of(with_stream(replicas=(*STREAM.replicas[:2], incomplete)))
    assert severities(findings) == [Severity.WARNING]


def test_a_change_under_way_is_no_fault_but_paused_operators_are() -> None:
    change = ClusterChange("swap", "prepare", 3, 4)
    assert severities(health_of(with_stream(plan="reconfiguration", change=change))) == [
        Severity.NOTE
    ]
    assert severities(health_of(replace(WHOLE, operators_paused=True))) == [Severity.WARNING]


def test_a_cluster_without_an_operator_is_told() -> None:
    idle = tuple(replace(node, roles=("storage", "metadata")) for node in WHOLE.nodes)
    assert severities(health_of(replace(WHOLE, nodes=idle))) == [Severity.WARNING]


def test_a_disk_that_runs_full_is_told_before_and_when_it_is() -> None:
    assert severities(checkup_of(with_facts(data_bytes_free=5))) == [Severity.WARNING]
    assert severities(checkup_of(with_facts(data_bytes_free=1))) == [Severity.ERROR]


def test_a_full_disk_and_a_slow_one_are_told() -> None:
    assert severities(health_of(with_facts(is_disk_full=True))) == [Severity.ERROR]
    assert severities(checkup_of(with_facts(sync_seconds=0.1))) == [Severity.WARNING]


def test_limits_backlogs_and_damage_are_found() -> None:
    assert severities(checkup_of(with_facts(open_files_max=1024))) == [Severity.WARNING]
    assert severities(checkup_of(with_facts(open_files=60_000))) == [Severity.WARNING]
    assert severities(checkup_of(with_facts(wal_backlog_files=4))) == [Severity.WARNING]
    assert severities(checkup_of(with_facts(damaged_files=("x.segment",)))) == [Severity.ERROR]


def test_a_clock_is_off_only_beyond_what_the_round_trip_explains() -> None:
    def clock(offset: float, round_trip: float) -> tuple[ClusterFinding, ...]:
        off = replace(WHOLE.nodes[0], clock_offset_seconds=offset, round_trip_seconds=round_trip)
        return checkup_of(replace(WHOLE, nodes=(off,)))

    assert severities(clock(-2.0, 0.1)) == [Severity.WARNING]
    assert clock(0.9, 1.0) == ()


def test_a_replica_far_behind_is_told() -> None:
    behind = replace(STREAM.replicas[1], lag=10_000_000)
    assert severities(checkup_of(with_stream(replicas=(behind,)))) == [Severity.WARNING]


def test_every_finding_has_a_remedy() -> None:
    sick = (
        health_of(lost(WHOLE, 2, 3)),
        health_of(with_stream(leader=0, plan="election")),
        checkup_of(with_facts(data_bytes_free=1, open_files_max=1024, damaged_files=("x",))),
    )
    assert all(finding.remedy for findings in sick for finding in findings)
