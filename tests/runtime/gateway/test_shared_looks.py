"""Looks at the metadata that several who wait for them share."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.server.raw import run, until
from tidelog.errors import DeadlineExceeded, LogClosed
from tidelog.runtime.gateway.shared_looks import SharedLooks
from tidelog.runtime.gateway.surroundings import Metadata

LONG = 30.0


class SlowMetadata:
    """Answers each read with its number, when the test says so."""

    def __init__(self) -> None:
        self.reads: list[asyncio.Future[int]] = []

    async def read(self, *, seconds: float) -> int:
        self.reads.append(asyncio.get_running_loop().create_future())
        number = len(self.reads)
        await self.reads[-1]
        return number

    def answer(self, error: Exception | None = None) -> None:
        if error is None:
            self.reads[-1].set_result(0)
        else:
            self.reads[-1].set_exception(error)


def shared(metadata: SlowMetadata, seconds: float = LONG) -> SharedLooks:
    return SharedLooks(cast(Metadata, metadata), seconds=seconds)


def looking(looks: SharedLooks, count: int, seconds: float = LONG) -> list[asyncio.Task[int]]:
    async def look() -> int:
        return cast(int, cast(object, await looks.look(seconds)))

    return [asyncio.create_task(look()) for _ in range(count)]


def test_who_comes_during_a_look_shares_the_next_one() -> None:
    """K1: the one under way may have been answered before an append that was acknowledged."""

    async def main() -> None:
        metadata = SlowMetadata()
        looks = shared(metadata)
        first = looking(looks, 3)
        await until(lambda: len(metadata.reads) == 1, "the first look")
        later = looking(looks, 5)
        await asyncio.sleep(0)
        metadata.answer()
        assert await asyncio.gather(*first) == [1] * 3
        assert not any(one.done() for one in later)
        await until(lambda: len(metadata.reads) == 2, "the second look")
        metadata.answer()
        assert await asyncio.gather(*later) == [2] * 5
        await looks.close()

    run(main())


def test_a_look_that_failed_is_told_to_all_who_share_it_and_to_nobody_else() -> None:
    async def main() -> None:
        metadata = SlowMetadata()
        looks = shared(metadata)
        first = looking(looks, 2)
        await until(lambda: len(metadata.reads) == 1, "the first look")
        (later,) = looking(looks, 1)
        metadata.answer(DeadlineExceeded("cut off"))
        for one in first:
            with pytest.raises(DeadlineExceeded):
                await one
        await until(lambda: len(metadata.reads) == 2, "the second look")
        metadata.answer()
        assert await later == 2
        await looks.close()

    run(main())


def test_who_gives_up_takes_no_look_from_the_others() -> None:
    async def main() -> None:
        metadata = SlowMetadata()
        looks = shared(metadata)
        (hasty,), (patient, cancelled) = looking(looks, 1, 0.01), looking(looks, 2)
        await until(lambda: len(metadata.reads) == 1, "the look")
        with pytest.raises(DeadlineExceeded):
            await hasty
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        metadata.answer()
        assert await patient == 1
        await looks.close()

    run(main())


def test_looks_end_with_the_node() -> None:
    async def main() -> None:
        metadata = SlowMetadata()
        looks = shared(metadata)
        (first,) = looking(looks, 1)
        await until(lambda: len(metadata.reads) == 1, "the look")
        (later,) = looking(looks, 1)
        await asyncio.sleep(0)
        await looks.close()
        for one in (first, later, *looking(looks, 1)):
            with pytest.raises(LogClosed):
                await one
        assert len(metadata.reads) == 1

    run(main())
