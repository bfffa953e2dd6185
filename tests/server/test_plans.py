"""Compaction plans that clients offer to a node: checked, taken, or refused by name."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from pyroaring import BitMap64

from tests.server.raw import TOPIC, RawClient, Served, run, sealed, serving
from tidelog.errors import PlanRefused, UnknownTopic
from tidelog.formats.batch import encode_puts
from tidelog.formats.compaction_plan import StreamPlan, encode_plan
from tidelog.formats.messages import AppendBatches, Figures, Get, Page, Refused
from tidelog.formats.plan_messages import OfferPlan
from tidelog.interface.figures import PlanOutcome


async def put(client: RawClient, *keys: bytes) -> None:
    body = encode_puts(keys, [b"v"] * len(keys), timestamp_us=1)
    await client.ask(AppendBatches(TOPIC, (1,)), sealed(body))


def plan_for(served: Served, *dead: int) -> StreamPlan:
    store = served.engine.node.streams[1]
    log_id = served.engine.node.manifest.log_id
    return StreamPlan(log_id, 1, store.ordered_end - 1, store.current_boundary(), BitMap64(dead))


async def offer(client: RawClient, data: bytes, topic: str = TOPIC) -> PlanOutcome | str:
    """What became of it, or the name of the refusal."""
    answer = await client.ask(OfferPlan(topic, full=True), data)
    if isinstance(answer, Refused):
        return answer.error
    assert isinstance(answer, Figures)
    (outcome,) = msgspec.json.decode(answer.json, type=tuple[PlanOutcome, ...])
    return outcome


def test_a_node_compacts_by_a_plan_that_is_true() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            await put(client, b"a", b"b", b"a", b"a")
            outcome = await offer(client, encode_plan(plan_for(served, 1, 3)))
            assert isinstance(outcome, PlanOutcome)
            assert (outcome.stream, outcome.claims, outcome.dead, outcome.doubtful) == (1, 2, 2, 0)
            assert list(served.engine.node.streams[1].snapshot.live) == [2, 4]
            found = await client.ask(Get(TOPIC, b"a", 0))
            assert isinstance(found, Page)
            assert found.pieces

    run(main())


def test_what_is_no_plan_or_not_true_is_refused_and_the_connection_goes_on() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            await put(client, b"a", b"b", b"a")
            good = plan_for(served, 1)
            bad = (
                b"",
                bytes(100),
                encode_plan(good)[:-1],
                encode_plan(replace(good, log_id=bytes(16))),
                encode_plan(replace(good, stream=99)),
                encode_plan(replace(good, index=1 << 60)),
                encode_plan(replace(good, dead=BitMap64([1, 2]))),
                # A few bytes that stand for very many entries.
                encode_plan(replace(good, index=1 << 62, dead=BitMap64(range(1, 1 << 32)))),
            )
            for data in bad:
                assert await offer(client, data) == PlanRefused.__name__
            assert await offer(client, encode_plan(good), "nothing") == UnknownTopic.__name__
            assert served.engine.node.streams[1].snapshot.index == 0
            assert isinstance(await offer(client, encode_plan(good)), PlanOutcome)

    run(main())
