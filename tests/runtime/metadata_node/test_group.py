"""Three metadata nodes over real sockets and files: asking, reading, dying, coming back."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable
from functools import partial
from pathlib import Path

import pytest

from tests.net.pairs import run, until
from tests.runtime.metadata_node.group import SECONDS, Group, Member, group_of
from tidelog.core.metadata.commands import NameMember, RegisterNode
from tidelog.core.metadata.view import MetadataView
from tidelog.core.metadata.wishes import paused, registered
from tidelog.core.order.commands import CreateTopic, NewStream, RetainTopic
from tidelog.errors import BadOption, DeadlineExceeded, NotLeader, TopicExists
from tidelog.limits import KIB
from tidelog.runtime.metadata_changes import bring_about
from tidelog.runtime.metadata_client import POLL_SECONDS
from tidelog.runtime.metadata_topics import add_streams, create_topic
from tidelog.storage.os_vfs import OsFile, OsVfs
from tidelog.types import Glsn, NodeId, StreamId, TopicId


async def with_topic(group: Group) -> None:
    client = await group.client(9)
    for node in (101, 102, 103):
        await client.ask(
            RegisterNode(NodeId(node), f"tcp://h:{node} tcp://c:{node}"), seconds=SECONDS
        )
    await create_topic(client, "events", streams=2, seconds=SECONDS)


def is_settled(member: Member) -> bool:
    """Whether a member has everything durable that there will be."""
    status = member.node.status()
    are_named = len(member.node.view().member_addresses) == 3
    are_assigned = all(one.collector for one in member.node.view().nodes)
    is_durable = status.durable == status.last_index == status.applied
    return are_named and are_assigned and is_durable


def test_a_change_asked_of_any_member_is_made_and_shows_in_every_linearizable_read(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            for number in (1, 2, 3):
                client = await group.client(10 + number, ask=[number])
                node = NodeId(100 + number)
                await client.ask(RegisterNode(node, f"tcp://host:{number}"), seconds=SECONDS)
                for other in (1, 2, 3):
                    reader = await group.client(10 * number + other + 100, ask=[other])
                    view = await reader.read(seconds=SECONDS)
                    assert node in [one.node for one in view.nodes]

    run(main())


def test_a_refusal_comes_back_as_its_typed_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            await with_topic(group)
            client = await group.client(11)
            again = CreateTopic(TopicId(5), (NewStream(StreamId(9), (NodeId(101),)),), "events")
            with pytest.raises(TopicExists, match="events"):
                await client.ask(again, seconds=SECONDS)
            with pytest.raises(TopicExists):
                await create_topic(client, "events", streams=1, seconds=SECONDS)

    run(main())


def test_everything_survives_the_death_of_the_leader_and_of_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            await with_topic(group)
            client = await group.client(11)
            old = await group.leader()
            await old.stop()
            await client.ask(RegisterNode(NodeId(104)), seconds=SECONDS)
            assert (await group.leader()).id != old.id
            await old.restart()
            await until(lambda: NodeId(104) in old.node.repository.machine.nodes, "catching up")
            for member in group.members.values():
                await member.stop()
            for member in group.members.values():
                await member.restart()
            view = await client.read(seconds=SECONDS)
            assert [one.node for one in view.nodes] == [101, 102, 103, 104]
            assert [topic.name for topic in view.topics] == ["events"]

    run(main())


def test_who_watches_is_told_of_changes_without_asking(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            await with_topic(group)
            watcher, other = await group.client(11), await group.client(12)
            told: list[MetadataView] = []
            watcher.on_view(told.append)
            await until(lambda: bool(told), "a first view")
            begin, loop = len(told), asyncio.get_running_loop()
            since = loop.time()
            await other.ask(RetainTopic(TopicId(1), Glsn(1), 1, 7), seconds=SECONDS)
            await until(lambda: len(told) > begin, "the change was told")
            assert loop.time() - since < POLL_SECONDS, "not by the next poll"
            assert told[-1].topics[0].boundary == (1 << 64) + 7
            assert [view.age for view in told] == sorted(view.age for view in told)
            await bring_about(other, partial(paused, is_paused=True), seconds=SECONDS)
            await until(lambda: told[-1].is_paused, "paused")

    run(main())


def test_an_idle_group_writes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            await with_topic(group)
            members = list(group.members.values())
            await until(
                lambda: all(is_settled(one) for one in members), "all that is to be written"
            )
            before = [one.node.syncs for one in members]
            heard = members[0].post.counters.received
            await until(lambda: members[0].post.counters.received > heard + 40, "many heartbeats")
            assert [one.node.syncs for one in members] == before

    run(main())


def test_a_member_joins_leads_and_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            await with_topic(group)
            client = await group.client(11, ask=[1, 2, 3])
            new = await group.join(4)
            leader = await group.leader_of(1, 2, 3)
            follower = next(one for one in group.members.values() if one.id not in (4, leader.id))
            with pytest.raises(NotLeader, match=f"node {leader.id} leads"):
                await follower.node.add_member(NodeId(4), seconds=SECONDS, address=new.address)
            await leader.node.add_member(NodeId(4), seconds=SECONDS, address=new.address)
            await leader.node.add_member(NodeId(4), seconds=SECONDS, address=new.address)
            await leader.node.transfer(NodeId(4), seconds=SECONDS)
            assert (await group.leader()).id == 4
            await new.node.remove_member(leader.id, seconds=SECONDS)
            await leader.stop()
            del group.members[leader.id]
            wish = partial(registered, node=NodeId(104), address="")
            await bring_about(client, wish, seconds=SECONDS)
            await until(lambda: client.members == new.node.view().members, "the new members")
            assert NodeId(4) in client.members
            assert leader.id not in client.members

    run(main())


def test_a_member_is_added_and_removed_though_somebody_else_names_it_first(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            leader, new = await group.leader(), await group.join(4)
            machine, node = leader.node.repository.machine, NodeId(4)

            def another_name(address: str) -> Awaitable[None]:
                return leader.node.ask(NameMember(node, address, machine.member_revision(node)))

            adding = leader.node.add_member(node, seconds=SECONDS, address=new.address)
            await asyncio.gather(another_name("tcp://elsewhere:1"), adding)
            assert machine.members[node].address == new.address
            removing = leader.node.remove_member(node, seconds=SECONDS)
            await asyncio.gather(another_name("tcp://elsewhere:2"), removing)
            assert node not in machine.members

    run(main())


def test_who_ask_at_once_hold_nobody_up_and_all_get_their_wish(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            clients = [await group.client(20 + number) for number in range(4)]
            await asyncio.gather(
                *(
                    bring_about(
                        client,
                        partial(registered, node=NodeId(100 + number % 3), address=f"{number}"),
                        seconds=SECONDS,
                    )
                    for number, client in enumerate(clients)
                ),
                *(
                    bring_about(client, partial(paused, is_paused=bool(number)), seconds=SECONDS)
                    for number, client in enumerate(clients)
                ),
            )
            view = await clients[0].read(seconds=SECONDS)
            assert [one.node for one in view.nodes] == [100, 101, 102]
            assert view.nodes[1].address == "1"

    run(main())


def test_without_a_majority_a_change_is_unknown_and_a_read_fails(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            await with_topic(group)
            client = await group.client(11)
            await group.members[NodeId(1)].stop()
            await group.members[NodeId(2)].stop()
            with pytest.raises(DeadlineExceeded):
                await client.ask(RegisterNode(NodeId(104)), seconds=0.4)
            with pytest.raises(DeadlineExceeded):
                await client.read(seconds=0.4)

    run(main())


def test_two_who_create_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of(tmp_path) as group:
            await with_topic(group)
            clients = [await group.client(20 + number) for number in range(3)]
            made = await asyncio.gather(
                *(
                    create_topic(client, f"topic {number}", streams=3, seconds=SECONDS)
                    for number, client in enumerate(clients)
                )
            )
            assert len({topic.topic for topic in made}) == 3
            grown = await asyncio.gather(
                *(add_streams(one, "events", streams=2, seconds=SECONDS) for one in clients)
            )
            assert max(len(topic.streams) for topic in grown) == 8
            view = await clients[0].read(seconds=SECONDS)
            streams = [stream for topic in view.topics for stream in topic.streams]
            assert len(set(streams)) == len(streams) == 17

    run(main())


class CrowdedVfs(OsVfs):
    """A disk on which no new file has room while it is full."""

    is_full = False

    def create(self, path: str, *, once: bool = False) -> OsFile:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no room", path)
        return super().create(path, once=once)


def test_a_leader_whose_disk_is_full_hands_over_and_catches_up_when_there_is_room(
    tmp_path: Path,
) -> None:
    """What the others commit would else wait in its memory, without an end."""

    async def main() -> None:
        async with group_of(tmp_path) as group:
            crowded, disk = group.members[NodeId(1)], CrowdedVfs()
            await group.leader()
            await crowded.stop()
            crowded.vfs = disk
            await crowded.restart()
            leader = await group.leader()
            if leader is not crowded:
                await leader.node.transfer(crowded.id, seconds=SECONDS)
            disk.is_full = True
            client = await group.client(9)
            # Refused, but in the log: a few of them fill a file.
            large = RegisterNode(NodeId(101), "x" * (400 * KIB))
            for _ in range(15):
                with pytest.raises((BadOption, DeadlineExceeded)):
                    await client.ask(large, seconds=SECONDS)
            await until(lambda: not crowded.node.is_leader, "another leader")
            assert (await group.leader()) is not crowded
            await bring_about(
                client, partial(registered, node=NodeId(101), address="tcp://h:1"), seconds=SECONDS
            )
            disk.is_full = False
            await until(lambda: NodeId(101) in crowded.node.repository.machine.nodes, "the rest")
            await until(lambda: is_settled(crowded), "a durable log")

    run(main())
