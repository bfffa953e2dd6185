"""The operator of the modelled storage nodes: new terms, other ensembles.

It writes to the metadata repository by compare-and-set, fences a majority, and lets the longest
of the fenced replicas lead.  Several attempts may run at once; they only cost availability.

Invariants:
  E1  a replica leads only a term that a majority of the ensemble was fenced in, and only if no
      fenced replica has a higher head
  E2  an ensemble changes by one node at a time; a node leaves only when a majority of the others
      has all that is ordered, with its GLSNs
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.core.order.commands import StreamStatus, UpdateStream
from tidelog.core.order.state import StreamOrder
from tidelog.errors import LogError, RevisionConflict
from tidelog.testing.journal import Happened
from tidelog.testing.sometimes import Rare
from tidelog.testing.storage_messages import Fence, Fenced, Lead, Leads, ToOperator
from tidelog.testing.world import MILLISECOND, SECOND, Process
from tidelog.types import NO_NODE, NodeId, Revision, StreamId, Term

if TYPE_CHECKING:
    from tidelog.testing.metadata_cluster import MetadataCluster

Answered: TypeAlias = Callable[[LogError | None], None]

RESEND: Final = 40 * MILLISECOND
WATCH: Final = 150 * MILLISECOND
PATIENCE: Final = 2 * SECOND
"""An attempt that takes longer is given up."""
ENSEMBLE_MAX: Final = 4


class Stage(Enum):
    """How far an attempt to begin a term is."""

    ASKING = "asks the metadata repository for a term"
    FENCING = "fences the ensemble"
    LEADING = "makes a replica the leader"


class Attempt:
    """One attempt to begin a term of one stream."""

    __slots__ = (
        "began_at",
        "chosen",
        "ensemble",
        "fenced",
        "grows",
        "revision",
        "stage",
        "stream",
        "term",
    )

    def __init__(self, order: StreamOrder, ensemble: tuple[NodeId, ...], began_at: int) -> None:
        self.stream: StreamId = order.stream
        self.term = Term(order.term + 1)
        self.revision = order.revision
        self.ensemble = ensemble
        self.grows = ensemble != order.ensemble
        self.began_at = began_at
        self.stage = Stage.ASKING
        self.fenced: dict[NodeId, tuple[Term, int]] = {}
        self.chosen = NO_NODE


class Operator(Process):
    """It never dies: an attempt that is given up half way is as good as a death."""

    __slots__ = ("_attempts", "_cluster", "_draws")

    def __init__(self, cluster: MetadataCluster, node: NodeId) -> None:
        super().__init__(cluster.world, node)
        self._cluster = cluster
        self._draws = cluster.chance.stream("operator")
        self._attempts: dict[StreamId, Attempt] = {}

    def on_start(self) -> None:
        self.after(WATCH, self._watch)
        self.after(RESEND, self._resend)

    def _watch(self) -> None:
        """Begin a new term of every stream that nobody leads."""
        self.after(WATCH, self._watch)
        for stream in self._cluster.streams:
            order = self._cluster.view(stream)
            if order is not None and stream not in self._attempts and not self._is_led(order):
                self.begin_term(stream)

    @property
    def is_at_rest(self) -> bool:
        """Whether every stream has its leader, and nothing is under way."""
        orders = self._cluster.agreement.order.streams.values()
        return not self._attempts and all(self._is_led(order) for order in orders)

    def _is_led(self, order: StreamOrder) -> bool:
        """Whether the leader that the metadata names is up and leads its term."""
        process = self._cluster.storage.get(order.leader)
        if process is None or not process.is_up:
            return False
        replica = process.replicas.get(order.stream)
        return replica is not None and replica.leads and replica.term == order.term

    # Terms.

    def begin_term(self, stream: StreamId) -> None:
        """Begin a new term of a stream, whatever the state of the present one is."""
        order = self._cluster.view(stream)
        if order is not None:
            self._begin(order, order.ensemble)

    def _begin(self, order: StreamOrder, ensemble: tuple[NodeId, ...]) -> None:
        attempt = Attempt(order, ensemble, self.world.now)
        self._attempts[order.stream] = attempt
        self._update(
            order,
            term=attempt.term,
            ensemble=ensemble,
            leader=NO_NODE,
            answered=partial(self._on_term, attempt),
        )

    def _on_term(self, attempt: Attempt, error: LogError | None) -> None:
        if error is not None:
            self._give_up(attempt)
        elif attempt.stage is Stage.ASKING:
            self._cluster.sometimes.count(Rare.TERM_CHANGED)
            if attempt.grows:
                self._cluster.sometimes.count(Rare.ENSEMBLE_CHANGED)
            self.world.journal.note(Happened.TERM, self.node, attempt.stream, attempt.term)
            attempt.stage = Stage.FENCING
            attempt.revision = Revision(attempt.revision + 1)
            self._send_again(attempt)

    def _give_up(self, attempt: Attempt) -> None:
        if self._attempts.get(attempt.stream) is attempt:
            del self._attempts[attempt.stream]

    def _resend(self) -> None:
        self.after(RESEND, self._resend)
        for attempt in list(self._attempts.values()):
            if self.world.now - attempt.began_at > PATIENCE:
                self._give_up(attempt)
            else:
                self._send_again(attempt)

    def _send_again(self, attempt: Attempt) -> None:
        if attempt.stage is Stage.FENCING:
            for node in attempt.ensemble:
                if node not in attempt.fenced:
                    self._send(node, Fence(self.node, node, attempt.stream, attempt.term))
        elif attempt.stage is Stage.LEADING:
            self._send(
                attempt.chosen,
                Lead(self.node, attempt.chosen, attempt.stream, attempt.term, attempt.ensemble),
            )

    def receive(self, message: ToOperator) -> None:
        """Take the answer of a storage node."""
        attempt = self._attempts.get(message.stream)
        if attempt is None or message.term != attempt.term:
            return
        match message:
            case Fenced() if attempt.stage is Stage.FENCING:
                attempt.fenced[message.source] = (message.head_term, message.count)
                if 2 * len(attempt.fenced) > len(attempt.ensemble):
                    self._choose(attempt)
            case Leads() if attempt.stage is Stage.LEADING:
                self._finish(attempt)
            case _:
                pass

    def _choose(self, attempt: Attempt) -> None:
        """Let the fenced replica with the highest head lead (E1)."""
        attempt.chosen = max(attempt.fenced, key=lambda node: (attempt.fenced[node], -node))
        attempt.stage = Stage.LEADING
        self._send_again(attempt)

    def _finish(self, attempt: Attempt) -> None:
        self._give_up(attempt)
        order = self._cluster.view(attempt.stream)
        if order is not None and order.revision == attempt.revision:
            self._update(
                order,
                term=attempt.term,
                ensemble=attempt.ensemble,
                leader=attempt.chosen,
                answered=self._ignore,
            )

    # Ensembles.

    def change_ensemble(self, stream: StreamId, draw: int) -> None:
        """Add a node to the ensemble of a stream, with a new term, or take one out."""
        order = self._cluster.view(stream)
        if order is None or stream in self._attempts or not self._is_settled(order):
            return
        outside = [node for node in self._cluster.storage if node not in order.ensemble]
        inside = [node for node in order.ensemble if node != order.leader]
        # Replicas that joined before must have caught up: two empty ones are a majority of three.
        may_grow = (
            outside
            and len(order.ensemble) < ENSEMBLE_MAX
            and self._cluster.is_safe_without(order, NO_NODE)
        )
        if may_grow and (draw % 2 or not inside):
            added = outside[draw // 2 % len(outside)]
            self._begin(order, tuple(sorted((*order.ensemble, added))))
        elif inside:
            removed = inside[draw // 2 % len(inside)]
            left = tuple(node for node in order.ensemble if node != removed)
            if self._cluster.is_safe_without(order, removed):
                self._replace(order, left)

    def _is_settled(self, order: StreamOrder) -> bool:
        """Whether the leader is up and leads just this ensemble."""
        if not self._is_led(order) or not self._cluster.is_newest(order):
            return False
        return self._cluster.storage[order.leader].replicas[order.stream].ensemble == order.ensemble

    def _replace(self, order: StreamOrder, ensemble: tuple[NodeId, ...]) -> None:
        self._update(
            order,
            term=order.term,
            ensemble=ensemble,
            leader=order.leader,
            answered=self._on_ensemble,
        )

    def _on_ensemble(self, error: LogError | None) -> None:
        if error is None:
            self._cluster.sometimes.count(Rare.ENSEMBLE_CHANGED)

    # Speaking.

    def _update(
        self,
        order: StreamOrder,
        *,
        term: Term,
        ensemble: tuple[NodeId, ...],
        leader: NodeId,
        answered: Answered,
    ) -> None:
        self._cluster.ask(
            UpdateStream(
                order.stream, order.revision, term, ensemble, leader, StreamStatus.RUNNING, b""
            ),
            partial(self._on_answer, answered),
        )

    def _on_answer(self, answered: Answered, error: LogError | None) -> None:
        if isinstance(error, RevisionConflict):
            self._cluster.sometimes.count(Rare.UPDATE_CONFLICTED)
        answered(error)

    def _ignore(self, error: LogError | None) -> None:
        """Whoever watches sees what came of it."""

    def _send(self, target: NodeId, message: Fence | Lead) -> None:
        self._cluster.network.send(self.node, target, message)
