"""Positions that readers store under a name, on a node that serves a log of its own."""

from __future__ import annotations

import asyncio

from tests.embedded.logs import open_sim, together
from tests.server.raw import TOPIC, run, serving
from tidelog.embedded.named_positions import position_of, store_position
from tidelog.errors import RevisionConflict
from tidelog.formats.messages import GetPosition, NamedPosition, Refused, SetPosition
from tidelog.testing.disk import SimDisk


def test_a_position_is_kept_over_restarts_and_known_by_its_topic() -> None:
    async def store(disk: SimDisk) -> None:
        async with serving(disk) as served, served.client() as client:
            served.engine.create_topic("other", streams=1, versions="log")
            assert await client.ask(GetPosition(TOPIC, "me")) == NamedPosition(0, 0)
            assert await client.ask(SetPosition(TOPIC, "me", 3, 0)) == NamedPosition(3, 1)
            assert await client.ask(SetPosition(TOPIC, "me", 9, 1)) == NamedPosition(9, 2)
            assert await client.ask(SetPosition("other", "me", 4, 0)) == NamedPosition(4, 1)

    async def look(disk: SimDisk) -> None:
        async with serving(disk) as served, served.client() as client:
            assert await client.ask(GetPosition(TOPIC, "me")) == NamedPosition(9, 2)
            assert await client.ask(GetPosition("other", "me")) == NamedPosition(4, 1)

    disk = SimDisk()
    run(store(disk))
    run(look(disk))


def test_what_nobody_may_store_is_refused() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            for request, error in (
                (SetPosition(TOPIC, "me", 1, 1), "RevisionConflict"),
                (SetPosition(TOPIC, "me", 0, 0), "BadOption"),
                (SetPosition(TOPIC, "", 1, 0), "BadOption"),
                (GetPosition(TOPIC, ""), "BadOption"),
                (GetPosition("nothing", "me"), "UnknownTopic"),
            ):
                assert (await client.refusal(request)).error == error

    run(main())


def test_of_many_connections_that_saw_the_same_one_gets_its_way() -> None:
    async def main() -> None:
        async with serving() as served:

            async def store(glsn: int) -> bool:
                async with served.client() as client:
                    answer = await client.ask(SetPosition(TOPIC, "me", glsn, 0))
                    return not isinstance(answer, Refused)

            stored = await asyncio.gather(*map(store, range(1, 9)))
            assert stored.count(True) == 1

    run(main())


def test_of_many_threads_that_saw_the_same_one_gets_its_way() -> None:
    with open_sim(SimDisk()) as log:
        topic = log.engine.find_topic(log.name)

        def store(number: int) -> int:
            try:
                return store_position(log.engine, topic, "me", number + 1, 0).glsn
            except RevisionConflict:
                return 0

        stored = [glsn for glsn in together(6, store) if glsn]
        assert len(stored) == 1
        assert position_of(log.engine, topic, "me") == NamedPosition(stored[0], 1)
