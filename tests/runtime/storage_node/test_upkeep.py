"""Flushes, snapshots, compaction and retention under replicas that go on."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.runtime.storage_node.scripted import (
    STREAM,
    TOPIC,
    Cluster,
    FileStorage,
    Member,
    batch,
    running,
    scene,
)
from tidelog.core.order.commands import RetainTopic
from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import CorruptData
from tidelog.formats.batch import BatchBody, encode_entries
from tidelog.formats.entry import Entry, Kind
from tidelog.types import Glsn

VALUE = b"v" * 1000


def files_of(member: Member) -> FileStorage:
    assert isinstance(member.storage, FileStorage)
    return member.storage


async def fill_wal(cluster: Cluster, leader: int, numbers: range) -> None:
    """Append with one producer, up to 16 at once; a WAL file holds about 60 of them."""
    node = cluster.member(leader).node
    for begin in numbers[::16]:
        await asyncio.gather(
            *(
                node.append(STREAM, batch(b"%d " % number + VALUE), producer=7, sequence=number + 1)
                for number in range(begin, min(begin + 16, numbers.stop))
            )
        )


def has_values(member: Member, count: int) -> bool:
    return len(member.storage.values(STREAM)) == count


@scene
async def test_a_rolled_wal_is_flushed_and_everything_is_still_there() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(150))
        for member in cluster.members:
            maintenance = member.node.maintenance
            await cluster.until(partial(_is_flushed, maintenance))
            await cluster.until(partial(has_values, member, 150))


def _is_flushed(maintenance: Maintenance) -> bool:
    return maintenance.flushes > 0


@scene
async def test_a_follower_that_lacks_flushed_entries_learns_their_producers_too() -> None:
    """Batches that were joined do not tell who appended them: the follower is filled up."""
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(20))
        await cluster.member(3).stop()
        node = cluster.member(1).node
        await fill_wal(cluster, 1, range(20, 200))
        await node.roll()
        await node.append(STREAM, batch(b"last"), producer=8, sequence=1)
        settled = files_of(cluster.member(1)).disk.settled_index
        await cluster.until(lambda: settled(STREAM) >= 200)
        for one in (1, 2):
            await cluster.member(one).stop()
            await cluster.member(one).start()
        await cluster.member(3).start()
        await cluster.elect(1, (2, 3))
        await cluster.member(1).append(b"more")
        await cluster.until(lambda: len(cluster.member(3).storage.values(STREAM)) == 202)
        await cluster.elect(3, (1, 2))
        again = await cluster.member(3).node.append(
            STREAM, batch(b"199 " + VALUE), producer=7, sequence=200
        )
        assert again.duplicate
        assert again.glsn > 0


def is_trimmed(member: Member) -> bool:
    """A trim moves to where a batch begins: joined ones may be kept for a part."""
    return 1 < member.node.status()[0].first <= 101


@scene
async def test_a_trim_of_the_metadata_is_carried_out_on_every_node() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(150))
        cluster.apply(RetainTopic(TOPIC, Glsn(101)))
        cluster.tell_view()
        for member in cluster.members:
            await cluster.until(partial(is_trimmed, member))
            assert member.storage.values(STREAM)[-1].startswith(b"149 ")
        await cluster.member(1).append(b"more")


@scene
async def test_a_node_that_was_down_trims_when_it_comes_back() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(10))
        await cluster.member(3).stop()
        cluster.apply(RetainTopic(TOPIC, Glsn(6)))
        cluster.tell_view()
        await cluster.member(3).start()
        await cluster.until(lambda: cluster.member(3).node.status()[0].first == 6)


@scene
async def test_a_replica_that_is_filled_up_while_files_are_flushed_becomes_complete() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(100))
        await cluster.member(3).stop()
        cluster.member(3).storage.wipe()
        await cluster.member(3).start()
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(100, 250))
        await cluster.until(partial(has_values, cluster.member(3), 250))
        assert (await cluster.status(3)).is_complete


@scene
async def test_a_replica_with_a_damaged_segment_is_filled_up_though_its_leader_has_flushed() -> (
    None
):
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(150))
        member, files = cluster.member(3), files_of(cluster.member(3)).files
        await cluster.until(partial(_is_flushed, member.node.maintenance))
        await cluster.until(partial(has_values, member, 150))
        await member.stop()
        await fill_wal(cluster, 1, range(150, 300))
        segment = min(path for path in files.files() if path.endswith(".segment"))
        files.flip_bit(segment, len(files.files()[segment]) - 20, 3)
        await cluster.member(1).stop()  # It would fill the replica up before anybody looks.
        await member.start()
        assert not (await cluster.status(3)).is_complete
        await cluster.member(1).start()
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(300, 400))
        await cluster.until(partial(has_values, member, 400))
        assert (await cluster.status(3)).is_complete


@scene
async def test_a_follower_in_which_a_read_finds_damage_is_filled_up_anew() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await fill_wal(cluster, 1, range(150))
        member, files = cluster.member(3), files_of(cluster.member(3)).files
        await cluster.until(partial(_is_flushed, member.node.maintenance))
        await cluster.until(partial(has_values, member, 150))
        segment = min(path for path in files.files() if path.endswith(".segment"))
        files.flip_bit(segment, 5000, 3)
        with pytest.raises(CorruptData):
            member.storage.values(STREAM)
        member.node.report_damage(STREAM, "a test has flipped a bit")
        await cluster.until(lambda: member.node.readable_end(TOPIC, [STREAM]) is None)
        await cluster.until(lambda: member.node.readable_end(TOPIC, [STREAM]) == 151)
        assert has_values(member, 150)
        assert (await cluster.member(1).append(b"more")).glsn == 151
        await cluster.until(lambda: member.node.readable_end(TOPIC, [STREAM]) == 152)


@scene
async def test_a_leader_in_which_a_read_finds_damage_goes_on() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await cluster.member(1).append(b"a")
        cluster.member(1).node.report_damage(STREAM, "a test says so")
        assert (await cluster.member(1).append(b"b")).glsn == 2


def puts(key: int, value: bytes) -> BatchBody:
    """A batch that puts one key."""
    return encode_entries([Entry(Kind.PUT, value, key=b"key %d" % key)])


@scene
async def test_a_replica_is_filled_up_with_what_compaction_left_of_its_leader() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        leader, member = cluster.member(1), cluster.member(3)
        for turn in range(20):
            await asyncio.gather(
                *(
                    leader.node.append(STREAM, puts(key, b"%d of %d " % (turn, key) + VALUE))
                    for key in range(6)
                )
            )
        await leader.node.roll()
        store = leader.node.node_store.streams[STREAM]
        await asyncio.to_thread(leader.node.maintenance.flush_rolled)
        await asyncio.to_thread(leader.node.maintenance.snapshot, store)
        await asyncio.to_thread(leader.node.maintenance.major, store, full=True)
        live = leader.storage.values(STREAM)
        assert 6 <= len(live) < 120, "most of it is dead"
        await member.stop()
        member.storage.wipe()
        await member.start()
        await cluster.elect(1, (2, 3))
        await leader.append(b"more")
        await cluster.until(lambda: member.node.readable_end(TOPIC, [STREAM]) == 122)
        assert member.storage.values(STREAM) == [*live, b"more"]
        await cluster.elect(3, (1, 2))
        assert (await member.append(b"last")).llsn == 122
