"""An error is called definite only if no try of the call may have had an effect."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.client.fake_nodes import FakeCluster, HangUp, Refuse
from tests.client.test_cluster_errors import with_cluster
from tidelog import AsyncRemoteLog
from tidelog.client.retries import Reconnect
from tidelog.errors import (
    Busy,
    ConnectionLost,
    DiskFull,
    LogError,
    NotLeader,
    RevisionConflict,
    StaleWrite,
    TopicExists,
)
from tidelog.formats.messages import TopicDescription
from tidelog.interface.positions import NamedPosition

DEFINITE: list[LogError] = [
    Busy("too much"),
    DiskFull("no room"),
    NotLeader("nobody leads"),
    StaleWrite("below the boundary"),
]
FOR_EVER = 1000
GROWING = Reconnect(pause_first=0.001, pause_max=0.01, retry_max=100.0, chance=lambda: 0.0)
"""Pauses that double: no try is under way when the deadline comes, but a long pause is."""
named = pytest.mark.parametrize("error", DEFINITE, ids=lambda error: type(error).__name__)


@named
def test_a_numbered_append_that_may_be_in_the_log_did_not_certainly_fail(error: LogError) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script.extend([HangUp(took=True), *[Refuse(error)] * FOR_EVER])
        with pytest.raises(ConnectionLost, match=f"{error}; it may have taken effect") as caught:
            await log.append(b"a", producer="p", sequence=1, timeout=1.0)
        assert not caught.value.definite
        assert cluster.values(1) == [b"a"]

    with_cluster(work, nodes=1, reconnect=GROWING)


@named
def test_a_numbered_append_that_was_only_refused_certainly_failed(error: LogError) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script.extend([Refuse(error)] * FOR_EVER)
        with pytest.raises(type(error), match=str(error)) as caught:
            await log.append(b"a", producer="p", sequence=1, timeout=1.0)
        assert caught.value.definite

    with_cluster(work, nodes=1, reconnect=GROWING)


def test_doubt_outlasts_every_refusal_that_another_try_may_change() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        passing = [Refuse(Busy("too much")), Refuse(NotLeader("nobody leads"))]
        node.script.extend([HangUp(took=True), *passing, *passing, Refuse(DiskFull("no room"))])
        with pytest.raises(ConnectionLost, match="no room"):
            await log.append(b"a", producer="p", sequence=1)
        assert not node.script
        receipt = await log.append(b"a", producer="p", sequence=1)
        assert (receipt.glsn, receipt.duplicate) == (1, True)

    with_cluster(work, nodes=1)


def test_a_position_that_may_be_stored_was_not_certainly_refused() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script.extend([HangUp(took=True), Refuse(Busy("too much"))])
        with pytest.raises(ConnectionLost, match="too much; it may have taken effect"):
            await log.store_position("reader", 7, expected=0)
        assert cluster.positions["reader"] == NamedPosition(7, 1)
        # Nobody stored anything else: what the conflict is about was this call's own doing.
        node.script.append(HangUp(took=True))
        assert await log.store_position("reader", 8, expected=1) == NamedPosition(8, 2)
        with pytest.raises(RevisionConflict):
            await log.store_position("reader", 9, expected=1)

    with_cluster(work, nodes=1)


@pytest.mark.parametrize("others", [1, 2])
def test_a_position_that_was_stored_over_was_not_certainly_refused(others: int) -> None:
    """The answer of the first try is lost, and somebody goes on from what it has stored."""

    class StoredOver(dict[str, NamedPosition]):
        def __setitem__(self, name: str, position: NamedPosition) -> None:
            super().__setitem__(name, NamedPosition(99, position.revision + others))

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        cluster.positions = StoredOver()
        node.script.append(HangUp(took=True))
        with pytest.raises(ConnectionLost, match="faster; it may have taken effect") as caught:
            await log.store_position("reader", 7, expected=0)
        assert not caught.value.definite

    with_cluster(work, nodes=1)


def test_a_position_whose_place_somebody_else_took_was_certainly_refused() -> None:
    class TakenByOthers(dict[str, NamedPosition]):
        def __setitem__(self, name: str, position: NamedPosition) -> None:
            super().__setitem__(name, NamedPosition(99, position.revision))

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        cluster.positions = TakenByOthers()
        node.script.append(HangUp(took=False))
        with pytest.raises(RevisionConflict, match="somebody was faster"):
            await log.store_position("reader", 7, expected=0)

    with_cluster(work, nodes=1)


def test_a_topic_that_was_made_and_got_streams_since_was_not_refused() -> None:
    class Grown(dict[str, TopicDescription]):
        def __setitem__(self, name: str, made: TopicDescription) -> None:
            super().__setitem__(name, replace(made, streams=(*made.streams, 77)))

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        cluster.made = Grown()
        node.script.append(HangUp(took=True))
        topic = await log.create_topic("other", streams=2)
        assert topic.streams == (10, 11, 77)
        # Of what is there with other streams for keys, no try of this call was the maker.
        node.script.append(HangUp(took=True))
        with pytest.raises(TopicExists):
            await log.create_topic("other", streams=3)

    with_cluster(work, nodes=1)
