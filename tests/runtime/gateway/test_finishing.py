"""Turns among half done publications: bounded, fair, and ended with whoever gives them."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.raw import run, until
from tidelog.errors import PartlyAppended
from tidelog.runtime.gateway.finishing import AT_ONCE, Finishing

WAIT_SECONDS = 20.0
A_MOMENT = 0.01


class Publications:
    """Those that are stuck end when they are told to."""

    def __init__(self, *stuck: bytes) -> None:
        self.ends = {key: asyncio.Event() for key in stuck}
        self.begun: list[bytes] = []
        self.under_way: list[bytes] = []

    async def resume(self, key: bytes) -> None:
        assert key not in self.under_way, "one turn at a time"
        self.begun.append(key)
        self.under_way.append(key)
        try:
            if key in self.ends:
                await self.ends[key].wait()
                raise PartlyAppended(f"{key!r} is stuck")
        finally:
            self.under_way.remove(key)


def keys_of(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_those_that_are_stuck_do_not_keep_the_others() -> None:
    async def main() -> None:
        stuck = keys_of(AT_ONCE - 1)
        publications = Publications(*stuck)
        finishing = Finishing(publications.resume)
        others = [b"a", b"b", b"c"]
        assert await finishing.go_through([*stuck, *others], A_MOMENT) is None
        assert publications.begun[-3:] == others
        assert publications.under_way == stuck
        for end in publications.ends.values():
            end.set()
        trouble = await finishing.go_through(stuck, WAIT_SECONDS)
        assert isinstance(trouble, PartlyAppended)

    run(main())


def test_no_more_than_so_many_are_under_way_and_who_waits_longest_is_next() -> None:
    async def main() -> None:
        stuck = keys_of(AT_ONCE)
        publications = Publications(*stuck)
        finishing = Finishing(publications.resume)
        await finishing.go_through([*stuck, b"a"], A_MOMENT)
        await finishing.go_through([*reversed(stuck), b"b", b"a"], A_MOMENT)
        assert publications.begun == stuck, "the others wait"
        publications.ends[stuck[3]].set()
        await until(lambda: publications.begun == [*stuck, b"a", b"b"], "both had their turn")
        # What gave up has to ask anew, and comes behind those that wait.
        publications.ends[stuck[3]].clear()
        await finishing.go_through([stuck[3], b"c"], A_MOMENT)
        assert publications.begun[-1] == stuck[3]
        publications.ends[stuck[0]].set()
        await until(lambda: publications.begun[-1] == b"c", "the next one has its turn")
        await finishing.close()

    run(main())


def test_nothing_is_left_when_it_is_closed() -> None:
    async def main() -> None:
        stuck = keys_of(AT_ONCE)
        publications = Publications(*stuck)
        finishing = Finishing(publications.resume)
        waiting = asyncio.create_task(finishing.go_through([*stuck, b"a"], WAIT_SECONDS))
        await until(lambda: publications.under_way == stuck, "all places are taken")
        await finishing.close()
        assert await asyncio.wait_for(waiting, WAIT_SECONDS) is None
        assert publications.under_way == []
        assert publications.begun == stuck
        assert "tidelog-finish" not in [task.get_name() for task in asyncio.all_tasks()]

    run(main())


def test_a_mistake_is_told_and_keeps_nobody() -> None:
    async def resume(key: bytes) -> None:
        if key == b"bad":
            raise KeyError(key)
        done.append(key)

    done: list[bytes] = []

    async def main() -> None:
        trouble = await Finishing(resume).go_through([b"bad", b"good"], WAIT_SECONDS)
        assert done == [b"good"]
        with pytest.raises(KeyError):
            raise trouble or AssertionError("nothing was told")

    run(main())
