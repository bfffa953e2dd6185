"""What becomes of appends: stages, refusals, repetitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from unittest.mock import patch

import pytest

from tests.runtime.storage_node.scripted import (
    DIRECTOR,
    OTHER,
    STREAM,
    TOPIC,
    Cluster,
    ImageStorage,
    batch,
    running,
    scene,
)
from tidelog.core.order.commands import StreamStatus
from tidelog.core.replica.messages import ChangeKind, PrepareRequest, PrepareResponse, Role
from tidelog.errors import (
    Busy,
    DiskFull,
    LeaderLost,
    NotLeader,
    OutOfOrder,
    ProducerConflict,
    Sealed,
    StorageFailed,
)
from tidelog.interface.records import Ack
from tidelog.runtime.storage_node import StorageNode
from tidelog.runtime.storage_node import node as node_module
from tidelog.types import NO_NODE, NodeId, Term

DAY_SECONDS: Final = 86_400.0


@asynccontextmanager
async def running_without_ticks() -> AsyncIterator[Cluster]:
    """Three storage nodes for which no tick does what nothing else did."""
    with patch.object(node_module, "next_tick", lambda after, *_: after + DAY_SECONDS):
        async with running() as cluster:
            yield cluster


@scene
async def test_an_append_is_acknowledged_with_its_place_in_the_order() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        placed = await cluster.member(1).node.append(STREAM, batch(b"a", b"a"))
        assert (placed.llsn, placed.count, placed.glsn, placed.duplicate) == (1, 2, 1, False)
        placed = await cluster.member(1).node.append(STREAM, batch(b"b"))
        assert (placed.llsn, placed.glsn) == (3, 3)


@scene
async def test_a_lone_append_on_idle_nodes_waits_for_no_timer() -> None:
    async with running_without_ticks() as cluster:
        await cluster.elect(1, (2, 3))
        for number in range(3):
            placed = await cluster.member(1).node.append(STREAM, batch(b"a"))
            assert placed.glsn == number + 1


@scene
async def test_an_append_is_told_before_its_order_is_stored_and_read_when_somebody_asks() -> None:
    async with running_without_ticks() as cluster:
        await cluster.elect(1, (2, 3))
        node = cluster.member(1).node
        placed = await node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        assert (node.ordered_end(STREAM), node.issued_end(TOPIC)) == (2, 2)
        assert node.readable_end(TOPIC, [STREAM]) == 1, "it waits for company on its way to disk"
        again = await node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        assert (again.glsn, again.duplicate) == (placed.glsn, True), "its GLSN is known"
        node.hasten_order()
        await cluster.until(lambda: node.readable_end(TOPIC, [STREAM]) == 2)
        again = await node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        assert again.glsn == placed.glsn


@scene
async def test_who_waits_for_an_answer_has_order_stored_at_once() -> None:
    async with running_without_ticks() as cluster:
        await cluster.elect(1, (2, 3))
        await cluster.member(1).node.append(STREAM, batch(b"a"))
        status = await cluster.status(1)  # What it says is durable, and so is all before it.
        assert status.role is Role.LEADER


@scene
async def test_order_is_stored_at_the_next_tick_if_nothing_else_is() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await cluster.member(1).node.append(STREAM, batch(b"a"))
        nodes = [member.node for member in cluster.members]
        await cluster.until(lambda: all(node.readable_end(TOPIC, [STREAM]) == 2 for node in nodes))


@scene
async def test_each_stage_is_acknowledged_to_who_waits_for_it_alone() -> None:
    async with running(storage=ImageStorage) as cluster:
        await cluster.elect(1, (2, 3))
        cluster.is_cutting = False
        node, disks = cluster.member(1).node, [one.disk for one in cluster.members]
        for disk in disks[1:]:
            disk.gate.clear()
        waits = {ack: node.append(STREAM, batch(b"a"), ack=ack) for ack in Ack}
        stored = await waits[Ack.STORED]
        assert (stored.llsn, stored.glsn) == (1, 0)
        assert not waits[Ack.PROPAGATED].done(), "nobody but the leader has it"
        disks[1].gate.set()
        assert (await waits[Ack.PROPAGATED]).glsn == 0
        assert not waits[Ack.ORDERED].done(), "there was no cut"
        cluster.is_cutting = True
        cluster.cut()
        assert (await waits[Ack.ORDERED]).glsn == 3
        disks[2].gate.set()


@scene
async def test_only_the_leader_takes_appends_and_others_know_who_that_is() -> None:
    async with running() as cluster:
        with pytest.raises(NotLeader):
            cluster.member(1).node.append(STREAM, batch(b"a"))
        await cluster.elect(2, (1, 3))
        await cluster.member(2).node.append(STREAM, batch(b"a"))
        for node in (1, 3):
            with pytest.raises(NotLeader):
                cluster.member(node).node.append(STREAM, batch(b"a"))
            assert cluster.member(node).node.leader_of(STREAM) == 2


@scene
async def test_an_append_whose_predecessor_did_not_arrive_is_refused() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        node = cluster.member(1).node
        with pytest.raises(OutOfOrder):
            node.append(STREAM, batch(b"f"), producer=7, sequence=6, after=5)
        five = node.append(STREAM, batch(b"e"), producer=7, sequence=5)
        six = node.append(STREAM, batch(b"f"), producer=7, sequence=6, after=5)
        assert ((await five).llsn, (await six).llsn) == (1, 2)


@scene
async def test_a_repeated_append_is_answered_with_its_old_place() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        cluster.is_cutting = False
        node = cluster.member(1).node
        first = node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        again = node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        await node.append(STREAM, batch(b"b"), ack=Ack.PROPAGATED)
        assert not again.done(), "it is not ordered either"
        cluster.is_cutting = True
        cluster.cut()
        assert ((await first).glsn, (await first).duplicate) == (1, False)
        assert ((await again).glsn, (await again).duplicate) == (1, True)
        for sequence in range(2, 12):
            await node.append(STREAM, batch(b"c"), producer=7, sequence=sequence)
        with pytest.raises(ProducerConflict):
            node.append(STREAM, batch(b"a"), producer=7, sequence=1)


@scene
async def test_who_waits_for_a_deposed_leader_hears_that_nobody_knows() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        cluster.is_cutting = False
        waiting = cluster.member(1).node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        await cluster.member(1).node.append(STREAM, batch(b"b"), ack=Ack.PROPAGATED)
        cluster.is_cutting = True
        await cluster.elect(2, (1, 3))
        with pytest.raises(LeaderLost):
            await waiting
        again = await cluster.member(2).node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        assert (again.llsn, again.glsn, again.duplicate) == (1, 1, True)


@scene
async def test_a_caller_that_gives_up_leaves_the_append_alone() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        cluster.is_cutting = False
        node = cluster.member(1).node
        given_up = node.append(STREAM, batch(b"a"))
        given_up.cancel()
        cluster.is_cutting = True
        assert (await node.append(STREAM, batch(b"b"))).glsn == 2


@scene
async def test_appends_beyond_the_bound_are_refused_for_a_while() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        node = cluster.member(1).node
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tidelog.runtime.storage_node.appends.NODE_APPENDS_MAX", 2)
            waits = [node.append(STREAM, batch(b"a")) for _ in range(2)]
            with pytest.raises(Busy):
                node.append(STREAM, batch(b"a"))
            await asyncio.gather(*waits)
            await node.append(STREAM, batch(b"a"))


def knows_the_row(cluster: Cluster, node: StorageNode) -> bool:
    return node.status()[0].revision == cluster.machine.order.stream(STREAM).revision


@scene
async def test_a_sealed_stream_takes_no_appends() -> None:
    """What was taken before is answered all the same: it is no new append."""
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        node = cluster.member(1).node
        first = await node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        for status in (StreamStatus.SEALING, StreamStatus.SEALED):
            cluster.mark(status)
            await cluster.until(lambda: knows_the_row(cluster, node))
            assert node.status()[0].is_sealed
            for producer, sequence in ((0, 0), (7, 2), (8, 1)):
                with pytest.raises(Sealed):
                    node.append(STREAM, batch(b"a"), producer=producer, sequence=sequence)
            again = await node.append(STREAM, batch(b"a"), producer=7, sequence=1)
            assert (again.llsn, again.duplicate) == (first.llsn, True)


def test_a_sealed_stream_takes_no_appends_from_a_leader_with_a_view_older_than_the_seal() -> None:
    scene(partial(lead_without_the_newest_view, is_restarted=False))()


def test_a_sealed_stream_takes_no_appends_from_a_leader_that_has_no_view_yet() -> None:
    scene(partial(lead_without_the_newest_view, is_restarted=True))()


async def lead_without_the_newest_view(*, is_restarted: bool) -> None:
    """What it took would be on a quorum, and no cut would ever take it."""
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        first = await cluster.member(1).node.append(STREAM, batch(b"a"), producer=7, sequence=1)
        late = cluster.member(2)
        cluster.blind.add(late.number)
        if is_restarted:
            await late.stop()
            await late.start()
        cluster.mark(StreamStatus.SEALING)
        cluster.mark(StreamStatus.SEALED)
        await cluster.elect(2, (1, 3))
        node = late.node
        for producer, sequence in ((0, 0), (7, 2), (8, 1)):
            with pytest.raises(Busy, match="has not seen its own election"):
                node.append(STREAM, batch(b"b"), producer=producer, sequence=sequence)
        again = await node.append(STREAM, batch(b"a"), producer=7, sequence=1, ack=Ack.STORED)
        assert (again.llsn, again.duplicate) == (first.llsn, True), "it is no new append"
        cluster.blind.clear()
        cluster.tell_view()
        await cluster.until(lambda: node.status()[0].is_sealed)
        with pytest.raises(Sealed):
            node.append(STREAM, batch(b"b"))
        assert node.status()[0].end == 2


@scene
async def test_a_leader_takes_appends_while_it_goes_on_in_a_later_term() -> None:
    """A reconfiguration needs no view: nobody else can have spoken for the stream meanwhile."""
    async with running() as cluster:
        term = await cluster.elect(1, (2, 3))
        cluster.blind.add(cluster.member(1).number)
        later = Term(term + 1)
        prepare = PrepareRequest(
            DIRECTOR, NodeId(1), STREAM, later, ChangeKind.CONTRACT, NodeId(3), NO_NODE
        )
        await cluster.ask(prepare, PrepareResponse)
        await cluster.member(1).node.append(STREAM, batch(b"a"), ack=Ack.PROPAGATED)
        assert cluster.member(1).node.status()[0].term == later


@scene
async def test_a_full_disk_refuses_appends_and_goes_on_when_there_is_room() -> None:
    async with running(storage=ImageStorage) as cluster:
        await cluster.elect(1, (2, 3))
        member = cluster.member(1)
        member.disk.error = DiskFull("no room")
        taken = member.node.append(STREAM, batch(b"a"))
        await cluster.until(lambda: _is_refused(cluster.member(1).node, DiskFull))
        assert not taken.done()
        member.disk.error = None
        assert (await taken).glsn == 1
        await cluster.until(lambda: not _is_refused(cluster.member(1).node, DiskFull))
        assert not member.failures


@scene
async def test_a_failed_sync_ends_the_node_and_is_told_once() -> None:
    async with running(storage=ImageStorage) as cluster:
        await cluster.elect(1, (2, 3))
        member = cluster.member(1)
        member.disk.error = StorageFailed("the sync failed")
        waiting = member.node.append(STREAM, batch(b"a"))
        await cluster.until(lambda: bool(member.failures))
        with pytest.raises(NotLeader):
            member.node.append(STREAM, batch(b"b"))
        assert [type(error) for error in member.failures] == [StorageFailed]
        assert not waiting.done(), "nobody may be told of a success"
        await member.stop()
        with pytest.raises(LeaderLost):
            await waiting


@scene
async def test_what_queues_up_during_a_sync_is_the_next_group_of_all_streams() -> None:
    async with running(streams=(STREAM, OTHER), storage=ImageStorage) as cluster:
        for stream in (STREAM, OTHER):
            await cluster.elect(1, (2, 3), stream)
        member = cluster.member(1)
        member.disk.gate.clear()
        waits = [member.node.append(STREAM, batch(b"a"), ack=Ack.STORED)]
        await cluster.until(lambda: member.node.settled_end(STREAM) is None)
        await asyncio.sleep(0.02)
        for _ in range(5):
            for stream in (STREAM, OTHER):
                waits.append(member.node.append(stream, batch(b"b"), ack=Ack.STORED))
                await asyncio.sleep(0.001)
        before = len(member.disk.groups)
        member.disk.gate.set()
        await asyncio.gather(*waits)
        first, second = member.disk.groups[before : before + 2]
        assert first <= 2, "the sync was under way"
        assert second >= 10, "all that came meanwhile"


@scene
async def test_the_end_for_compare_and_set_is_known_only_when_all_is_ordered() -> None:
    async with running() as cluster:
        assert cluster.member(1).node.settled_end(STREAM) is None, "nobody leads"
        await cluster.elect(1, (2, 3))
        node = cluster.member(1).node
        assert node.settled_end(STREAM) == 1
        waiting = node.append(STREAM, batch(b"a", b"a", b"a"))
        assert node.settled_end(STREAM) is None
        await waiting
        assert node.settled_end(STREAM) is None, "it cannot be read yet"
        await cluster.until(lambda: node.settled_end(STREAM) == 4)  # To ask for it has it stored.
        assert cluster.member(2).node.settled_end(STREAM) is None, "it does not lead"
        assert node.readable_end(TOPIC, [STREAM]) == 4


def _is_refused(node: StorageNode, error: type[Exception]) -> bool:
    try:
        node.append(STREAM, batch(b"x"), producer=99, sequence=1)
    except error:
        return True
    return False
