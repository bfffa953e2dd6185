"""Metadata nodes and their clients in one event loop, over real sockets and real files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.net.pairs import until
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.security import ClientSecurity, ServerSecurity
from tidelog.runtime.metadata_client import MetadataClient
from tidelog.runtime.metadata_node import MetadataNode, MetadataTiming
from tidelog.runtime.post import Post
from tidelog.storage.vfs import Vfs
from tidelog.types import NO_NODE, NodeId

CLUSTER = b"a cluster of ten"
QUICK = MetadataTiming(tick=0.01, heartbeat=0.02, election=0.06, takeover=0.06, resend=0.04)
"""For tests that wait for elections."""
SECONDS = 10.0


def new_post(node: int, *, port: int = 0, cluster: bytes = CLUSTER, token: str = "") -> Post:
    tokens = frozenset({token}) if token else frozenset[str]()
    return Post(
        cluster_id=cluster,
        node=NodeId(node),
        endpoints=[TcpEndpoint("127.0.0.1", port)],
        advertise="",
        server_security=ServerSecurity(tokens=tokens),
        client_security=ClientSecurity(token=token),
    )


@asynccontextmanager
async def listening(post: Post) -> AsyncIterator[str]:
    """Let a post listen; the address at which it does."""
    (bound,) = await post.start()
    try:
        yield str(bound)
    finally:
        await post.stop()


class Member:
    """One process with a metadata node."""

    def __init__(self, group: Group, node: NodeId, first: tuple[NodeId, ...] | None) -> None:
        self.group = group
        self.id = node
        self.first = first
        self.port = 0
        self.post: Post
        self.node: MetadataNode
        self.failures: list[BaseException] = []
        self.is_up = False
        self.vfs: Vfs | None = None

    async def bind(self) -> None:
        """Listen, so that the others can be told where."""
        self.post = new_post(self.id, port=self.port)
        (bound,) = await self.post.start()
        assert isinstance(bound, TcpEndpoint)
        self.port = bound.port

    async def start(self) -> None:
        """Begin a life."""
        for other in self.group.members.values():
            if other.port:
                self.post.learn(other.id, other.address)
        self.node = MetadataNode(
            node=self.id,
            cluster_id=CLUSTER,
            directory=str(self.group.path / str(self.id)),
            first_members=self.first,
            post=self.post,
            timing=self.group.timing,
            vfs=self.vfs,
            on_failure=self.failures.append,
        )
        await self.node.start()
        self.is_up = True

    async def stop(self) -> None:
        """End it: the others see all connections break at once."""
        if self.is_up:
            self.is_up = False
            await self.post.stop()
            await self.node.stop()

    async def restart(self) -> None:
        await self.bind()
        await self.start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"


class Group:
    """A metadata repository, and processes that ask it."""

    def __init__(self, path: Path, timing: MetadataTiming) -> None:
        self.path = path
        self.timing = timing
        self.members: dict[NodeId, Member] = {}
        self._clients: list[tuple[Post, MetadataClient]] = []

    async def start(self, nodes: Sequence[int]) -> None:
        first = tuple(NodeId(node) for node in nodes)
        for node in first:
            self.members[node] = Member(self, node, first)
            await self.members[node].bind()
        for member in self.members.values():
            await member.start()

    async def join(self, node: int) -> Member:
        """Start a node that is to become a member."""
        member = self.members[NodeId(node)] = Member(self, NodeId(node), ())
        await member.bind()
        await member.start()
        return member

    async def client(self, node: int, ask: Sequence[int] = ()) -> MetadataClient:
        """A process of its own that asks these members, or all."""
        post = new_post(node)
        await post.start()
        for member in self.members.values():
            post.learn(member.id, member.address)
        client = MetadataClient(post, [NodeId(one) for one in ask] or list(self.members))
        await client.start()
        self._clients.append((post, client))
        return client

    async def leader(self) -> Member:
        """Who leads, once all that run agree."""
        await until(lambda: self._agreed() != NO_NODE, "one leader")
        return self.members[self._agreed()]

    async def leader_of(self, *nodes: int) -> Member:
        """Who leads, once these agree."""
        some = tuple(map(NodeId, nodes))
        await until(lambda: self._agreed(some) != NO_NODE, "one leader")
        return self.members[self._agreed(some)]

    def _agreed(self, some: Sequence[NodeId] = ()) -> NodeId:
        asked = [self.members[node] for node in some or self.members]
        leaders = {one.node.leader for one in asked if one.is_up}
        leader = leaders.pop() if len(leaders) == 1 else NO_NODE
        return leader if leader in self.members and self.members[leader].is_up else NO_NODE

    async def stop(self) -> None:
        for post, client in self._clients:
            await client.stop()
            await post.stop()
        await asyncio.gather(*(member.stop() for member in self.members.values()))
        assert not [one.failures for one in self.members.values() if one.failures]


@asynccontextmanager
async def group_of(
    path: Path, nodes: Sequence[int] = (1, 2, 3), timing: MetadataTiming = QUICK
) -> AsyncIterator[Group]:
    group = Group(path, timing)
    try:
        await group.start(nodes)
        yield group
    finally:
        await group.stop()
