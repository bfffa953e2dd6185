"""Replicas that differ, and GLSNs that are missing or given twice, are found."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.client.verification import Checked, verify
from tidelog.errors import OutOfRange
from tidelog.interface.cluster_figures import (
    ClusterMetadata,
    ClusterReplica,
    ClusterStatus,
    ClusterStream,
    ClusterTopic,
    DigestFacts,
    GlsnFacts,
    ReplicaFacts,
)


class Cluster:
    """Two streams of one topic on nodes 1 and 2; GLSNs are dealt out in turn."""

    def __init__(self, entries: int = 10) -> None:
        self.places = {1: list(range(1, 2 * entries, 2)), 2: list(range(2, 2 * entries + 1, 2))}
        self.entries = entries
        self.offset = 0
        """Entries whose places are not kept any more."""
        self.snapshots = {(node, one): 0 for node in (1, 2) for one in (1, 2)}
        self.changed: set[tuple[int, int, int]] = set()
        """Entries (node, stream, LLSN) that are not what they should be."""
        self.flaws: dict[tuple[int, int], str] = {}
        self.contexts: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}
        self.silent: set[int] = set()
        self.compacts: list[tuple[int, int]] = []
        """Snapshot indexes of (stream 1, stream 2) that are taken after the next looks."""
        self.high_watermark = 2 * entries

    async def status(self) -> ClusterStatus:
        return ClusterStatus(
            "id",
            1,
            ClusterMetadata((1,), (), 1, 1, 1, 1, (1,)),
            (),
            (ClusterTopic("t", 1, (1, 2), "majority", self.high_watermark),),
            tuple(self._stream(number) for number in (1, 2)),
            False,
        )

    def _stream(self, number: int) -> ClusterStream:
        end = self.entries + 1
        replicas = tuple(
            ClusterReplica(
                node,
                None
                if node in self.silent
                else ReplicaFacts(
                    number,
                    "leader" if node == 1 else "follower",
                    1,
                    1,
                    end,
                    end,
                    self.snapshots[node, number],
                ),
                0,
            )
            for node in (1, 2)
        )
        last = self.places[number][-1] + 1
        return ClusterStream(number, "t", 1, 1, "running", "steady", 1, end, last, replicas)

    async def digest(self, node: int, stream: int, llsn_begin: int, llsn_end: int) -> DigestFacts:
        if self.compacts:
            for number, index in zip((1, 2), self.compacts.pop(0), strict=True):
                self.snapshots[1, number] = self.snapshots[2, number] = index
        if llsn_begin <= self.snapshots[node, stream]:
            raise OutOfRange("compacted")
        bad = [one for one in range(llsn_begin, llsn_end) if (node, stream, one) in self.changed]
        return DigestFacts(
            node,
            stream,
            llsn_begin,
            llsn_end,
            f"digest {bad}",
            self._glsn(stream, llsn_begin),
            self.contexts.get((node, stream), (7, 20, 19, 10, 1)),
            self.flaws.get((node, stream), ""),
        )

    def _glsn(self, stream: int, llsn: int) -> int:
        index = llsn - 1 - self.offset
        return self.places[stream][min(index, len(self.places[stream]) - 1)]

    async def glsns(self, node: int, stream: int, glsn_begin: int, glsn_end: int) -> GlsnFacts:
        found = [one for one in self.places[stream] if glsn_begin <= one < glsn_end]
        total, squares = sum(found), sum(one * one for one in found)
        return GlsnFacts(node, stream, glsn_begin, glsn_end, len(found), str(total), str(squares))


def checked_in(cluster: Cluster, range_entries: int = 4) -> list[Checked]:
    async def run() -> list[Checked]:
        return [one async for one in verify(cluster, range_entries=range_entries)]

    return asyncio.run(run())


def problems_in(cluster: Cluster) -> list[Checked]:
    return [one for one in checked_in(cluster) if one.problem and one.kind != "left out"]


def test_equal_replicas_are_compared_as_a_whole_and_found_sound() -> None:
    checked = checked_in(Cluster())

    assert not any(one.problem for one in checked)
    ranges = [(one.begin, one.end) for one in checked if one.kind == "replicas"]
    assert ranges == [(1, 5), (5, 9), (9, 11)] * 2
    assert [(one.begin, one.end) for one in checked if one.kind == "glsns"] == [(1, 21)]


def test_one_entry_that_differs_is_found_in_its_range() -> None:
    cluster = Cluster()
    cluster.changed.add((2, 1, 7))

    (problem,) = problems_in(cluster)

    assert (problem.stream, problem.begin, problem.end) == (1, 5, 9)
    assert "node 2" in problem.problem


def test_what_a_replica_finds_wrong_with_itself_is_told() -> None:
    cluster = Cluster()
    cluster.flaws[1, 2] = "LLSN 3 has GLSN 9, not 6"

    assert all("node 1: LLSN 3" in one.problem for one in problems_in(cluster))
    assert problems_in(cluster)


def test_commit_contexts_of_one_version_must_be_equal() -> None:
    cluster = Cluster()
    cluster.contexts[2, 1] = (7, 20, 18, 10, 1)
    assert any("commit contexts" in one.problem for one in problems_in(cluster))
    cluster.contexts[2, 1] = (6, 18, 17, 9, 1)
    assert not problems_in(cluster)


def test_only_what_no_replica_has_compacted_is_compared() -> None:
    cluster = Cluster()
    cluster.snapshots[1, 1] = 6

    ranges = [(one.begin, one.end) for one in checked_in(cluster) if one.stream == 1]

    assert ranges == [(7, 11)]


def test_a_compaction_meanwhile_is_no_difference() -> None:
    cluster = Cluster()
    cluster.compacts = [(0, 0), (0, 0), (6, 0)]

    assert not problems_in(cluster)
    assert cluster.snapshots[1, 1] == 6


def test_replicas_that_do_not_answer_are_named() -> None:
    cluster = Cluster()
    cluster.silent.add(2)

    left_out = [one for one in checked_in(cluster) if one.kind == "left out"]

    assert {(one.stream, one.nodes) for one in left_out} == {(1, (2,)), (2, (2,))}


def test_a_gap_in_the_glsns_is_found() -> None:
    cluster = Cluster()
    cluster.places[1].remove(9)

    assert [one.kind for one in problems_in(cluster)] == ["glsns"]


@pytest.mark.parametrize("twice", [8, 10])
def test_a_glsn_that_was_given_twice_in_place_of_another_is_found(twice: int) -> None:
    cluster = Cluster()
    cluster.places[1][4] = twice

    (problem,) = problems_in(cluster)

    assert "twice" in problem.problem


def test_glsns_are_checked_above_what_was_compacted() -> None:
    cluster = Cluster()
    cluster.snapshots = dict.fromkeys(cluster.snapshots, 6)
    cluster.places = {1: cluster.places[1][6:], 2: cluster.places[2][6:]}
    cluster.offset = 6

    assert not problems_in(cluster)
    assert [one.begin for one in checked_in(cluster) if one.kind == "glsns"] == [14]
