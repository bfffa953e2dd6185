"""Administration of a cluster, for asyncio: ``log.admin``.

Calls that take long only begin something, or look; what they begin goes on without the client.
``procedures`` has what waits for the end and tells how far it is.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from tidelog.client.session import Session
from tidelog.errors import BadFrame
from tidelog.formats.admin_messages import (
    AbortChange,
    AddNode,
    ChangeEnsemble,
    ChangeMembers,
    ClusterFigures,
    CreateStream,
    MoveLeader,
    NodeFigures,
    PauseOperators,
    RemoveNode,
    SealStream,
    StreamDigest,
    StreamGlsns,
)
from tidelog.formats.messages import CreateTopic, Done, Figures, Number, TopicDescription
from tidelog.interface.cluster_figures import ClusterStatus, DigestFacts, GlsnFacts, NodeFacts

T = TypeVar("T")


class AsyncAdmin:
    """What people do to a cluster.  Every call may be repeated: done twice is done once.

    All but ``create_topic`` and ``create_stream``, which are not repeated when the connection
    breaks.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    # -- looking --------------------------------------------------------------------------------

    async def status(self) -> ClusterStatus:
        """The whole cluster, as the node that is asked sees it."""
        answer = await self._session.ask(ClusterFigures(), Figures)
        return _decoded(answer, ClusterStatus)

    async def node_facts(self, node: int = 0) -> NodeFacts:
        """What a process tells of itself; 0: the one that is asked."""
        return _decoded(await self._session.ask(NodeFigures(node), Figures), NodeFacts)

    async def digest(self, node: int, stream: int, llsn_begin: int, llsn_end: int) -> DigestFacts:
        """What a node holds of a log stream."""
        request = StreamDigest(node, stream, llsn_begin, llsn_end)
        return _decoded(await self._session.ask(request, Figures), DigestFacts)

    async def glsns(self, node: int, stream: int, glsn_begin: int, glsn_end: int) -> GlsnFacts:
        """Which GLSNs a node knows of a log stream."""
        request = StreamGlsns(node, stream, glsn_begin, glsn_end)
        return _decoded(await self._session.ask(request, Figures), GlsnFacts)

    # -- nodes ----------------------------------------------------------------------------------

    async def add_node(self, node: int, *, peers: str, clients: str) -> None:
        """Register a storage node, or tell that it has moved."""
        await self._session.ask(AddNode(node, peers, clients), Done)

    async def remove_node(self, node: int) -> None:
        """Unregister a storage node that holds no replica."""
        await self._session.ask(RemoveNode(node), Done)

    # -- topics and log streams -----------------------------------------------------------------

    async def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log", replicas: int = 0
    ) -> None:
        """Create a topic whose log streams have so many replicas; 0: as is usual."""
        request = CreateTopic(name, streams, versions, replicas)
        await self._session.ask(request, TopicDescription, repeat=False)

    async def create_stream(
        self, topic: str, *, nodes: tuple[int, ...] = (), replicas: int = 0
    ) -> int:
        """Give a topic one more log stream; returns its number."""
        request = CreateStream(topic, nodes, replicas)
        return (await self._session.ask(request, Number, repeat=False)).number

    async def seal(self, stream: int) -> None:
        """Let a log stream take no more appends; returns when all that it took is ordered."""
        await self._session.ask(SealStream(stream, sealed=True), Done)

    async def unseal(self, stream: int) -> None:
        """Let a log stream take appends again; returns when its leader does."""
        await self._session.ask(SealStream(stream, sealed=False), Done)

    async def move_leader(self, stream: int, target: int = 0) -> None:
        """Have the leader elected anew, once; whether ``target`` leads then shows in the status."""
        await self._session.ask(MoveLeader(stream, target), Done)

    async def change_ensemble(
        self,
        stream: int,
        kind: Literal["swap", "expand", "contract"],
        *,
        old: int = 0,
        new: int = 0,
    ) -> None:
        """Begin a change of a log stream's nodes, unless it is under way or done."""
        await self._session.ask(ChangeEnsemble(stream, kind, old, new), Done)

    async def abort_change(self, stream: int) -> None:
        """Undo a change that is not committed yet."""
        await self._session.ask(AbortChange(stream), Done)

    # -- operators and the metadata repository ----------------------------------------------------

    async def pause_operators(self) -> None:
        """Let operators begin nothing by themselves."""
        await self._session.ask(PauseOperators(paused=True), Done)

    async def resume_operators(self) -> None:
        """Let operators go on."""
        await self._session.ask(PauseOperators(paused=False), Done)

    async def add_member(self, node: int, *, peers: str = "") -> None:
        """Add a node to the metadata repository."""
        await self._session.ask(ChangeMembers("add", node, peers), Done)

    async def remove_member(self, node: int) -> None:
        """Remove a node from the metadata repository."""
        await self._session.ask(ChangeMembers("remove", node), Done)

    async def transfer_leadership(self, node: int) -> None:
        """Let another member lead the metadata repository."""
        await self._session.ask(ChangeMembers("transfer", node), Done)


def _decoded(answer: Figures, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.json, type=kind)
    except msgspec.DecodeError as error:
        raise BadFrame(f"a node answered what cannot be read: {error}") from error
