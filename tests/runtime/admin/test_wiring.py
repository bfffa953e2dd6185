"""What a process tells of its replicas is what is on its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.crash.repeatable import repeatable
from tests.storage_replica.twin import STREAM, Twin
from tidelog.client.verification import flaw_in_digests, flaw_in_glsns
from tidelog.core.compaction.plan import Strategy
from tidelog.core.replica.messages import Role
from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import BadOption, OutOfRange
from tidelog.interface.cluster_figures import DigestFacts, GlsnFacts
from tidelog.limits import ADMIN_RANGE_ENTRIES_MAX
from tidelog.runtime.admin.wiring import NodeStores
from tidelog.runtime.storage_node.counters import Histogram
from tidelog.runtime.storage_node.status import ReplicaStatus
from tidelog.storage.machine_facts import disk_room, open_files
from tidelog.storage.node_store import NodeStore
from tidelog.storage.replica_facts import flaw_in_mapping
from tidelog.types import NO_NODE, Glsn, Llsn, NodeId, Term, TopicId, Version


@pytest.fixture(autouse=True)
def _no_chance() -> Iterator[None]:
    with repeatable():
        yield


class Storage:
    """A storage node that has a disk and nothing else."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin
        self.maintenance = Maintenance(twin.disk.node, Strategy(), 1)
        self.sync_seconds = Histogram()
        self.is_disk_full = False

    @property
    def node_store(self) -> NodeStore:
        return self._twin.disk.node

    def hasten_order(self) -> None:
        """All is stored."""

    def status(self) -> tuple[ReplicaStatus, ...]:
        image = self._twin.image()
        return (
            ReplicaStatus(
                topic=TopicId(1),
                stream=STREAM,
                role=Role.FOLLOWER,
                term=Term(1),
                leader=NO_NODE,
                first=Llsn(1),
                end=image.end,
                durable_end=image.end,
                propagated_end=image.end,
                ordered_end=image.context.llsn_end,
                high_watermark=image.context.high_watermark,
                version=Version(image.context.version),
                is_complete=True,
                is_behind=False,
                is_filling=False,
                is_sealed=True,
                revision=7,
            ),
        )


def stores(node: int, *texts: str, gap: int = 2) -> NodeStores:
    """A replica with these entries, ordered in pairs with GLSNs of other streams between."""
    twin = Twin()
    twin.become_member()
    for place in range(0, len(texts), 2):
        twin.append(*texts[place : place + 2])
        twin.order(gap=gap)
    twin.sync()
    return NodeStores(NodeId(node), Storage(twin), twin.disk)


def digest(of: NodeStores, begin: int, end: int) -> DigestFacts:
    return asyncio.run(of.digest(STREAM, Llsn(begin), Llsn(end)))


def glsns(of: NodeStores, begin: int, end: int) -> GlsnFacts:
    return asyncio.run(of.glsns(STREAM, Glsn(begin), Glsn(end)))


TEXTS = ("a", "b", "c", "d", "e", "f")
PLACES = (3, 4, 7, 8, 11, 12)
"""The GLSNs of these."""


def test_equal_replicas_tell_the_same_of_each_range() -> None:
    one, other = stores(1, *TEXTS), stores(2, *TEXTS)

    for begin, end in ((1, 7), (2, 5), (6, 7)):
        told = [digest(one, begin, end), digest(other, begin, end)]
        assert flaw_in_digests(told) == ""
        assert told[0].glsn_first == PLACES[begin - 1]


def test_replicas_with_other_entries_or_other_glsns_are_told_apart() -> None:
    one = stores(1, *TEXTS)
    for other in (stores(2, *TEXTS[:5], "x"), stores(2, *TEXTS, gap=1)):
        assert flaw_in_digests([digest(one, 1, 7), digest(other, 1, 7)])


def test_an_empty_range_is_no_difference_and_needs_no_file() -> None:
    told = [digest(stores(1), 1, 1), digest(stores(2), 1, 1)]
    assert flaw_in_digests(told) == ""


def test_what_is_not_ordered_cannot_be_compared() -> None:
    with pytest.raises(OutOfRange):
        digest(stores(1, *TEXTS), 1, 9)


@pytest.mark.parametrize("ends", [(0, ADMIN_RANGE_ENTRIES_MAX), (5, 4), (1, 1 << 40)])
def test_a_range_that_is_none_or_too_long_is_refused(ends: tuple[int, int]) -> None:
    with pytest.raises(BadOption):
        digest(stores(1), *ends)
    with pytest.raises(BadOption):
        glsns(stores(1), *ends)


@pytest.mark.parametrize(("begin", "end"), [(1, 13), (4, 8), (5, 7), (12, 40)])
def test_sums_are_over_the_glsns_in_the_range(begin: int, end: int) -> None:
    told = glsns(stores(1, *TEXTS), begin, end)

    inside = [place for place in PLACES if begin <= place < end]
    assert told.count == len(inside)
    assert int(told.sum) == sum(inside)
    assert int(told.squares) == sum(place * place for place in inside)


def test_streams_that_share_a_topic_leave_no_gap_together() -> None:
    first = glsns(stores(1, *TEXTS), 1, 13)
    others = [place for place in range(1, 13) if place not in PLACES]
    rest = GlsnFacts(
        2, 2, 1, 13, len(others), str(sum(others)), str(sum(place**2 for place in others))
    )

    assert flaw_in_glsns([first, rest], 1, 13) == ""
    assert flaw_in_glsns([first, first], 1, 13)
    assert flaw_in_glsns([first], 1, 13)


def test_a_context_that_does_not_fit_to_the_log_is_a_flaw() -> None:
    twin = Twin()
    twin.become_member()
    twin.append("a", "b")
    twin.order()
    twin.append("c")
    twin.sync()
    store, context = twin.disk.node.streams[STREAM], twin.disk.durable_context(STREAM)

    assert flaw_in_mapping(context, store) == ""
    assert "not" in flaw_in_mapping(replace(context, glsn_begin=Glsn(7)), store)
    assert "no GLSN" in flaw_in_mapping(replace(context, length=3), store)
    assert "the log only" in flaw_in_mapping(replace(context, length=30), store)


def test_room_and_limits_of_this_machine_are_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    room = disk_room(str(tmp_path_factory.mktemp("room")))
    assert 0 < room.free <= room.total
    assert open_files().limit >= open_files().open > 0
