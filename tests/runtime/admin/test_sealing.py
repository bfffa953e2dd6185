"""Sealing waits for the leader's word that nothing is under way any more, and for no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.runtime.admin.small_cluster import SmallCluster, StoresInMemory
from tidelog.core.order.commands import StreamStatus
from tidelog.errors import DeadlineExceeded, UnknownStream
from tidelog.formats.admin_messages import SealStream
from tidelog.runtime.admin import agent as agent_module
from tidelog.runtime.admin import sealing
from tidelog.types import NodeId

LEADER = NodeId(1)
SHORT = 0.1


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "FACTS_SECONDS", 0.05)
    monkeypatch.setattr(sealing, "LOOK_SECONDS", 0.001)


def with_cluster(work: Callable[[SmallCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        cluster = SmallCluster()
        try:
            await work(cluster)
        finally:
            for agent in cluster.agents.values():
                await agent.stop()

    asyncio.run(run())


async def seal(cluster: SmallCluster, *, asked: int = 2, seconds: float = 5.0) -> None:
    await cluster.agents[NodeId(asked)].answer(SealStream(1, sealed=True), seconds)


async def unseal(cluster: SmallCluster, *, seconds: float = 5.0) -> None:
    await cluster.agent.answer(SealStream(1, sealed=False), seconds)


def status(cluster: SmallCluster) -> StreamStatus:
    return cluster.metadata.order(1).status


@pytest.mark.parametrize("asked", [1, 2])
def test_sealing_changes_the_status_alone_and_is_taken_back_by_unsealing(asked: int) -> None:
    async def work(cluster: SmallCluster) -> None:
        before = cluster.metadata.order(1)
        await seal(cluster, asked=asked)
        sealed = cluster.metadata.order(1)
        assert sealed.status is StreamStatus.SEALED
        assert (sealed.term, sealed.leader, sealed.plan, sealed.ensemble) == (
            before.term,
            before.leader,
            before.plan,
            before.ensemble,
        )
        await seal(cluster, asked=asked)
        assert cluster.metadata.order(1).revision == sealed.revision
        await unseal(cluster)
        opened = cluster.metadata.order(1)
        assert opened.status is StreamStatus.RUNNING
        await unseal(cluster)
        assert cluster.metadata.order(1).revision == opened.revision

    with_cluster(work)


def has_not_heard(store: StoresInMemory) -> None:
    store.told_seal = False


def has_not_ordered_all(store: StoresInMemory) -> None:
    store.ends[1], store.ordered_ends[1] = 6, 5


def tells_of_an_older_term(store: StoresInMemory) -> None:
    store.told_term = 1


@pytest.mark.parametrize("hinder", [has_not_heard, has_not_ordered_all, tells_of_an_older_term])
def test_no_stream_is_sealed_whose_leader(hinder: Callable[[StoresInMemory], None]) -> None:
    """S1: what it took meanwhile would stay without a place, and its client without an answer."""

    async def work(cluster: SmallCluster) -> None:
        cluster.metadata.elect(1, LEADER)  # So that there was an older term.
        store = cluster.stores[LEADER]
        hinder(store)
        with pytest.raises(DeadlineExceeded, match="being sealed"):
            await seal(cluster, seconds=SHORT)
        assert status(cluster) is StreamStatus.SEALING
        store.told_seal = store.told_term = None
        store.ends[1] = store.ordered_ends[1] = 6
        await seal(cluster)
        assert status(cluster) is StreamStatus.SEALED

    with_cluster(work)


def test_a_leader_that_is_silent_is_asked_again() -> None:
    async def work(cluster: SmallCluster) -> None:
        cluster.boxes.silent.add(LEADER)
        sealing_it = asyncio.create_task(seal(cluster))
        while status(cluster) is StreamStatus.RUNNING:
            await asyncio.sleep(0)
        questions = len(cluster.boxes.sent)
        while len(cluster.boxes.sent) < questions + 3:
            await asyncio.sleep(0)
        assert status(cluster) is StreamStatus.SEALING
        cluster.boxes.silent.clear()
        await sealing_it
        assert status(cluster) is StreamStatus.SEALED

    with_cluster(work)


@pytest.mark.parametrize("writes", [0, 1])
def test_sealing_does_not_undo_an_election_that_came_between(writes: int) -> None:
    """The former leader's word does not count any more; that of the new one does."""

    async def work(cluster: SmallCluster) -> None:
        cluster.stores[NodeId(2)].ends[1] = 6
        cluster.metadata.before_ask += [lambda: None] * writes
        cluster.metadata.before_ask.append(lambda: cluster.metadata.elect(1, 2))
        with pytest.raises(DeadlineExceeded):
            await seal(cluster, seconds=SHORT)
        assert status(cluster) is StreamStatus.SEALING
        cluster.stores[NodeId(2)].ordered_ends[1] = 6
        await seal(cluster)
        order = cluster.metadata.order(1)
        assert (order.status, order.leader) == (StreamStatus.SEALED, 2)

    with_cluster(work)


def test_who_unseals_is_told_when_the_leader_takes_appends() -> None:
    """S2, also of a stream that never came to be sealed."""

    async def work(cluster: SmallCluster) -> None:
        store = cluster.stores[LEADER]
        store.ends[1] = 2
        with suppress(DeadlineExceeded):
            await seal(cluster, seconds=SHORT)
        assert status(cluster) is StreamStatus.SEALING
        store.told_seal = True
        with pytest.raises(DeadlineExceeded, match="is unsealed, but no leader"):
            await unseal(cluster, seconds=SHORT)
        assert status(cluster) is StreamStatus.RUNNING
        store.told_seal = None
        await unseal(cluster)

    with_cluster(work)


def test_no_stream_is_sealed_by_the_word_of_an_older_seal() -> None:
    """S3: its leader has not heard yet that the stream was open in between, and takes appends when
    it does."""

    async def work(cluster: SmallCluster) -> None:
        store = cluster.stores[LEADER]
        await seal(cluster)
        store.told_seal, store.told_revision = True, cluster.metadata.order(1).revision
        with pytest.raises(DeadlineExceeded, match="is unsealed, but no leader"):
            await unseal(cluster, seconds=SHORT)
        with pytest.raises(DeadlineExceeded, match="being sealed"):
            await seal(cluster, seconds=SHORT)
        assert status(cluster) is StreamStatus.SEALING
        store.told_seal = store.told_revision = None
        await seal(cluster)
        assert status(cluster) is StreamStatus.SEALED

    with_cluster(work)


def test_who_unseals_is_not_told_so_by_the_word_of_an_older_row() -> None:
    """S2, S3: its leader has not heard yet that the stream was sealed in between."""

    async def work(cluster: SmallCluster) -> None:
        store = cluster.stores[LEADER]
        store.told_seal, store.told_revision = False, cluster.metadata.order(1).revision
        with pytest.raises(DeadlineExceeded, match="being sealed"):
            await seal(cluster, seconds=SHORT)
        with pytest.raises(DeadlineExceeded, match="is unsealed, but no leader"):
            await unseal(cluster, seconds=SHORT)
        assert status(cluster) is StreamStatus.RUNNING
        store.told_seal = store.told_revision = None
        await unseal(cluster)

    with_cluster(work)


def test_a_stream_that_is_not_there_is_named() -> None:
    async def work(cluster: SmallCluster) -> None:
        with pytest.raises(UnknownStream, match="no log stream 7"):
            await cluster.agent.answer(SealStream(7, sealed=True), 5.0)

    with_cluster(work)
