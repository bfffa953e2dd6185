"""What waits to go through Raft at a metadata node: proposed if it leads, shared if not.

Invariants:
  P1  one batch of this node is in the Raft log unapplied at a time; the next one takes all that
      came in meanwhile
  P2  a batch that brings reports or changes ends with a cut, so nothing waits for a later one
  P3  no batch is proposed that would change nothing, and none for reports that let no cut order
      more: they wait for the one that does, which would else wait for theirs; at most for a tick
  P4  what waits is bounded; what does not fit is refused, and reports come again
  P5  what Raft refuses for now (a leader that hands over) waits; it is tried again after a tick
  P6  under another leader all that waits is offered again: what the last one had may be lost
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import chain

from tidelog import limits
from tidelog.core.metadata.assignment import gather_at, spread_over
from tidelog.core.metadata.collector import Collector, Replica
from tidelog.core.metadata.commands import (
    Assign,
    Batch,
    Request,
    Shared,
    encode_batch,
    request_bytes,
)
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import Share
from tidelog.core.order.commands import Cut, Report
from tidelog.core.order.foresight import would_order
from tidelog.core.raft.entries import NO_INDEX, RaftTerm
from tidelog.core.raft.node import Raft, Refused, Role
from tidelog.types import NO_NODE, NodeId


class Unheeded(Enum):
    """Why something that came in was left without effect."""

    NOT_ASSIGNED = "the storage node is another metadata node's"
    NO_REPLICA = "the storage node has no replica of that stream"
    NOT_LEADER = "only the leader takes what is to be proposed"
    QUEUE_FULL = "too much waits to be proposed"


class Proposing:
    """The way of reports and changes into the Raft log."""

    __slots__ = (
        "_collector",
        "_followed",
        "_heard",
        "_in_flight",
        "_is_due",
        "_is_refused",
        "_leader",
        "_leader_collects",
        "_moves",
        "_raft",
        "_reports",
        "_requests",
        "_takeover_ticks",
        "_ticks",
        "_unanswered",
    )

    def __init__(
        self,
        raft: Raft,
        collector: Collector,
        unanswered: Callable[[], Iterable[Request]],
        takeover_ticks: int,
        leader_collects: int,
    ) -> None:
        """``unanswered``: the changes that were asked for here and wait for their outcome.

        ``leader_collects``: from so many storage nodes a leader collects alone.
        """
        self._raft = raft
        self._collector = collector
        self._unanswered = unanswered
        self._takeover_ticks = takeover_ticks
        self._leader_collects = leader_collects
        self._ticks = 0
        self._leader: tuple[RaftTerm, NodeId] = (raft.term, NO_NODE)
        self._in_flight = NO_INDEX
        self._is_refused = False
        self._is_due = False
        """Whether reports have waited for a tick."""
        self._requests: deque[tuple[Request, int]] = deque()
        self._reports: dict[Replica, Report] = {}
        """Reports that other nodes shared, the newest of each replica."""
        self._moves: tuple[Assign, ...] = ()
        self._heard: dict[NodeId, int] = {}
        self._followed = NO_NODE
        """The last leader that was another node."""

    def tick(self, machine: MetadataMachine) -> None:
        """Let time pass; a leader looks after the storage nodes of silent metadata nodes."""
        self._ticks += 1
        self._is_refused = False
        self._notice_leader(machine)
        self._is_due = self._has_reports
        self._plan_moves(machine)

    def _plan_moves(self, machine: MetadataMachine) -> None:
        self._moves = ()
        if self._leads:
            current = {node.node: node.collector for node in machine.nodes.values()}
            if len(current) <= self._leader_collects:
                self._moves = gather_at(self._raft.node, current)
            else:
                self._moves = spread_over(self._living(), current)

    def heard(self, node: NodeId) -> None:
        """Note a sign of life of another metadata node."""
        if node in self._raft.membership.voters:
            self._heard[node] = self._ticks

    def add(self, request: Request) -> bool:
        """Take a change in; False if too many wait, or it is too large to be proposed."""
        if len(self._requests) >= limits.METADATA_REQUESTS_MAX:
            return False
        size = request_bytes(request)
        if size > limits.METADATA_REQUEST_BYTES_MAX:
            return False
        self._requests.append((request, size))
        return True

    def take_in(self, commands: Iterable[Shared], machine: MetadataMachine) -> Unheeded | None:
        """Take what another node shares; return why some of it was left, if so."""
        self._notice_leader(machine)
        if not self._leads:
            return Unheeded.NOT_LEADER
        reason: Unheeded | None = None
        for command in commands:
            if isinstance(command, Request):
                if not self.add(command):
                    reason = Unheeded.QUEUE_FULL
            elif not machine.is_news(command):
                continue  # It was held up on its way.
            elif len(self._reports) < limits.METADATA_REPORTS_MAX:
                self._reports[command.node, command.stream] = command
            else:
                reason = Unheeded.QUEUE_FULL
        return reason

    def is_ready(self, machine: MetadataMachine) -> bool:
        """Whether something can be proposed or shared now."""
        if not self._leads:
            return self._raft.leader != NO_NODE and self._has_to_share
        if self._is_refused or self._raft.applied < self._in_flight:
            return False
        return self._is_worth_a_batch(machine)

    def propose_or_share(self, machine: MetadataMachine) -> Share | None:
        """Propose the next batch if this node leads; else return what the leader is to be told."""
        self._notice_leader(machine)
        if not self.is_ready(machine):
            return None
        if self._leads:
            self._propose()
            return None
        return Share(self._raft.node, self._raft.leader, self._take_shared())

    @property
    def _leads(self) -> bool:
        return self._raft.role is Role.LEADER

    def _is_worth_a_batch(self, machine: MetadataMachine) -> bool:
        """Whether there is something that a batch should not wait for (P3)."""
        if self._requests or self._moves or machine.order.has_pending:
            return True
        if not self._has_reports:
            return False
        waiting = chain(self._reports.values(), self._collector.waiting())
        return self._is_due or would_order(machine.order, waiting)

    @property
    def _has_reports(self) -> bool:
        return bool(self._reports) or self._collector.is_waiting

    @property
    def _has_to_share(self) -> bool:
        return bool(self._requests) or self._collector.is_waiting

    def _take_shared(self) -> tuple[Shared, ...]:
        requests = self._take_requests()
        room = limits.METADATA_BATCH_COMMANDS_MAX - len(requests)
        return (*requests, *self._collector.take(room))

    def _take_requests(self) -> tuple[Request, ...]:
        """Take as many as fit into one Raft entry beside the reports."""
        taken: list[Request] = []
        room = limits.METADATA_REQUEST_BYTES_MAX
        while self._requests and self._requests[0][1] <= room:
            request, size = self._requests.popleft()
            taken.append(request)
            room -= size
        return tuple(taken)

    def _propose(self) -> None:
        moves, requests = self._moves, self._take_requests()
        room = limits.METADATA_BATCH_COMMANDS_MAX - len(moves) - len(requests)
        shared = [self._reports.pop(replica) for replica in list(self._reports)[:room]]
        own = self._collector.take(room - len(shared))
        index = self._raft.propose(encode_batch(Batch((*moves, *requests, *shared, *own, Cut()))))
        self._moves, self._is_due = (), False
        if isinstance(index, Refused):
            self._is_refused = True
            self._collector.offer_again()
            self._reports.update({(one.node, one.stream): one for one in shared})
            self._requests.extendleft((one, request_bytes(one)) for one in reversed(requests))
        else:
            self._in_flight = index

    def _living(self) -> list[NodeId]:
        newest_silent = self._ticks - self._takeover_ticks
        return [
            node
            for node in self._raft.membership.voters
            if node == self._raft.node or self._heard.setdefault(node, self._ticks) > newest_silent
        ]

    def _notice_leader(self, machine: MetadataMachine) -> None:
        """Start anew under another leader: what the old one was given may be lost."""
        leader = (self._raft.term, self._raft.leader)
        if leader == self._leader:
            return
        self._leader = leader
        self._in_flight = NO_INDEX
        self._is_refused = False
        self._reports.clear()
        self._offer_requests_again()
        self._collector.offer_again()
        self._heard = self._heard_of_voters()
        self._plan_moves(machine)
        if self._raft.leader not in (NO_NODE, self._raft.node):
            self._followed = self._raft.leader

    def _offer_requests_again(self) -> None:
        """Offer all changes that were asked for here (P6); those of others come again, too."""
        self._requests.clear()
        for request in self._unanswered():
            self.add(request)

    def _heard_of_voters(self) -> dict[NodeId, int]:
        """Give all voters time to be heard, but for who led before: it was to be heard by all."""
        heard = dict.fromkeys(self._raft.membership.voters, self._ticks)
        if self._followed in heard and self._followed in self._heard:
            heard[self._followed] = self._heard[self._followed]
        return heard
