"""One node's disk is full, fails to sync, is wiped, or is changed behind its back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.arena import Arena
from tests.cluster.disks import (
    can_mount,
    compile_shim,
    failing_syncs,
    fill_up,
    flip_bits,
    small_disk,
)
from tidelog.testing import LocalCluster, LocalNode

pytestmark = pytest.mark.slow

SMALL_MEBIBYTES = 64
SMALL_FILES = {"storage.wal_file_bytes": "262144"}
"""So that a node soon needs new ones, and has segments."""
ROLLED = 10_000
"""Records that fill several such files."""
IMPATIENT = {"timing.replace": "2"}
"""A node that is silent for two seconds is replaced."""


@pytest.mark.soak
@pytest.mark.skipif(not can_mount(), reason="needs root and mount")
def test_a_node_whose_disk_is_full_harms_nobody_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    """First a follower's disk; then that of a leader, whose streams take nothing until then."""
    cluster = LocalCluster(3, directory=tmp_path, streams=1, settings=SMALL_FILES)
    node = cluster.nodes[0]
    with small_disk(node.directory, SMALL_MEBIBYTES), cluster, Arena(cluster) as arena:
        arena.load.wait_for_more(100)
        [stream] = arena.streams()
        let_lead(arena, stream, cluster.nodes[1])
        ballast: list[Path] = []
        arena.fault(lambda: ballast.append(fill_up(node.directory)), after=ROLLED)
        assert is_full(node)
        ballast[0].unlink()
        arena.wait_until(lambda: not is_full(node), "the node notices that there is room")
        arena.wait_until_whole()
        let_lead(arena, stream, node)
        fill_up(node.directory)
        arena.wait_until(lambda: is_full(node), "the leader's disk is full")
        arena.load.wait_for_failures(5)
        assert any("DiskFull" in error for error in arena.load.last_errors())
        arena.fault(ballast[0].unlink, before=0)
        assert node.is_running
        arena.check()


def let_lead(arena: Arena, stream: int, node: LocalNode) -> None:
    with arena.cluster.connect() as log:
        for _ in log.admin.move_leader(stream, node.id):
            pass
    assert arena.leader(stream) is node


def is_full(node: LocalNode) -> bool:
    """What it tells of its disk."""
    return "tidelog_node_disk_full 1.0" in node.page("/metrics")[1]


def test_a_leader_whose_sync_fails_stops_and_comes_back_with_all_that_it_promised(
    tmp_path: Path,
) -> None:
    library = compile_shim(tmp_path)
    cluster = LocalCluster(3, directory=tmp_path / "cluster", streams=2)
    for node in cluster.nodes:
        node.environment.update(failing_syncs(library, trigger_of(tmp_path, node)))
    with cluster, Arena(cluster) as arena:
        arena.wait_until_whole()
        leader = arena.leader()
        trigger = trigger_of(tmp_path, leader)
        arena.fault(trigger.touch)
        arena.wait_until(lambda: not leader.is_running, "the node with the bad disk has stopped")
        trigger.unlink()
        arena.restart(leader)
        arena.check()


def trigger_of(directory: Path, node: LocalNode) -> Path:
    return directory / f"bad-disk-{node.number}"


def test_a_follower_with_flipped_bits_is_mended_by_its_leaders(tmp_path: Path) -> None:
    """In segments: what they hold is lost, what the node promised is not.

    Readers of that node are served what others have; the replica gives itself up as soon as
    anybody has met the damage, and is filled up.
    """
    with (
        LocalCluster(3, directory=tmp_path, streams=1, settings=SMALL_FILES) as cluster,
        Arena(cluster) as arena,
    ):
        arena.wait_until_whole()
        follower = arena.follower()
        arena.fault(follower.kill, before=ROLLED)
        assert flip_bits(files_of(follower, "streams/*/*.segment"), 3, seed=7)
        arena.fault(follower.start)
        arena.check_reading()
        arena.wait_until(lambda: "damaged" in follower.log.read_text(), "the damage is met")
        arena.wait_until_whole()
        arena.check()


def files_of(node: LocalNode, pattern: str) -> list[Path]:
    return sorted((node.directory / "storage").glob(pattern))


@pytest.mark.soak
def test_a_wiped_node_comes_back_as_a_new_one_and_is_filled_up(tmp_path: Path) -> None:
    """Its WAL is damaged, so nobody can say what it promised: it does not start before it is wiped.

    Operators move the replicas of its former self; a person replaces it as a metadata member.
    """
    with (
        LocalCluster(3, directory=tmp_path, streams=2, settings=IMPATIENT) as cluster,
        Arena(cluster) as arena,
    ):
        arena.wait_until_whole()
        node = arena.follower()
        arena.fault(node.kill)
        flip_bits(files_of(node, "wal/*.wal"), 5, seed=8)
        node.start()
        arena.wait_until(lambda: not node.is_running, "a node with a damaged WAL has stopped")
        assert node.exit_code not in (0, None)
        old = node.id
        node.wipe()
        arena.fault(node.start)
        assert node.id != old
        arena.wait_for_status(
            lambda status: all(old not in stream.ensemble for stream in status.streams),
            "the replicas of the lost disk were replaced",
        )
        with cluster.connect() as log:
            log.admin.add_member(node.id)
            log.admin.remove_member(old)
            log.admin.remove_node(old)
        arena.check()
        assert all(node.id in stream.ensemble for stream in arena.status().streams)
