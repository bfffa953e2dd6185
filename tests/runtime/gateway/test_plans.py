"""A compaction plan goes to every replica of its log stream, and each decides for itself."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from pyroaring import BitMap64

from tests.runtime.gateway.fake_cluster import FakeCluster, cluster_of
from tests.server.raw import RawClient, run, sealed
from tidelog.errors import PlanRefused
from tidelog.formats.batch import encode_puts
from tidelog.formats.compaction_plan import StreamPlan, encode_plan
from tidelog.formats.messages import AppendBatches, Figures, Receipts
from tidelog.formats.plan_messages import OfferPlan
from tidelog.interface.figures import PlanOutcome
from tidelog.types import NodeId

TOPIC = "events"
TWO, THREE = NodeId(2), NodeId(3)


async def put(client: RawClient, *keys: bytes) -> None:
    body = encode_puts(keys, [b"v"] * len(keys), timestamp_us=1)
    assert isinstance(await client.ask(AppendBatches(TOPIC, (1,)), sealed(body)), Receipts)


def plan_for(cluster: FakeCluster, *dead: int) -> StreamPlan:
    node = cluster.engine.node
    store = node.streams[1]
    index = store.ordered_end - 1
    return StreamPlan(node.manifest.log_id, 1, index, store.current_boundary(), BitMap64(dead))


async def offer(client: RawClient, plan: StreamPlan) -> dict[int, PlanOutcome]:
    answer = await client.ask(OfferPlan(TOPIC), encode_plan(plan))
    assert isinstance(answer, Figures)
    outcomes = msgspec.json.decode(answer.json, type=tuple[PlanOutcome, ...])
    return {outcome.node: outcome for outcome in outcomes}


def test_all_replicas_are_asked_whichever_node_the_plan_came_to() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [1, 2])
            async with cluster.nodes[THREE].client() as client:
                await put(client, b"a", b"b", b"a")
                found = await offer(client, plan_for(cluster, 1))
            assert sorted(found) == [1, 2]
            assert not any(outcome.refused for outcome in found.values())
            assert list(cluster.engine.node.streams[1].snapshot.live) == [2, 3]

    run(main())


def test_a_replica_that_cannot_be_reached_is_told_of_while_others_take_the_plan() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [1, 2])
            async with cluster.nodes[THREE].client() as client:
                await put(client, b"a", b"b", b"a")
                await cluster.nodes[TWO].gateway.stop()
                found = await offer(client, plan_for(cluster, 1))
            assert (found[1].dead, found[1].refused) == (1, "")
            assert found[2].refused.startswith("Unreachable")

    run(main())


def test_a_plan_that_every_replica_refuses_is_refused() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster, cluster.nodes[TWO].client() as client:
            cluster.create(TOPIC)
            cluster.show()
            await put(client, b"a", b"b", b"a")
            plan = plan_for(cluster, 1)
            for wrong in (
                replace(plan, dead=BitMap64([2])),
                replace(plan, log_id=bytes(16)),
                replace(plan, stream=99),
            ):
                refused = await client.refusal(OfferPlan(TOPIC), encode_plan(wrong))
                assert refused.error == PlanRefused.__name__
            assert (await client.refusal(OfferPlan(TOPIC), b"?")).error == PlanRefused.__name__

    run(main())
