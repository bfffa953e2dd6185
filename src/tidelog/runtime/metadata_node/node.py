"""One node of the metadata repository: ``core.metadata.repository`` with a clock, a disk and peers.

Invariants:
  N1  outputs are carried out as ``core.metadata.repository`` says, all that came in during one turn
      of the loop together
  N2  a node whose disk failed says nothing any more
  N3  a node whose disk is full does not go on leading: all that the others commit would wait here
      to be written, while a follower is sent no more than a window of it
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from random import SystemRandom
from typing import Final, get_args

from prometheus_client.core import Metric

from tidelog.core.metadata.commands import Change, NameMember
from tidelog.core.metadata.messages import NodeReport
from tidelog.core.metadata.repository import PeerMessage, Repository, RepositoryOutput
from tidelog.core.metadata.view import MetadataView, view_of
from tidelog.core.raft.options import Role
from tidelog.core.raft.status import Status
from tidelog.errors import LogClosed, LogError
from tidelog.formats.cluster_messages import AskChange, ClusterMessage, ReadView
from tidelog.runtime.events import tell
from tidelog.runtime.metadata_node.asking import Asking
from tidelog.runtime.metadata_node.disk import MetadataDisk
from tidelog.runtime.metadata_node.membership import MemberChanges
from tidelog.runtime.metadata_node.metrics import metrics_of
from tidelog.runtime.metadata_node.rounds import Rounds
from tidelog.runtime.metadata_node.telling import Telling
from tidelog.runtime.metadata_node.timing import MetadataTiming
from tidelog.runtime.post import Post
from tidelog.runtime.ticks import next_tick
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import Vfs
from tidelog.types import NO_NODE, NodeId

_logger: Final = logging.getLogger(__name__)

_PEER_KINDS: Final[tuple[type, ...]] = get_args(PeerMessage)
_NAME_TICKS: Final = 20
"""How often a node looks whether the others know where it is."""


class MetadataNode:
    """Belongs to one event loop; ``post`` is that of its process."""

    def __init__(
        self,
        *,
        node: NodeId,
        cluster_id: bytes,
        directory: str,
        first_members: tuple[NodeId, ...] | None,
        post: Post,
        timing: MetadataTiming | None = None,
        vfs: Vfs | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """``first_members``: of a new group; none: of a node that is to join one; None: the node
        has run before."""
        self._loop = asyncio.get_running_loop()
        self._node = node
        self._first_members = first_members
        self._post = post
        self._timing = timing or MetadataTiming()
        self._on_failure = on_failure
        self._disk = MetadataDisk(
            vfs or OsVfs(),
            directory,
            node=node,
            cluster_id=cluster_id,
            on_written=self._written,
            on_failure=self._fail,
        )
        self.repository: Repository
        self._asking: Asking
        self._telling: Telling
        self._members: MemberChanges
        self._rounds: Rounds
        self._own: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._ticks = 0
        self._is_woken = False
        self._is_running = False
        self._leader = NO_NODE
        self.failure: BaseException | None = None
        """What ended the node, if it was not asked to stop."""
        self.elections = 0
        """Changes of the leader since the start."""

    # -- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Read what is on the disk, and take part."""
        stored = await self._disk.open(self._first_members)
        draw = SystemRandom().randrange
        self.repository = Repository(self._node, stored, self._timing.options(), draw)
        self._asking = Asking(self._post, self.repository)
        self._telling = Telling(self._post, self.repository)
        self._members = MemberChanges(self.repository, self._post, self.ask, self._wake)
        self._rounds = Rounds(self.repository.raft)
        self._learn_members()
        self._is_running = True
        self._post.on(_PEER_KINDS, self._on_peer)
        self._post.on((NodeReport,), self._on_report, at_once=True)
        self._post.on((AskChange,), self._on_ask)
        self._post.on((ReadView,), self._on_read)
        self._due = self._loop.time()
        self._plan_tick()
        self._wake()

    async def stop(self) -> None:
        """Take part no more; what was asked for here and is not answered yet gets LogClosed."""
        self._end()
        await self._disk.close()

    def _end(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._own.values():
            if not waiting.done():
                waiting.set_exception(LogClosed("the metadata node was stopped"))
        self._own.clear()

    def _fail(self, error: BaseException) -> None:
        """N2."""
        if self.failure is None:
            self.failure = error
            tell(_logger, "metadata failed", logging.ERROR, error=str(error))
            self._end()
            if self._on_failure is not None:
                self._on_failure(error)

    # -- for the process ----------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self._is_running and self.repository.raft.role is Role.LEADER

    @property
    def leader(self) -> NodeId:
        """The leader of the metadata repository; none if it is not known here."""
        return self.repository.raft.leader if self._is_running else NO_NODE

    def status(self) -> Status:
        """The Raft node as it stands."""
        return self.repository.raft.status()

    def metrics(self) -> Iterable[Metric]:
        """For Prometheus."""
        if not self._is_running:
            return ()
        return metrics_of(self.repository, self._disk, self._rounds, self.elections)

    @property
    def syncs(self) -> int:
        """Group commits of the Raft log since the start."""
        return self._disk.groups

    def view(self) -> MetadataView:
        """What is applied here; perhaps not the newest."""
        return view_of(self.repository.machine, self.repository.raft)

    async def ask(self, change: Change) -> None:
        """Have a change made; raises the typed refusal.  DeadlineExceeded: it may be applied."""
        if not self._is_running:
            raise LogClosed("the metadata node is not running")
        number = self.repository.ask(change)
        waiting = self._own[number] = self._loop.create_future()
        self._wake()
        await waiting

    async def add_member(self, node: NodeId, *, seconds: float, address: str = "") -> None:
        """Let a node join: it gets the log, and votes once it has caught up.

        May be called again after any error, and goes on where it stopped.  NotLeader if another
        node leads.  ``address``: where it listens for its peers, if the post does not know.
        """
        where = address or self._post.address_of(node)
        await self._members.within(seconds, self._members.add(node, where))

    async def remove_member(self, node: NodeId, *, seconds: float) -> None:
        """Let a node leave; NotLeader if another node leads."""
        await self._members.within(seconds, self._members.remove(node))

    async def transfer(self, node: NodeId, *, seconds: float) -> None:
        """Let another node lead; NotLeader if another node leads."""
        await self._members.within(seconds, self._members.transfer(node))

    # -- what comes in ------------------------------------------------------------------------

    def _on_peer(self, _: NodeId, message: ClusterMessage) -> None:
        if self._is_running and isinstance(message, PeerMessage):
            self.repository.step(message)
            self._wake()

    def _on_report(self, _: NodeId, message: ClusterMessage) -> None:
        if self._is_running and isinstance(message, NodeReport):
            self.repository.report(message)
            self._wake()

    def _on_ask(self, asker: NodeId, message: ClusterMessage) -> None:
        if self._is_running and isinstance(message, AskChange):
            self._asking.ask(asker, message)
            self._wake()

    def _on_read(self, asker: NodeId, message: ClusterMessage) -> None:
        if self._is_running and isinstance(message, ReadView):
            self._telling.ask(asker, message)
            self._wake()

    def _tick(self) -> None:
        self._plan_tick()
        self.repository.tick()
        self._ticks += 1
        if self._ticks % _NAME_TICKS == 0:
            self._name_itself()
        if self._disk.is_full:
            self._hand_over()
        self._wake()

    def _plan_tick(self) -> None:
        """From now on if this one is late: who was held up has no ticks to make up."""
        self._due = next_tick(max(self._due, self._loop.time()), self._timing.tick, self._node)
        self._timer = self._loop.call_at(self._due, self._tick)

    def _hand_over(self) -> None:
        """Let another node lead while the disk is full (N3)."""
        raft = self.repository.raft
        status = raft.status()
        if status.role is Role.LEADER and status.transfer_target == NO_NODE:
            voters = status.membership.voters
            ahead = [
                (one.match, one.node)
                for one in status.followers
                if one.node in voters and one.match > status.durable
            ]
            if ahead:
                raft.transfer_leadership(max(ahead)[1])

    def _written(self, sequence: int) -> None:
        if self._is_running:
            self.repository.written(sequence)
            self._wake()

    # -- what goes out (N1) -------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._is_woken = False
        if not self._is_running:
            return
        begin = self._loop.time()
        while self.repository.has_output:
            self._carry_out(self.repository.take())
        self._rounds.look(begin, self._loop.time())
        self._telling.tell_changes()
        self._note_leader()

    def _carry_out(self, output: RepositoryOutput) -> None:
        for message in output.to_peers:
            self._post.send(message.target, message)
        for told in output.to_storage:
            self._post.send(told.target, told)
        for answer in output.answers:
            if not self._asking.answered(answer):
                self._answer_own(answer.number, answer.error)
        for read in output.reads:
            self._telling.serve(read)
        for read in output.lost_reads:
            self._telling.lose(read)
        if output.write is not None:
            self._disk.add(output.write)

    def _answer_own(self, number: int, error: LogError | None) -> None:
        waiting = self._own.pop(number, None)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)

    def _note_leader(self) -> None:
        raft = self.repository.raft
        if raft.leader != self._leader:
            self._leader = raft.leader
            self.elections += raft.leader != NO_NODE
            tell(_logger, "metadata leader", node=raft.leader, term=raft.term)

    # -- where members are --------------------------------------------------------------------

    def _name_itself(self) -> None:
        """See to it that the others know where this node is, and that it knows where they are."""
        self._learn_members()
        machine, address = self.repository.machine, self._post.advertise
        known = machine.members.get(self._node)
        is_named = known is not None and known.address == address
        is_member = self._node in self.repository.raft.membership.voters
        if self.leader != NO_NODE and is_member and address and not is_named and not self._own:
            change = NameMember(self._node, address, machine.member_revision(self._node))
            naming = self._loop.create_task(self.ask(change))
            naming.add_done_callback(_forget)

    def _learn_members(self) -> None:
        for member in self.repository.machine.members.values():
            self._post.learn(member.node, member.address)


def _forget(task: asyncio.Task[None]) -> None:
    """What fails is tried again later."""
    if not task.cancelled():
        task.exception()
