"""Administration of a cluster, for callers that block: ``log.admin``, and ``connect_admin``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from tidelog.client import procedures, verification
from tidelog.client.admin import AsyncAdmin
from tidelog.client.loop_thread import LoopThread
from tidelog.client.own_session import OwnSession, open_session
from tidelog.client.procedures import Kind, Step
from tidelog.client.session import Session
from tidelog.client.verification import Checked
from tidelog.interface.cluster_figures import ClusterStatus, DigestFacts, GlsnFacts, NodeFacts
from tidelog.net.endpoint import parse_url
from tidelog.net.security import ClientSecurity

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, TypeVar

    T = TypeVar("T")

CLIENT = "tidelog-admin"


class Admin:
    """What people do to a cluster.  Every call may be repeated: done twice is done once.

    Calls that take long are iterators: each item tells how far they are.  Who stops to iterate
    leaves what is under way going on, and may come back to it by the same call.
    """

    def __init__(self, admin: AsyncAdmin, thread: LoopThread) -> None:
        self._admin = admin
        self._thread = thread

    # -- looking --------------------------------------------------------------------------------

    def status(self) -> ClusterStatus:
        """The whole cluster, as the node that is asked sees it."""
        return self._run(self._admin.status())

    def node_facts(self, node: int = 0) -> NodeFacts:
        """What a process tells of itself; 0: the one that is asked."""
        return self._run(self._admin.node_facts(node))

    def digest(self, node: int, stream: int, llsn_begin: int, llsn_end: int) -> DigestFacts:
        """What a node holds of a log stream."""
        return self._run(self._admin.digest(node, stream, llsn_begin, llsn_end))

    def glsns(self, node: int, stream: int, glsn_begin: int, glsn_end: int) -> GlsnFacts:
        """Which GLSNs a node knows of a log stream."""
        return self._run(self._admin.glsns(node, stream, glsn_begin, glsn_end))

    def verify(self) -> Iterator[Checked]:
        """Compare all replicas with one another, while appends go on."""
        return self._iterate(verification.verify(self._admin))

    # -- nodes ----------------------------------------------------------------------------------

    def add_node(self, node: int, *, peers: str, clients: str) -> None:
        """Register a storage node, or tell that it has moved."""
        self._run(self._admin.add_node(node, peers=peers, clients=clients))

    def drain(self, node: int, *, contract: bool = False) -> Iterator[Step]:
        """Take all leaderships and replicas from a node, to others that hold the fewest.

        ``contract``: where no other node is left for a replica, do without it.
        """
        return self._iterate(procedures.drain(self._admin, node, contract=contract))

    def remove_node(self, node: int) -> None:
        """Unregister a storage node that holds no replica."""
        self._run(self._admin.remove_node(node))

    # -- log streams ----------------------------------------------------------------------------

    def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log", replicas: int = 0
    ) -> None:
        """Create a topic whose log streams have so many replicas; 0: as is usual."""
        self._run(
            self._admin.create_topic(name, streams=streams, versions=versions, replicas=replicas)
        )

    def create_stream(self, topic: str, *, nodes: tuple[int, ...] = (), replicas: int = 0) -> int:
        """Give a topic one more log stream; returns its number."""
        return self._run(self._admin.create_stream(topic, nodes=nodes, replicas=replicas))

    def seal(self, stream: int) -> None:
        """Let a log stream take no more appends; returns when all that it took is ordered."""
        self._run(self._admin.seal(stream))

    def unseal(self, stream: int) -> None:
        """Let a log stream take appends again; returns when its leader does."""
        self._run(self._admin.unseal(stream))

    def move_leader(self, stream: int, target: int = 0) -> Iterator[Step]:
        """Elect until ``target`` leads, or, without one, another node than now."""
        return self._iterate(procedures.move_leader(self._admin, stream, target=target))

    def swap(self, stream: int, old: int, new: int) -> Iterator[Step]:
        """Replace a replica by one on another node."""
        return self._change(stream, "swap", old, new)

    def expand(self, stream: int, new: int) -> Iterator[Step]:
        """Give a log stream one more replica."""
        return self._change(stream, "expand", 0, new)

    def contract(self, stream: int, old: int) -> Iterator[Step]:
        """Remove a replica."""
        return self._change(stream, "contract", old, 0)

    def abort_change(self, stream: int) -> None:
        """Undo a swap, expansion or contraction that is not committed yet."""
        self._run(self._admin.abort_change(stream))

    def _change(self, stream: int, kind: Kind, old: int, new: int) -> Iterator[Step]:
        steps = procedures.change_ensemble(self._admin, stream, kind, old=old, new=new)
        return self._iterate(steps)

    # -- operators and the metadata repository ----------------------------------------------------

    def pause_operators(self) -> None:
        """Let operators begin nothing by themselves."""
        self._run(self._admin.pause_operators())

    def resume_operators(self) -> None:
        """Let operators go on."""
        self._run(self._admin.resume_operators())

    def add_member(self, node: int, *, peers: str = "") -> None:
        """Add a node to the metadata repository."""
        self._run(self._admin.add_member(node, peers=peers))

    def remove_member(self, node: int) -> None:
        """Remove a node from the metadata repository."""
        self._run(self._admin.remove_member(node))

    def transfer_leadership(self, node: int) -> None:
        """Let another member lead the metadata repository."""
        self._run(self._admin.transfer_leadership(node))

    # -- the loop -------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)

    def _iterate(self, steps: AsyncIterator[T]) -> Iterator[T]:
        while (step := self._run(_next(steps))) is not None:
            yield step


class AdminConnection(Admin, OwnSession):
    """An ``Admin`` with a session of its own."""

    def __init__(self, session: Session, thread: LoopThread) -> None:
        OwnSession.__init__(self, session, thread)
        Admin.__init__(self, AsyncAdmin(session), thread)


def connect_admin(
    url: str, *, timeout: float = 30.0, security: ClientSecurity | None = None
) -> AdminConnection:
    """Connect to any node of a cluster, whether or not it has topics yet."""
    endpoints = parse_url(url).endpoints
    opened = open_session(endpoints, client=CLIENT, timeout=timeout, security=security)
    return AdminConnection(*opened)


async def _next(steps: AsyncIterator[T]) -> T | None:
    return await anext(steps, None)
